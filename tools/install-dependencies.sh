#!/usr/bin/env bash
# Brings the packages that building (build), testing (test) or formatting (format) needs. Installs
# them with apt where it may; else says which command does it. Packages that are there cost nothing.
set -euo pipefail

declare -A packages=(
  [build]="g++ make cmake ninja-build git python3 python3-pip libfmt-dev libcli11-dev
           nlohmann-json3-dev libyaml-cpp-dev libdnnl-dev libvulkan1"
  [test]="libgtest-dev libgmock-dev"
  [format]="clang-format"
)
# A package whose program is there already, from wherever, is not asked for.
declare -A programs=([g++]=g++ [make]=make [cmake]=cmake [ninja-build]=ninja [git]=git
                     [python3]=python3 [clang-format]=clang-format [npm]=npm)

installed() {
  local package=$1
  if [[ -n ${programs[$package]:-} ]] && command -v "${programs[$package]}" >/dev/null; then
    return 0
  fi
  [[ $package == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1 && return 0
  command -v dpkg-query >/dev/null &&
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == "install ok installed" ]]
}

missing=()
for group in "$@"; do
  for package in ${packages[$group]}; do
    installed "$package" || missing+=("$package")
  done
done
# npm fetches Dawn's headers; it comes with Node.js from elsewhere as well.
if [[ " $* " == *" build "* ]] && ! installed npm; then missing+=(npm); fi

if ((${#missing[@]})); then
  as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo -n)
  if ! command -v apt-get >/dev/null; then
    echo "error: these Debian packages, or what your system calls them, are missing:" >&2
    echo "  ${missing[*]}" >&2
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

if [[ " $* " == *" build "* ]] && ! command -v cargo >/dev/null; then
  echo "error: cargo (Rust 1.82 or newer) is missing; Debian's own is too old. Install it:" >&2
  echo "  https://rustup.rs, or the rustup package of your system" >&2
  exit 1
fi
