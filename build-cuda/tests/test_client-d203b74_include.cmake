if(EXISTS "/work/wt3/elem/build-cuda/bin/test_client")
  if(NOT EXISTS "/work/wt3/elem/build-cuda/tests/test_client-d203b74_tests.cmake" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_client-d203b74_tests.cmake" IS_NEWER_THAN "/work/wt3/elem/build-cuda/bin/test_client" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_client-d203b74_tests.cmake" IS_NEWER_THAN "${CMAKE_CURRENT_LIST_FILE}")
    include("/usr/lib/cmake/Catch2/CatchAddTests.cmake")
    catch_discover_tests_impl(
      TEST_EXECUTABLE [==[/work/wt3/elem/build-cuda/bin/test_client]==]
      TEST_EXECUTOR [==[]==]
      TEST_WORKING_DIR [==[/work/wt3/elem/build-cuda/tests]==]
      TEST_SPEC [==[~[long]]==]
      TEST_EXTRA_ARGS [==[]==]
      TEST_PROPERTIES [==[TIMEOUT;300;LABELS;client;SKIP_RETURN_CODE;4]==]
      TEST_PREFIX [==[client: ]==]
      TEST_SUFFIX [==[]==]
      TEST_LIST [==[test_client_TESTS]==]
      TEST_REPORTER [==[]==]
      TEST_OUTPUT_DIR [==[]==]
      TEST_OUTPUT_PREFIX [==[]==]
      TEST_OUTPUT_SUFFIX [==[]==]
      CTEST_FILE [==[/work/wt3/elem/build-cuda/tests/test_client-d203b74_tests.cmake]==]
      TEST_DL_PATHS [==[]==]
      TEST_DL_FRAMEWORK_PATHS [==[]==]
      CTEST_FILE [==[]==]
    )
  endif()
  include("/work/wt3/elem/build-cuda/tests/test_client-d203b74_tests.cmake")
else()
  add_test(test_client_NOT_BUILT test_client_NOT_BUILT)
endif()
