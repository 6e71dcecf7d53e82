# CMake generated Testfile for 
# Source directory: /work/wt3/elem/client/examples
# Build directory: /work/wt3/elem/build-cuda/client/examples
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[example: hello]=] "/work/wt3/elem/build-cuda/bin/hello")
set_tests_properties([=[example: hello]=] PROPERTIES  LABELS "examples" PASS_REGULAR_EXPRESSION "y      = 100.*3., 12.*27., 48.*6., 12.*18., 24.*line 21: The size of tensor a \\(2\\) must match" TIMEOUT "300" _BACKTRACE_TRIPLES "/work/wt3/elem/client/examples/CMakeLists.txt;6;add_test;/work/wt3/elem/client/examples/CMakeLists.txt;11;gradwire_example;/work/wt3/elem/client/examples/CMakeLists.txt;0;")
add_test([=[example: train_digits]=] "/work/wt3/elem/build-cuda/bin/train_digits" "--at-least" "90" "--svg" "/work/wt3/elem/build-cuda/client/examples/digits.svg")
set_tests_properties([=[example: train_digits]=] PROPERTIES  LABELS "examples" TIMEOUT "300" _BACKTRACE_TRIPLES "/work/wt3/elem/client/examples/CMakeLists.txt;6;add_test;/work/wt3/elem/client/examples/CMakeLists.txt;12;gradwire_example;/work/wt3/elem/client/examples/CMakeLists.txt;0;")
