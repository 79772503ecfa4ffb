#!/usr/bin/env bash
# Fine-tunes SmolLM2-135M-Instruct on examples/demo and asks it the same questions before and after.
# usage: tools/demo.sh BUILD_FOLDER      (the folder that holds the program; `make demo` runs this)
# Exits with 1 if the loss did not fall by more than half or an answer stayed as it was.
set -euo pipefail

build=${1:?usage: tools/demo.sh BUILD_FOLDER}
here=$(cd "$(dirname "$0")/.." && pwd)
wgrad=$build/wgrad
data=$here/examples/demo/train.jsonl
model=$build/models/smollm2-135m-instruct.gguf
# The first question is one of the examples; the second asks in other words than they do.
questions=("Who are you?" "What are your opening hours?")

if [[ ! -x $wgrad ]]; then
  echo "error: $wgrad is missing; run: make build BUILD=$build" >&2
  exit 1
fi
started=$SECONDS
"$here/tools/fetch-smollm2.sh" "$build/models"

# Every run has a folder of its own, so that an earlier one stays.
number=1
while [[ -e $build/demo/run-$number ]]; do number=$((number + 1)); done
out=$build/demo/run-$number
mkdir -p "$build/demo"

say() { printf '\n== %s\n' "$*"; }
# The answer alone; what generate says of its speed stays aside.
ask() {
  local messages=$build/demo/messages
  "$wgrad" generate --model "$model" --temperature 0 --max-tokens 32 "$@" 2>"$messages" || {
    cat "$messages" >&2
    return 1
  }
}
loss() {
  local result
  result=$("$wgrad" eval --model "$model" --data "$data" --json "$@") || return
  python3 -c 'import json, sys; print("%.4f" % json.loads(sys.argv[1])["loss"])' "$result"
}

say "before: SmolLM2-135M-Instruct as it comes"
before=()
for question in "${questions[@]}"; do
  before+=("$(ask --prompt "$question")")
  printf 'Q: %s\nA: %s\n' "$question" "${before[-1]}"
done
first=$(loss)
echo "loss on the examples: $first"

log_every=1
[[ -t 2 ]] || log_every=12
say "training a LoRA adapter on the $(wc -l <"$data") rows of examples/demo/train.jsonl"
"$wgrad" train --model "$model" --data "$data" --out "$out" --device auto \
  --method lora --rank 16 --batch-size 2 --epochs 7 --lr 1e-3 --log-every $log_every

say "after: the same questions with the adapter"
unchanged=0
for i in "${!questions[@]}"; do
  after=$(ask --adapter "$out" --prompt "${questions[i]}")
  printf 'Q: %s\nA: %s\n' "${questions[i]}" "$after"
  [[ $after != "${before[i]}" ]] || unchanged=1
done
last=$(loss --adapter "$out")

say "result"
python3 - "$out" "$first" "$last" <<'RESULT'
import json, os, sys
out, first, last = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
    steps = [row for row in map(json.loads, lines) if "loss" in row]
end = steps[-1]
print(f"loss on the examples  {first:.4f} -> {last:.4f} ({last / first:.0%} of it)")
print(f"training              {end['step']} steps, {end['total_tokens']} tokens in "
      f"{end['seconds']:.0f} s: {end['total_tokens'] / end['seconds']:.0f} tokens/s, "
      f"{end['peak_memory_bytes'] / 1e6:.0f} MB")
for name in sorted(os.listdir(out)):
    path = os.path.join(out, name)
    if os.path.isfile(path):
        print(f"{os.path.getsize(path):12,} bytes  {path}")
RESULT
echo "all of it took $((SECONDS - started)) s"

fell='import sys; sys.exit(not 2 * float(sys.argv[2]) < float(sys.argv[1]))'
if ! python3 -c "$fell" "$first" "$last"; then
  echo "error: the loss did not fall by more than half: it went from $first to $last" >&2
  exit 1
fi
if ((unchanged)); then
  echo "error: an answer stayed as it was; the adapter in $out changed nothing" >&2
  exit 1
fi

say "next"
cat <<NEXT
talk to it          $wgrad chat --model $model --adapter $out
train on your rows  $wgrad train --model $model --data YOUR.jsonl --out my-run
see what counts     $wgrad data --model $model --data ${data#"$PWD"/} --limit 2
load it in Python   peft.PeftModel.from_pretrained(model, "$out")
NEXT
