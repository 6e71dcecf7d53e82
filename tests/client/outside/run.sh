#!/bin/sh
# run.sh BUILD CXX [FLAGS]: installs the SDK into a directory of its own, and builds and runs a project that knows nothing
# but that, found by CMake and by pkg-config.
set -eu
build=$1 cxx=$2 flags=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GRADWIRED=$build/bin/gradwired
export GRADWIRED
wanted='tensor([2., 4., 6.])'

cmake --install "$build" --prefix "$dir/prefix" --component sdk > "$dir/log"
size=$(strip -o "$dir/stripped" "$dir"/prefix/lib*/libgradwire.so.0 2>/dev/null || strip -o "$dir/stripped" "$dir"/prefix/lib*/*/libgradwire.so.0; stat -c %s "$dir/stripped")
echo "libgradwire.so, stripped: $size bytes"
# A sanitizer's code is not what users get.
test -n "$flags" || test "$size" -lt 5000000

# A machine may have only the build program that this project was configured for.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$here" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror $flags" > "$dir/log"
cmake --build "$dir/build" > "$dir/log" || { cat "$dir/log"; exit 1; }
test "$("$dir/build/outside")" = "$wanted"
echo "find_package: good"

PKG_CONFIG_PATH=$(dirname "$(find "$dir/prefix" -name gradwire.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046,SC2086
"$cxx" $flags "$here/main.cpp" $(pkg-config --cflags --libs gradwire) -o "$dir/outside"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir gradwire) "$dir/outside" | grep -qxF "$wanted"
echo "pkg-config: good"
