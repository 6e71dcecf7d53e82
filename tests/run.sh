#!/bin/bash
# All tests that need no GPU, from nothing: tests/run.sh [--quick]
#   --quick   the release build only, and no test that is labelled long
# Installs what is missing, builds, tests, and ends with ctest's summary; with several builds, with the total of them.
. "$(dirname "$0")/../deploy/common.sh"

quick=''
for argument in "$@"; do
  case $argument in
    --quick) quick=yes ;;
    *) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
passed=0 failed=0 seconds=()

# run_tests PRESET [CTEST ARGUMENT…]: adds to the totals; a failing test does not keep the next build from being tested.
run_tests() {
  local preset=$1 log=build/$1/ctest.log count
  shift
  ctest --test-dir "build/$preset" -j "$(nproc)" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || true
  # "98% tests passed, 2 tests failed out of 120"
  count=$(sed -n 's/.*% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")
  [[ -n $count ]] || fail "ctest ran no test of $preset"
  failed=$((failed + ${count% *}))
  passed=$((passed + ${count#* } - ${count% *}))
}

phase "Packages"
deploy/install-deps.sh --with-manifests

phase "Release build"
build release
phase "Release tests"
if [[ $quick ]]; then
  run_tests release -LE long
else
  run_tests release
  phase "AddressSanitizer and UndefinedBehaviorSanitizer"
  build asan
  # Campaigns of whole servers are long, and their servers' code is in the shorter tests too.
  run_tests asan -LE 'habits|e2e-long|cluster-long'
  phase "ThreadSanitizer: the server and the client"
  build tsan test_server test_client test_e2e test_cluster gradwired gradwire gradwire_sdk
  run_tests tsan -L 'server|client|e2e|cluster' -LE 'e2e-long|cluster-long'
  phase "The engine without optimisation"
  build debug test_engine
  run_tests debug -L engine -LE long
  phase "The engine for the oldest processor"
  build baseline test_engine
  run_tests baseline -L engine -LE long
  phase "Done"
  printf '%s passed, %s failed\n' "$passed" "$failed"
fi
((failed == 0))
