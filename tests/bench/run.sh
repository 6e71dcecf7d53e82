#!/bin/bash
# How fast this project is against its peers: tests/bench/run.sh [--quick] [--list] [--json FILE] [NAME…]
#   NAME          only rows whose name begins with it: chain, chain/forward/tcp, call, …; --list shows all names
#   --quick       fewer and shorter blocks: a first look, not a figure to keep
#   --json FILE   where the figures go besides the table (build/bench.json)
#   --smoke       one tiny row, to see that the benchmark itself works
#   --build DIR   measures what is built there, and builds nothing
# Builds the release preset and the benchmark's own programs. PyTorch (Debian: libtorch-dev, python3-torch) is optional:
# without it its rows are left out. README.md beside this says how it measures.
usage() { sed -n '2,9s/^# //p' "$0"; }
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../deploy/common.sh"

built='' arguments=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit ;;
    --build) built=${2:?--build needs a folder}; shift ;;
    --json) arguments+=("$1" "${2:?--json needs a file}"); shift ;;
    --quick | --list | --smoke) arguments+=("$1") ;;
    -*) printf 'run.sh: no option %s\n' "$1" >&2; usage >&2; exit 2 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

if [[ -z $built && " ${arguments[*]-} " != *" --list "* ]]; then
  log=build/bench-build.log
  mkdir -p build
  # Not through build(): a configuration from before the benchmark was there is renewed by itself.
  [[ -f build/release/build.ninja || -f build/release/Makefile ]] || build release schema >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; fail "the build failed; see $log"; }
  printf 'building (the log is %s)\n' "$log" >&2
  cmake --build build/release -j "$(jobs)" --target bench >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; fail "the build failed; see $log"; }
fi
exec python3 -B "$here/bench.py" --bin "${built:-build/release}/bin" "${arguments[@]}"
