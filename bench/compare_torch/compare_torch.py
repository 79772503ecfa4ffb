#!/usr/bin/env python3
"""Times training steps of wgrad and of PyTorch + peft on one device, with random weights.

Prints a JSON line a case and program, then tables of tokens/s and memory with their ratios.
See README.md beside this file.
"""
import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import agreement
import tables
from settings import HERE, METHODS, SHAPES, WGRAD, shape_config

UNIT_TOKENS = 256
MOST_TOKENS = 1 << 18


class Worker:
    """A process of torch_steps.py; its answers come one a line, each within a time limit."""

    def __init__(self, options, what, config, method, cases, log):
        command = [options.python, os.path.join(HERE, "torch_steps.py"), what, "--config", config,
                   "--method", method, "--device", options.torch_device, "--rank",
                   str(options.rank), "--adapter", options.adapter, "--full-weights",
                   options.full_weights, "--steps", str(options.steps), "--cases",
                   json.dumps(cases)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def answer(self, seconds):
        try:
            result = self.lines.get(timeout=seconds)
        except queue.Empty:
            result = {"error": "time limit"}
        return result or {"error": f"ended with {self.process.wait()}"}

    def end(self):
        self.process.kill()
        self.process.wait()


def torch_results(options, what, config, method, cases, log):
    """An answer a case; after a failure that ends the process, the rest goes to a new one."""
    remaining = list(cases)
    while remaining:
        worker = Worker(options, what, config, method, remaining, log)
        answered = 0
        try:
            while remaining:
                result = worker.answer(options.limit)
                case = remaining.pop(0)
                yield case, result
                if result.get("error", "out of memory") != "out of memory":
                    break
                answered += 1
        finally:
            worker.end()
        if answered == 0:
            for case in remaining:
                yield case, result
            return


def run_wgrad(options, arguments, log):
    """The JSON of `wgrad bench`, or how it failed."""
    command = [options.wgrad, "bench", "--device", options.wgrad_device, "--rank",
               str(options.rank), "--step-only", "--json", *arguments]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"error": "time limit"}
    log.write(run.stderr)
    if run.returncode != 0:
        return {"error": run.stderr.strip()[-300:] or f"ended with {run.returncode}"}
    return json.loads(run.stdout)


def wgrad_speed(options, case, log):
    answer = run_wgrad(options, [
        "--shape", case["model"], "--method", case["method"], "--rows", str(case["rows"]),
        "--tokens", str(case["tokens_a_row"]), "--recompute", case["recompute"], "--steps",
        str(options.steps)], log)
    return answer.get("step", answer)


def wgrad_longest(options, case, log):
    """The longest row whose planned memory is within the limit."""
    def fit(units):
        answer = run_wgrad(options, ["--plan", "--shape", case["model"], "--method",
                                     case["method"], "--rows", "1", "--tokens",
                                     str(units * case["unit"]), "--recompute", "block"], log)
        return answer.get("peak_memory_bytes", float("inf")) <= case["limit_bytes"]

    low, high = 0, case["most"] // case["unit"] + 1
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    return {"tokens": low * case["unit"]}


class Results:
    """Keeps every result; a short line of each goes to standard output, all of it to a file."""

    def __init__(self, path):
        self.all = []
        self.file = open(path, "a", encoding="utf-8") if path else None

    def add(self, program, case, result):
        whole = {"program": program, **case, **result}
        self.all.append(whole)
        if self.file:
            self.file.write(json.dumps(whole) + "\n")
            self.file.flush()
        print(json.dumps({key: value for key, value in whole.items() if key != "kernels"}),
              flush=True)


