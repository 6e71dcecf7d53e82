# CMake generated Testfile for 
# Source directory: /work/wt3/elem/client
# Build directory: /work/wt3/elem/build-cuda/client
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[client: a project outside finds the installed SDK]=] "/work/wt3/elem/tests/client/outside/run.sh" "/work/wt3/elem/build-cuda" "/usr/bin/c++" "")
set_tests_properties([=[client: a project outside finds the installed SDK]=] PROPERTIES  LABELS "client" TIMEOUT "300" _BACKTRACE_TRIPLES "/work/wt3/elem/client/CMakeLists.txt;45;add_test;/work/wt3/elem/client/CMakeLists.txt;0;")
subdirs("examples")
