#!/usr/bin/env bash
# Brings the packages that building (build), testing (test), formatting (format), the reference (docs)
# or making packages (package) needs. Installs them with apt where it may; else says which command does
# it. Packages that are there cost nothing.
# Where there is no apt it looks for the programs alone: CMake names a library that it does not find.
set -euo pipefail

declare -A packages=(
  [build]="g++ make cmake ninja-build git python3 python3-pip libfmt-dev libcli11-dev
           nlohmann-json3-dev libyaml-cpp-dev libdnnl-dev libvulkan1 zlib1g-dev"
  [test]="libgtest-dev libgmock-dev chromium groff-base doxygen dpkg-dev"
  [format]="clang-format"
  [docs]="doxygen"
  [package]="dpkg-dev"
)
# A package whose program is there already, from wherever, is not asked for.
declare -A programs=([g++]=g++ [make]=make [cmake]=cmake [ninja-build]=ninja [git]=git
                     [python3]=python3 [clang-format]=clang-format [npm]=npm
                     [chromium]=chromium [groff-base]=groff [doxygen]=doxygen
                     [dpkg-dev]=dpkg-shlibdeps)

installed() {
  local package=$1
  if [[ -n ${programs[$package]:-} ]] && command -v "${programs[$package]}" >/dev/null; then
    return 0
  fi
  [[ $package == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1 && return 0
  if ! command -v apt-get >/dev/null; then
    [[ -z ${programs[$package]:-} ]]
    return
  fi
  [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == "install ok installed" ]]
}

# Where apt has no chromium (Ubuntu's comes as a snap) the tests that open report.html say so.
available() {
  [[ $1 != chromium ]] || LC_ALL=C apt-cache policy chromium 2>/dev/null | grep -q 'Candidate: [0-9]'
}

missing=()
for group in "$@"; do
  for package in ${packages[$group]}; do
    installed "$package" || ! available "$package" || missing+=("$package")
  done
done
# npm fetches Dawn's headers; it comes with Node.js from elsewhere as well.
if [[ " $* " == *" build "* ]] && ! installed npm; then missing+=(npm); fi

if ((${#missing[@]})); then
  as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo -n)
  if ! command -v apt-get >/dev/null; then
    echo "error: these programs are missing (README.md names your system's packages):" \
      "${missing[*]}" >&2
    exit 1
  fi
  if ! { "${as_root[@]}" true 2>/dev/null; }; then
    echo "error: packages are missing; install them and run this again:" >&2
    echo "  sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
fi

if [[ " $* " == *" build "* ]] && ! command -v cargo >/dev/null &&
    ! [[ -x ${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo ]]; then
  echo "error: cargo is missing (Rust 1.88 or newer, which Debian 12 and 13 and Ubuntu 24.04 do" \
    "not have by default). Install it and run this again:" >&2
  command -v curl >/dev/null || echo "  apt-get install curl ca-certificates" >&2
  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |" \
    "sh -s -- -y --profile minimal" >&2
  exit 1
fi
