# CMake generated Testfile for 
# Source directory: /work/wt3/elem/tests
# Build directory: /work/wt3/elem/build-cuda/tests
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
include("/work/wt3/elem/build-cuda/tests/environment.cmake")
include("/work/wt3/elem/build-cuda/tests/test_schema-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_schema-d36b172_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_engine-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_engine-d36b172_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_server-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_server-d36b172_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_client-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_client-d36b172_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_conformance-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_conformance-d36b172_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_e2e-d203b74_include.cmake")
include("/work/wt3/elem/build-cuda/tests/test_e2e-d36b172_include.cmake")
add_test([=[conformance: over HTTP]=] "/root/.pyenv/shims/python3" "/work/wt3/elem/tests/conformance/conform.py" "--server" "/work/wt3/elem/build-cuda/bin/gradwired" "--known-only" "--at-least" "1100" "/work/wt3/elem/tests/conformance/broadcasting.jsonl" "/work/wt3/elem/tests/conformance/bugs.jsonl" "/work/wt3/elem/tests/conformance/creation.jsonl" "/work/wt3/elem/tests/conformance/elementwise.jsonl" "/work/wt3/elem/tests/conformance/indexing.jsonl" "/work/wt3/elem/tests/conformance/linalg.jsonl" "/work/wt3/elem/tests/conformance/losses.jsonl" "/work/wt3/elem/tests/conformance/nn.jsonl" "/work/wt3/elem/tests/conformance/promotion.jsonl" "/work/wt3/elem/tests/conformance/reductions.jsonl" "/work/wt3/elem/tests/conformance/shape.jsonl")
set_tests_properties([=[conformance: over HTTP]=] PROPERTIES  LABELS "conformance" TIMEOUT "900" _BACKTRACE_TRIPLES "/work/wt3/elem/tests/CMakeLists.txt;45;add_test;/work/wt3/elem/tests/CMakeLists.txt;0;")
subdirs("habits")
subdirs("bench")
