#!/usr/bin/env bash
# Installs what the WebGPU tests run on where there is no GPU: the Vulkan loader and Mesa's software
# driver (lavapipe). Dawn refuses Mesa before 23; Debian 12 has a newer one in its backports.
# Safe to run again: it changes nothing when a new enough driver is there.
set -euo pipefail

needed=23
package=mesa-vulkan-drivers

installed() {
  local version
  version=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null) || return 1
  [ "${version%% *}" = installed ] && dpkg --compare-versions "${version#* }" ge "$needed" &&
    [ "$(dpkg-query -W -f '${db:Status-Status}' libvulkan1 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null; then
  # Elsewhere a driver that is there counts as new enough; the tests say if Dawn refuses it.
  compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null && exit 0
  echo "install-test-driver: this system has no dpkg; install Mesa's Vulkan drivers ($needed or" \
    "newer, with lavapipe) and the Vulkan loader with its own package manager" >&2
  exit 1
fi
if installed; then
  exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-test-driver: $package $needed or newer is missing and installing it needs root;" \
      "run as root: $0" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >/dev/null; }

candidate() { LC_ALL=C apt-cache policy "$package" | sed -n 's/^  Candidate: //p'; }

apt update
release=()
if ! dpkg --compare-versions "$(candidate)" ge "$needed"; then
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  suite="$codename-backports"
  if ! LC_ALL=C apt-cache policy | grep -q "a=$suite,\|n=$suite,"; then
    # The mirror that the distribution's own packages come from.
    uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
      'Created-By: Packages' | awk -v release="$codename" \
      '$2 == release && $3 == "main" && !seen++ { print $1 }')
    if [ -z "$uri" ]; then
      echo "install-test-driver: no apt source for $codename was found to derive $suite from;" \
        "add $suite to apt's sources, then run this again" >&2
      exit 1
    fi
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    {
      echo "Types: deb"
      echo "URIs: $uri"
      echo "Suites: $suite"
      echo "Components: main"
      [ ! -e "$keyring" ] || echo "Signed-By: $keyring"
    } | "${as_root[@]}" tee /etc/apt/sources.list.d/wgrad-backports.sources >/dev/null
    apt update
  fi
  release=(-t "$suite")
fi
apt install -y --no-install-recommends "${release[@]}" "$package" libvulkan1

if ! installed; then
  echo "install-test-driver: $package is still older than $needed; the WebGPU tests need a newer" \
    "Mesa" >&2
  exit 1
fi
