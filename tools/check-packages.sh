#!/usr/bin/env bash
# Runs the packages that `make package` made in file systems with neither shell, compiler nor package
# client: the archive's where there is libc6, libgcc-s1 and libstdc++6 alone, the .deb's with what it
# depends on and recommends. Everything comes from apt. Then the .deb's dependencies are installed by
# apt in simulation. Needs Debian or Ubuntu, and root or user namespaces.
#   tools/check-packages.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
archive=$(ls -t "$build"/wgrad-*.tar.gz | head -1)
package=$(ls -t "$build"/wgrad_*.deb | head -1)
unshare=$(command -v unshare)
model=tests/data/models/smollm2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Unpacks Debian packages, and what they depend on, into a folder.
unpack() {
  local root=$1
  shift
  mkdir -p "$root" "$work/debs"
  local names
  names=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$@" | grep '^[a-z0-9]' | sort -u)
  names=$(grep -vE '^(debconf.*|libc6-i386|gcc-.*-base|dpkg|tar)$' <<<"$names")
  (cd "$work/debs" && for name in $names; do
    compgen -G "${name}_*.deb" >/dev/null || echo "$name"
  done | xargs -r apt-get download -q >/dev/null 2>&1)
  for name in $names; do dpkg-deb -x "$work/debs/${name}"_*.deb "$root"; done
}

# Runs in the file system, with /proc, by which the loader finds where a program lies.
within() {
  local root=$1
  shift
  mkdir -p "$root/proc"
  local as_root=()
  [[ $(id -u) == 0 ]] || as_root=(--map-root-user)
  env -i "$unshare" "${as_root[@]}" --pid --fork --mount-proc --root="$root" "$@"
}

# What a user does first; $2 is the program's path within the file system $1.
use() {
  local root=$1 program=$2
  mkdir -p "$root"/{tmp,srv}
  cp -r "$model" "$root/srv/model"
  printf '{"text": "w5 w6 w7 w8"}\n{"text": "w6 w7 w8 w9"}\n' >"$root/srv/rows.jsonl"
  local train=("$program" train --device cpu --model /srv/model --data /srv/rows.jsonl --out)
  within "$root" "$program" --version
  within "$root" "$program" devices
  within "$root" "${train[@]}" /srv/plan --plan >/dev/null
  within "$root" "${train[@]}" /srv/run --steps 3
  within "$root" "$program" generate --model /srv/model --adapter /srv/run --device cpu --raw \
    --prompt "w5 w6" --max-tokens 4 --temperature 0 >/dev/null
  local tools
  tools=$(find "$root" \( -type f -o -type l \) \( -name 'sh' -o -name 'gcc*' -o -name 'cc' -o -name 'apt*' \
    -o -name 'dpkg' -o -name 'pip*' -o -name 'npm' -o -name 'cargo' -o -name 'python3*' \) -perm -u+x)
  if [[ -n $tools ]]; then
    echo "error: the file system holds more than it should: $tools" >&2
    exit 1
  fi
}

echo "== $archive on libc6, libgcc-s1 and libstdc++6"
unpack "$work/archive" libc6 libgcc-s1 libstdc++6
mkdir -p "$work/archive/opt"
tar -xzf "$archive" -C "$work/archive/opt" --strip-components=1
use "$work/archive" /opt/bin/wgrad

echo "== $package with what it depends on"
depends=$(dpkg-deb -f "$package" Depends)
echo "Depends: $depends"
mapfile -t names < <(tr ',' '\n' <<<"$depends" | sed 's/^ *//; s/[ |].*//')
unpack "$work/deb" "${names[@]}"
dpkg-deb -x "$package" "$work/deb"
use "$work/deb" /usr/bin/wgrad

echo "== apt"
apt-get install --simulate -q "$(realpath "$package")" | grep -E '^Inst wgrad'
echo "both packages run"
