# CMake generated Testfile for 
# Source directory: /work/wt3/elem/tests/bench
# Build directory: /work/wt3/elem/build-cuda/tests/bench
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[bench: one tiny comparison]=] "/work/wt3/elem/tests/bench/run.sh" "--smoke" "--build" "/work/wt3/elem/build-cuda")
set_tests_properties([=[bench: one tiny comparison]=] PROPERTIES  LABELS "bench" TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/bench/CMakeLists.txt;33;add_test;/work/wt3/elem/tests/bench/CMakeLists.txt;0;")