def speed_cases(options, model, method):
    return [{"what": "speed", "model": model, "method": method, "recompute": recompute,
             "rows": max(1, options.tokens // length), "tokens_a_row": length}
            for recompute in options.recompute for length in options.lengths]


def is_late(options):
    return time.monotonic() > options.end


def compare_speed(options, model, method, config, results, log):
    cases = speed_cases(options, model, method)
    if "torch" in options.programs:
        for case, result in torch_results(options, "speed", config, method, cases, log):
            results.add("torch", case, result)
    if "wgrad" in options.programs:
        for case in cases:
            if not is_late(options):
                results.add("wgrad", case, wgrad_speed(options, case, log))


def compare_longest(options, model, method, config, results, log):
    most = min(MOST_TOKENS, shape_config(options.wgrad, model)["max_position_embeddings"])
    cases = [{"what": "fit", "model": model, "method": method, "gigabytes": size,
              "limit_bytes": int(size * 1e9), "unit": UNIT_TOKENS, "most": most}
             for size in options.fit]
    if "wgrad" in options.programs:
        for case in cases:
            results.add("wgrad", case, wgrad_longest(options, case, log))
    if "torch" in options.programs:
        for case, result in torch_results(options, "fit", config, method, cases, log):
            results.add("torch", case, result)


def compare(options, results, work, log):
    for model in options.models:
        config = os.path.join(work, model)
        os.mkdir(config)
        with open(os.path.join(config, "config.json"), "w", encoding="utf-8") as out:
            json.dump(shape_config(options.wgrad, model), out)
        methods = [method for method in options.methods
                   if method != "full" or model in options.full_models]
        for method in methods:
            if is_late(options):
                print(f"{model} {method}: left out, the time of --budget is used up", flush=True)
                continue
            if options.lengths:
                compare_speed(options, model, method, config, results, log)
            if options.fit:
                compare_longest(options, model, method, config, results, log)
        if options.agree and not is_late(options):
            for program, case, result in agreement.compare(options, model, methods, log):
                results.add(program, case, result)


def words(allowed):
    def parse(text):
        chosen = [word for word in text.split(",") if word]
        for word in chosen:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f'"{word}" is none of {", ".join(allowed)}')
        return chosen
    return parse


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=words(SHAPES), default=SHAPES, metavar="A,B")
    parser.add_argument("--methods", type=words(METHODS), default=METHODS, metavar="A,B")
    parser.add_argument("--full-models", type=words(SHAPES), default=SHAPES[:2], metavar="A,B",
                        help="the models that method full is run for")
    parser.add_argument("--lengths", type=numbers, default=[512, 2048, 8192], metavar="N,N",
                        help="tokens a row; empty: no speed")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a step")
    parser.add_argument("--recompute", type=words(["none", "block"]), default=["none", "block"],
                        metavar="A,B", help="block: PyTorch's gradient checkpointing")
    parser.add_argument("--steps", type=int, default=5, help="steps timed")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--fit", type=numbers, default=[], metavar="GB,GB",
                        help="find the longest row in so much memory")
    parser.add_argument("--agree", action="store_true", help="compare the losses of 5 steps")
    parser.add_argument("--agree-layers", type=int, default=2)
    parser.add_argument("--programs", type=words(["torch", "wgrad"]), default=["torch", "wgrad"])
    parser.add_argument("--adapter", choices=["f32", "bf16"], default="f32",
                        help="PyTorch's adapter: peft's default under autocast, or bf16 alone")
    parser.add_argument("--full-weights", choices=["f32", "bf16"], default="f32",
                        help="PyTorch's weights in full fine-tuning: f32 under autocast, or bf16")
    parser.add_argument("--limit", type=float, default=180, help="seconds a case")
    parser.add_argument("--budget", type=float, default=1e9,
                        help="seconds after which nothing new is begun")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--wgrad", default=WGRAD)
    parser.add_argument("--python", default=sys.executable, help="one with torch and peft")
    parser.add_argument("--json", help="file that every result is added to")
    parser.add_argument("--log", default=os.path.join(tempfile.gettempdir(),
                                                      "wgrad-compare-torch.log"))
    parser.add_argument("--tables", nargs="+", metavar="FILE",
                        help="only print the tables of files written by --json")
    options = parser.parse_args()
    options.end = time.monotonic() + options.budget
    options.wgrad_device = options.device
    options.torch_device = "cuda" if options.device == "gpu" else "cpu"
    if options.fit and options.device == "cpu":
        parser.error("--fit needs a GPU: PyTorch cannot limit its memory on the CPU")
    return options


def main():
    options = parse_options()
    if options.tables:
        tables.show(tables.read(options.tables))
        return
    results = Results(options.json)
    with tempfile.TemporaryDirectory(prefix="wgrad-compare-torch-") as work, \
            open(options.log, "w", encoding="utf-8") as log:
        compare(options, results, work, log)
    tables.show(results.all)
    sys.exit(0 if tables.all_agree(results.all) else 1)


if __name__ == "__main__":
    main()
