"""Trains one small random model with wgrad and with PyTorch and compares the losses.

The model has a shape's width, few of its layers, random bf16 weights, and a tokenizer of a word a
token. Both start from one adapter and see the same rows.
"""
import json
import os
import random
import subprocess
import tempfile

from settings import COMPARE_CPU, HERE, shape_config

from compare_cpu import LOSS_TOLERANCE, json_lines

STEPS = 5
ROWS = 4
WORDS = 128
RATES = {"lora": 1e-3, "qlora": 1e-3, "full": 1e-4}


class Failure(Exception):
    pass


def output(options, command, log):
    name = " ".join(command[:3])
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True,
                             timeout=options.limit)
    except subprocess.TimeoutExpired:
        raise Failure(f"{name}: time limit") from None
    if run.returncode != 0:
        raise Failure(f"{name} ended with {run.returncode}; see {log.name}")
    return run.stdout


def prepare(options, model, work, log):
    config = shape_config(options.wgrad, model)
    config["num_hidden_layers"] = options.agree_layers
    paths = {name: os.path.join(work, name)
             for name in ("base", "adapter", "rows.jsonl", "ids.jsonl")}
    os.mkdir(paths["base"])
    with open(os.path.join(paths["base"], "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    output(options, [options.python, os.path.join(HERE, "random_model.py"), "--base", paths["base"],
                     "--adapter", paths["adapter"], "--rank", str(options.rank)], log)
    draw = random.Random(20)
    with open(paths["rows.jsonl"], "w", encoding="utf-8") as out:
        for _ in range(ROWS):
            ids = [draw.randrange(3, config["vocab_size"]) for _ in range(WORDS)]
            out.write(json.dumps({"text": " ".join(f"w{i}" for i in ids)}) + "\n")
    with open(paths["ids.jsonl"], "w", encoding="utf-8") as out:
        out.write(output(options, [options.wgrad, "data", "--model", paths["base"], "--data",
                                   paths["rows.jsonl"], "--json"], log))
    return paths


def wgrad_losses(options, method, paths, out, log):
    command = [options.wgrad, "train", "--model", paths["base"], "--data", paths["rows.jsonl"],
               "--out", out, "--method", method, "--batch-size", str(ROWS), "--steps", str(STEPS),
               "--lr", str(RATES[method]), "--schedule", "constant", "--warmup-steps", "0",
               "--weight-decay", "0", "--no-shuffle", "--device", options.wgrad_device]
    if method != "full":
        command += ["--init-adapter", paths["adapter"], "--rank", str(options.rank), "--alpha",
                    str(2 * options.rank)]
    output(options, command, log)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
        return [line["loss"] for line in json_lines(lines.read()) if "loss" in line]


def torch_losses(options, method, dtype, paths, log):
    command = [options.python, os.path.join(COMPARE_CPU, "torch_lora.py"), "train", "--ids",
               paths["ids.jsonl"], "--base", paths["base"], "--adapter", paths["adapter"],
               "--rows", str(ROWS), "--steps", str(STEPS), "--lr", str(RATES[method]), "--method",
               method, "--device", options.torch_device, "--dtype", dtype, "--weight-decay", "0"]
    text = output(options, command, log)
    return [line["loss"] for line in json_lines(text)]


def worst_difference(losses, reference):
    if len(losses) != len(reference):
        return float("inf")
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference))


def compare_method(options, method, paths, log):
    """(program, result) of each run. Judged is wgrad against PyTorch in float32: it may be as far
    off as PyTorch in bf16 is, or as sums in another order."""
    try:
        exact = torch_losses(options, method, "f32", paths, log)
        rounded = torch_losses(options, method, "bf16", paths, log)
        ours = wgrad_losses(options, method, paths, paths["run-" + method], log)
    except Failure as failure:
        return [("wgrad", {"error": str(failure)})]
    rounding, difference = worst_difference(rounded, exact), worst_difference(ours, exact)
    allowed = max(LOSS_TOLERANCE, rounding)
    return [("torch f32", {"losses": exact}),
            ("torch", {"losses": rounded, "difference": rounding}),
            ("wgrad", {"losses": ours, "difference": difference, "allowed": allowed,
                       "agrees": difference <= allowed})]


def compare(options, model, methods, log):
    """(program, case, result) of every run of the methods, from one start."""
    case = {"what": "agree", "model": model}
    with tempfile.TemporaryDirectory(prefix="wgrad-agree-") as work:
        try:
            paths = prepare(options, model, work, log)
        except Failure as failure:
            yield "wgrad", {**case, "method": "preparation"}, {"error": str(failure)}
            return
        for method in methods:
            paths["run-" + method] = os.path.join(work, "run-" + method)
            for program, result in compare_method(options, method, paths, log):
                yield program, {**case, "method": method}, result
