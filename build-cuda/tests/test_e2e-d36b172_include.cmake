if(EXISTS "/work/wt3/elem/build-cuda/bin/test_e2e")
  if(NOT EXISTS "/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_tests.cmake" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_tests.cmake" IS_NEWER_THAN "/work/wt3/elem/build-cuda/bin/test_e2e" OR
     NOT "/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_tests.cmake" IS_NEWER_THAN "${CMAKE_CURRENT_LIST_FILE}")
    include("/usr/lib/cmake/Catch2/CatchAddTests.cmake")
    catch_discover_tests_impl(
      TEST_EXECUTABLE [==[/work/wt3/elem/build-cuda/bin/test_e2e]==]
      TEST_EXECUTOR [==[]==]
      TEST_WORKING_DIR [==[/work/wt3/elem/build-cuda/tests]==]
      TEST_SPEC [==[[long]]==]
      TEST_EXTRA_ARGS [==[]==]
      TEST_PROPERTIES [==[TIMEOUT;900;LABELS;e2e-long;SKIP_RETURN_CODE;4]==]
      TEST_PREFIX [==[e2e: ]==]
      TEST_SUFFIX [==[]==]
      TEST_LIST [==[test_e2e_TESTS]==]
      TEST_REPORTER [==[]==]
      TEST_OUTPUT_DIR [==[]==]
      TEST_OUTPUT_PREFIX [==[]==]
      TEST_OUTPUT_SUFFIX [==[]==]
      CTEST_FILE [==[/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_tests.cmake]==]
      TEST_DL_PATHS [==[]==]
      TEST_DL_FRAMEWORK_PATHS [==[]==]
      CTEST_FILE [==[]==]
    )
  endif()
  include("/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_tests.cmake")
else()
  add_test(test_e2e_NOT_BUILT test_e2e_NOT_BUILT)
endif()
