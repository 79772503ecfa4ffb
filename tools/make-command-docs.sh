#!/usr/bin/env bash
# Writes what `wgrad COMMAND --help` prints into docs/commands, a page a command; what stands in a page
# above the marker is kept.
# usage: tools/make-command-docs.sh PROGRAM      (`make command-docs` builds it and runs this)
set -euo pipefail

wgrad=${1:?usage: tools/make-command-docs.sh PROGRAM}
folder=$(cd "$(dirname "$0")/.." && pwd)/docs/commands
marker='<!-- From here on the text is what the program prints: `make command-docs` renews it. -->'

# The subcommands that the help text names, each with its description.
subcommands() {
  "$wgrad" "$@" --help |
    awk '/^[^ ]/ { listed = /^Subcommands:/ } listed && /^  [^ ]/ { $1 = $1; print }'
}

block() {
  printf '```text\n'
  "$wgrad" "$@" --help
  printf '```\n'
}

# page FILE HEADING DESCRIPTION: what stands above the marker, or the beginning of a new page.
head_of() {
  if [[ -e $1 ]]; then
    awk -v marker="$marker" '$0 == marker { exit } { print }' "$1"
  else
    printf '# %s\n\n%s.\n\n' "$2" "$3"
  fi
  printf '%s\n\n' "$marker"
}

mkdir -p "$folder"
page=$folder/README.md
{
  head_of "$page" 'Commands' 'A page a command'
  while read -r name description; do
    printf -- '- [wgrad %s](%s.md): %s\n' "$name" "$name" "$description"
  done < <(subcommands)
  printf '\n'
  block
} >"$page.new"
mv "$page.new" "$page"

while read -r name description; do
  page=$folder/$name.md
  {
    head_of "$page" "wgrad $name" "$description"
    block "$name"
    while read -r part _; do
      printf '\n## wgrad %s %s\n\n' "$name" "$part"
      block "$name" "$part"
    done < <(subcommands "$name")
  } >"$page.new"
  mv "$page.new" "$page"
done < <(subcommands)
