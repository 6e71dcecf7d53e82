if(EXISTS "/work/wt3/elem/build-cuda/bin/test_engine")
  if(NOT EXISTS "/work/wt3/elem/build-cuda/tests/test_engine-d203b74_tests.cmake" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_engine-d203b74_tests.cmake" IS_NEWER_THAN "/work/wt3/elem/build-cuda/bin/test_engine" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_engine-d203b74_tests.cmake" IS_NEWER_THAN "${CMAKE_CURRENT_LIST_FILE}")
    include("/usr/lib/cmake/Catch2/CatchAddTests.cmake")
    catch_discover_tests_impl(
      TEST_EXECUTABLE [==[/work/wt3/elem/build-cuda/bin/test_engine]==]
      TEST_EXECUTOR [==[]==]
      TEST_WORKING_DIR [==[/work/wt3/elem/build-cuda/tests]==]
      TEST_SPEC [==[~[long]]==]
      TEST_EXTRA_ARGS [==[]==]
      TEST_PROPERTIES [==[TIMEOUT;300;LABELS;engine;SKIP_RETURN_CODE;4]==]
      TEST_PREFIX [==[engine: ]==]
      TEST_SUFFIX [==[]==]
      TEST_LIST [==[test_engine_TESTS]==]
      TEST_REPORTER [==[]==]
      TEST_OUTPUT_DIR [==[]==]
      TEST_OUTPUT_PREFIX [==[]==]
      TEST_OUTPUT_SUFFIX [==[]==]
      CTEST_FILE [==[/work/wt3/elem/build-cuda/tests/test_engine-d203b74_tests.cmake]==]
      TEST_DL_PATHS [==[]==]
      TEST_DL_FRAMEWORK_PATHS [==[]==]
      CTEST_FILE [==[]==]
    )
  endif()
  include("/work/wt3/elem/build-cuda/tests/test_engine-d203b74_tests.cmake")
else()
  add_test(test_engine_NOT_BUILT test_engine_NOT_BUILT)
endif()
