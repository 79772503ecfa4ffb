#!/usr/bin/env python3
"""Trains the same rows from the same adapter with wgrad and with PyTorch + peft, on the CPU.

Prints tokens/s and peak memory of both with their ratios, and the losses, which must agree.
See README.md beside this file.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Steps whose time is not counted: first use of memory, caches and kernels chosen at run time.
WARM_STEPS = 2
# Relative difference of a step's losses that float32 sums in another order may reach.
LOSS_TOLERANCE = 2e-4

PEOPLE = ["the miller", "a ferryman", "my neighbour", "the night nurse", "an old teacher",
          "the clockmaker", "a young baker", "the lighthouse keeper"]
VERBS = ["repaired", "carried", "painted", "sold", "measured", "found", "borrowed", "counted"]
THINGS = ["a wooden boat", "seven lanterns", "the broken gate", "a basket of pears",
          "the church bell", "two iron wheels", "an unread letter", "the last map"]
PLACES = ["by the river", "behind the market", "in the attic", "on the north road",
          "under the bridge", "near the station", "at the mill", "beside the harbour"]
TIMES = ["before breakfast", "in the rain", "on a Sunday", "after the storm", "late in March",
         "while nobody looked", "for the third time", "without a word"]


def rows_of_text(count):
    """Plain sentences, about 100 tokens a row; the same ones on every machine."""
    draw = random.Random(20)
    for _ in range(count):
        sentences = []
        for _ in range(draw.randint(6, 7)):
            sentence = " ".join(draw.choice(words)
                                for words in (PEOPLE, VERBS, THINGS, PLACES, TIMES))
            sentences.append(sentence[0].upper() + sentence[1:] + ".")
        yield {"text": " ".join(sentences)}


def measured(command, environment, log):
    """Runs to the end; returns standard output and the peak resident bytes of that process."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"error: {command[0]} ended with {process.returncode}; see {log.name}")
        out.seek(0)
        return out.read(), usage.ru_maxrss * 1024


def checked(command, log, **more):
    if subprocess.run(command, stderr=log, **more).returncode != 0:
        sys.exit(f"error: {command[0]} failed; see {log.name}")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def speed(steps):
    tokens = sum(s["tokens"] for s in steps[WARM_STEPS:])
    return tokens / (steps[-1]["seconds"] - steps[WARM_STEPS - 1]["seconds"])


def prepare(options, work, environment, log):
    """The rows, their token ids by wgrad, the float32 base and the adapter both start from."""
    paths = {name: os.path.join(work, name)
             for name in ("rows.jsonl", "ids.jsonl", "base", "adapter")}
    with open(paths["rows.jsonl"], "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows_of_text(options.rows * 8))
    with open(paths["ids.jsonl"], "w", encoding="utf-8") as out:
        checked([options.wgrad, "data", "--model", options.model, "--data", paths["rows.jsonl"],
                 "--json"], log, stdout=out)
    checked([options.python, os.path.join(HERE, "torch_lora.py"), "prepare", "--gguf",
             options.model, "--rank", str(options.rank), "--base", paths["base"], "--adapter",
             paths["adapter"]], log, stdout=log, env=environment)
    return paths


def run_wgrad(options, paths, out, environment, log):
    _, peak = measured(
        [options.wgrad, "train", "--model", options.model, "--data", paths["rows.jsonl"], "--out",
         out, "--init-adapter", paths["adapter"], "--rank", str(options.rank), "--alpha",
         str(2 * options.rank), "--batch-size", str(options.rows), "--steps", str(options.steps),
         "--lr", str(options.lr), "--schedule", "constant", "--warmup-steps", "0", "--no-shuffle",
         "--device", "cpu", "--dtype", "f32"], environment, log)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
        return [s for s in json_lines(lines.read()) if "loss" in s], peak


def run_torch(options, paths, environment, log):
    text, peak = measured(
        [options.python, os.path.join(HERE, "torch_lora.py"), "train", "--ids", paths["ids.jsonl"],
         "--base", paths["base"], "--adapter", paths["adapter"], "--rows", str(options.rows),
         "--steps", str(options.steps), "--threads", str(options.threads), "--lr",
         str(options.lr)], environment, log)
    return json_lines(text), peak


def report(wgrad_runs, torch_runs, tokens_a_step):
    ours, theirs = wgrad_runs[-1][0], torch_runs[-1][0]
    print("step      wgrad    PyTorch   relative difference")
    worst = 0.0
    for a, b in zip(ours, theirs):
        difference = abs(a["loss"] - b["loss"]) / abs(b["loss"])
        worst = max(worst, difference)
        print(f"{a['step']:4}  {a['loss']:9.6f}  {b['loss']:9.6f}   {difference:.1e}")
    ours = statistics.median(speed(steps) for steps, _ in wgrad_runs)
    theirs = statistics.median(speed(steps) for steps, _ in torch_runs)
    our_peak = max(peak for _, peak in wgrad_runs)
    their_peak = max(peak for _, peak in torch_runs)
    print(f"\ntokens a step            {tokens_a_step:10.1f}")
    print(f"                              wgrad    PyTorch   wgrad / PyTorch")
    print(f"tokens/s                 {ours:10.1f} {theirs:10.1f}   {ours / theirs:.3f}")
    print(f"peak resident memory, MB {our_peak / 1e6:10.0f} {their_peak / 1e6:10.0f}   "
          f"{our_peak / their_peak:.3f}")
    print(f"worst difference of a loss  {worst:.1e} (allowed {LOSS_TOLERANCE:.0e})")
    return worst <= LOSS_TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wgrad", default=os.path.join(ROOT, "build", "wgrad"))
    parser.add_argument("--model", default=os.path.join(ROOT, "build", "models",
                                                        "smollm2-135m-instruct.gguf"))
    parser.add_argument("--python", default=sys.executable,
                        help="one with torch, transformers, peft and gguf")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=4, help="rows a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, in turn; the median")
    options = parser.parse_args()
    if options.steps <= WARM_STEPS:
        parser.error(f"--steps must be more than {WARM_STEPS}")
    for path in (options.wgrad, options.model):
        if not os.path.exists(path):
            parser.error(f"{path} is missing; `make build` makes the program, "
                         "tools/fetch-smollm2.sh build/models fetches the model")
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads),
                       MKL_NUM_THREADS=str(options.threads), CUDA_VISIBLE_DEVICES="")

    with tempfile.TemporaryDirectory(prefix="wgrad-compare-") as work, \
            open(os.path.join(tempfile.gettempdir(), "wgrad-compare.log"), "w",
                 encoding="utf-8") as log:
        paths = prepare(options, work, environment, log)
        wgrad_runs, torch_runs = [], []
        for number in range(options.repeat):
            out = os.path.join(work, f"run-{number}")
            wgrad_runs.append(run_wgrad(options, paths, out, environment, log))
            torch_runs.append(run_torch(options, paths, environment, log))
    steps = wgrad_runs[0][0]
    if [s["tokens"] for s in steps] != [s["tokens"] for s in torch_runs[0][0]]:
        sys.exit("error: the two did not see the same rows")
    print(f"{options.threads} threads, {options.rows} rows a step, rank {options.rank}, "
          f"{options.steps} steps, {options.repeat} runs of each")
    agreed = report(wgrad_runs, torch_runs, sum(s["tokens"] for s in steps) / len(steps))
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
