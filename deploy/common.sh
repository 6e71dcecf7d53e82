# What the scripts share; sourced, not run. Leaves the shell in the root of the project, stopping at the first error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Colour for people only.
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

# phase TEXT: a heading with the time since the script's start.
phase() { printf '%s\n' "${bold}== $1${plain}  ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# How many compilers fit: one a core, and 1.5 GiB for each.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(($(awk '/MemAvailable/ {print $2}' /proc/meminfo) / 1572864))
  ((memory < 1)) && memory=1
  echo $((memory < cores ? memory : cores))
}

# build PRESET [TARGET…]: configures build/PRESET where that is not done yet, and builds.
build() {
  local preset=$1 generator=() targets=() log=build/configure-$1.log
  shift
  if (($#)); then targets=(--target "$@"); fi
  if [[ ! -f build/$preset/build.ninja && ! -f build/$preset/Makefile ]]; then
    command -v ninja >/dev/null || generator=(-G "Unix Makefiles")
    mkdir -p build
    cmake --preset "$preset" "${generator[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "cmake failed; see $log"; }
    grep 'CUDA back end' "$log" || true
  fi
  NINJA_STATUS='[%f/%t, %e s] ' cmake --build "build/$preset" -j "$(jobs)" "${targets[@]}"
}
