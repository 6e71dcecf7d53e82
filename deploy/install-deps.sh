#!/bin/bash
# Installs what Gradwire needs on Debian 12 and 13: deploy/install-deps.sh [--with-bench] [--with-oracles] [--with-manifests]
#   --with-bench     what the benchmarks compare with: libtorch, PyTorch, Google Benchmark
#   --with-oracles   what checks results against PyTorch
#   --with-manifests what checks the Kubernetes manifests, where kubectl is
# Asks nothing and removes nothing; where all is there it says so at once. Run it as root or as a user of sudo.
. "$(dirname "$0")/common.sh"

extra=() manifests=''
for argument in "$@"; do
  case $argument in
    --with-bench) extra+=(libtorch-dev python3-torch libbenchmark-dev) ;;
    --with-oracles) extra+=(python3-torch python3-numpy) ;;
    --with-manifests) extra+=(python3-yaml python3-venv yamllint shellcheck) manifests=yes ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
  esac
done

release=$(. /etc/os-release && echo "${ID:-?} ${VERSION_CODENAME:-?}")
case $release in
  "debian bookworm") boost=1.81 boost_library=1.81.0 ;;
  "debian trixie") boost=1.83 boost_library=1.83.0 ;;
  *) fail "this is $release; the packages are known for Debian 12 and 13. Their names stand in this file." ;;
esac

packages=(
  g++ cmake ninja-build ccache pkg-config python3 curl ca-certificates
  capnproto libcapnp-dev libssl-dev libspdlog-dev libcli11-dev prometheus-cpp-dev
  libopenblas-openmp-dev libdnnl-dev libhwy-dev librandom123-dev libgloo-dev
  "${extra[@]}"
)
boost_packages=("libboost$boost-dev" "libboost-json$boost-dev" "libboost-url$boost-dev")
# Two packages may stand in our way, and are then left alone: ours are unpacked into build/deps, where CMake looks first.
unpack=()

# kubernetes-validate is on PyPI only. Its tests are left out where PyPI cannot be reached.
install_validator() {
  local place=build/deps/manifests
  [[ $manifests && ! -x $place/bin/kubernetes-validate ]] || return 0
  echo "Installing kubernetes-validate into $place"
  { python3 -m venv "$place" && "$place/bin/pip" install --quiet kubernetes-validate==1.37.0; } >>build/install-deps.log 2>&1 ||
    echo "kubernetes-validate is not to be had: the manifests' schemas stay unchecked"
}

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null; }

# Boost's versions exclude each other.
other_boost=$( (dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'libboost1.*-dev' 2>/dev/null || true) |
  awk -v ours="libboost$boost-dev" '$1 == "installed" && $2 != ours {print $2; exit}')
if [[ -n $other_boost ]]; then
  unpack+=("${boost_packages[@]}")
  for library in json url container system; do
    unpack+=("libboost-$library$boost_library")
    [[ $library == json || $library == url ]] || unpack+=("libboost-$library$boost-dev")
  done
else
  packages+=("${boost_packages[@]}")
fi
# Catch2 is of version 3 in Debian 13, and in Debian 12's backports, which serve for nothing else.
if [[ $release == *trixie ]]; then
  packages+=(catch2)
elif installed catch2 && dpkg --compare-versions "$(version catch2)" lt 3; then
  unpack+=(libcatch2-dev)
else
  packages+=(catch2 libcatch2-dev)
fi

missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
to_unpack=()
for package in "${unpack[@]}"; do [[ -e build/deps/.$package ]] || to_unpack+=("$package"); done
if ((!${#missing[@]} && !${#to_unpack[@]})); then
  install_validator
  echo "All ${#packages[@]} packages are there."
  exit 0
fi

root=()
if ((EUID)); then
  command -v sudo >/dev/null || fail "run it as root: these packages are missing: ${missing[*]}"
  if [[ -t 0 ]]; then root=(sudo); else root=(sudo -n); fi
fi
mkdir -p build
log=build/install-deps.log
: >"$log"

# apt ARGUMENT…: apt-get with the steps it reports as progress; what it says is kept in the log.
apt() {
  local last=-10 kind percent text line
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends --no-remove \
    -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold -o APT::Status-Fd=1 \
    "$@" </dev/null 2>&1 |
    while IFS= read -r line; do
      case $line in
        dlstatus:*) kind=download ;;
        pmstatus:*) kind=install ;;
        *) printf '%s\n' "$line" >>"$log" && continue ;;
      esac
      IFS=: read -r _ _ percent text <<<"$line"
      percent=${percent%.*}
      if [[ -t 1 ]]; then
        printf '\r\e[K   %-8s %3s %%  %.60s' "$kind" "$percent" "$text"
      elif ((percent >= last + 10 || percent < last)); then
        printf '   %-8s %3s %%\n' "$kind" "$percent"
        last=$percent
      fi
    done || { tail -n 20 "$log" >&2; fail "apt-get $1 failed; all it said is in $log"; }
  [[ ! -t 1 ]] || printf '\r\e[K'
}

if [[ $release == *bookworm && " ${missing[*]} ${to_unpack[*]} " == *catch2* ]]; then
  # The same mirror and key as the system's own, whether they stand in sources.list or in a deb822 file.
  sources=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI) $(SIGNED_BY)' 'Created-By: Packages')
  if ! grep -q '^bookworm-backports ' <<<"$sources"; then
    read -r _ mirror key < <(grep '^bookworm ' <<<"$sources" || echo '- http://deb.debian.org/debian/')
    echo "Adding bookworm-backports, for Catch2 only: /etc/apt/sources.list.d/gradwire-backports.list"
    [[ $key == /* ]] || key=''  # none, or a key that stands in the file itself: apt's own keys serve
    echo "deb ${key:+[signed-by=$key] }$mirror bookworm-backports main" |
      "${root[@]}" tee /etc/apt/sources.list.d/gradwire-backports.list >/dev/null
  fi
fi
echo "Reading the package lists"
apt update

if ((${#missing[@]})); then
  echo "Installing ${#missing[@]} packages: ${missing[*]}"
  wanted=()
  for package in "${missing[@]}"; do
    if [[ $release == *bookworm && $package == *catch2* ]]; then package+=/bookworm-backports; fi
    wanted+=("$package")
  done
  apt install "${wanted[@]}"
fi
if ((${#to_unpack[@]})); then
  echo "Unpacking into build/deps, beside ${other_boost:-catch2 $(version catch2)}: ${to_unpack[*]}"
  mkdir -p build/deps/archives
  for package in "${to_unpack[@]}"; do
    suite=''
    [[ $package != libcatch2-dev ]] || suite=/bookworm-backports
    (cd build/deps/archives && apt-get -q -o APT::Sandbox::User=root download "$package$suite") >>"$log" 2>&1 ||
      fail "$package could not be fetched; see $log"
    dpkg -x "build/deps/archives/$package"_*.deb build/deps
    touch "build/deps/.$package"
  done
  rm -r build/deps/archives
fi
install_validator
echo "Done."
