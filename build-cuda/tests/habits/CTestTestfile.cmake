# CMake generated Testfile for 
# Source directory: /work/wt3/elem/tests/habits
# Build directory: /work/wt3/elem/build-cuda/tests/habits
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[habits: includes]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "includes")
set_tests_properties([=[habits: includes]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: headers]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "headers")
set_tests_properties([=[habits: headers]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: length]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "length")
set_tests_properties([=[habits: length]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: words]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "words")
set_tests_properties([=[habits: words]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: calls]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "calls")
set_tests_properties([=[habits: calls]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: tidy]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "tidy")
set_tests_properties([=[habits: tidy]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: readmes]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "readmes")
set_tests_properties([=[habits: readmes]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: hello]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/habits.py" "hello")
set_tests_properties([=[habits: hello]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;3;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: every rule sees a break of it]=] "/root/.pyenv/shims/python3" "-B" "/work/wt3/elem/tests/habits/habits_test.py")
set_tests_properties([=[habits: every rule sees a break of it]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;5;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: the generated files are current]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/generated.py" "/work/wt3/elem/build-cuda/bin/opgen" "/work/wt3/elem/engine/ops/unary.cpp" "/work/wt3/elem/engine/ops/curves.cpp" "/work/wt3/elem/engine/ops/binary.cpp" "/work/wt3/elem/engine/ops/ternary.cpp" "/work/wt3/elem/engine/ops/compare.cpp" "/work/wt3/elem/engine/ops/logic.cpp" "/work/wt3/elem/engine/ops/activation.cpp" "/work/wt3/elem/engine/ops/reduce.cpp" "/work/wt3/elem/engine/ops/scan.cpp" "/work/wt3/elem/engine/ops/sort.cpp" "/work/wt3/elem/engine/ops/shape.cpp" "/work/wt3/elem/engine/ops/join.cpp" "/work/wt3/elem/engine/ops/index.cpp" "/work/wt3/elem/engine/ops/select.cpp" "/work/wt3/elem/engine/ops/linalg.cpp" "/work/wt3/elem/engine/ops/nn.cpp" "/work/wt3/elem/engine/ops/loss.cpp" "/work/wt3/elem/engine/ops/create.cpp" "/work/wt3/elem/engine/ops/random.cpp" "/work/wt3/elem/engine/ops/autograd.cpp")
set_tests_properties([=[habits: the generated files are current]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;7;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: the client is slim]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/binaries.py" "slim" "/work/wt3/elem/build-cuda/bin/gradwire" "/work/wt3/elem/build-cuda/bin/hello")
set_tests_properties([=[habits: the client is slim]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;9;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: programs are hardened]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/binaries.py" "hardening" "/work/wt3/elem/build-cuda/bin/gradwired" "/work/wt3/elem/build-cuda/bin/gradwire")
set_tests_properties([=[habits: programs are hardened]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;12;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: the README's HTTP call answers what it says]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/habits/readme_http.py" "/work/wt3/elem/build-cuda/bin/gradwired")
set_tests_properties([=[habits: the README's HTTP call answers what it says]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;16;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
add_test([=[habits: the checks of programs see bad ones]=] "/root/.pyenv/shims/python3" "-B" "/work/wt3/elem/tests/habits/programs_test.py" "/usr/bin/c++")
set_tests_properties([=[habits: the checks of programs see bad ones]=] PROPERTIES  LABELS "habits" TIMEOUT "120" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/habits/CMakeLists.txt;18;add_test;/work/wt3/elem/tests/habits/CMakeLists.txt;0;")
