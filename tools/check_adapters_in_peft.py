#!/usr/bin/env python3
"""Loads adapters that wgrad has trained into peft and compares what both compute with them.

Needs torch, transformers and peft.
    python3 tools/check_adapters_in_peft.py build/wgrad tests/data/models

For each kind of adapter: `wgrad train` for some steps on a tiny model, PeftModel.from_pretrained,
and the loss of each row by `wgrad eval --per-row` beside PyTorch's of the logits; then the same for
the folder that `wgrad merge` writes, loaded by transformers. Exits with 1 where one differs by more
than 1e-5 relative, or where peft misses a tensor.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

BOUND = 1e-5
EOS = 2
# Name: the model and the options of wgrad train.
CASES = {
    "lora": ("llama3", []),
    "rslora": ("qwen3", ["--rslora"]),
    "dora": ("qwen2", ["--dora", "--dropout", "0.1"]),
    "dora and lm_head": ("llama2", ["--dora", "--targets", "all-linear,lm_head"]),
    "embed_tokens and lm_head": ("llama2", ["--targets", "embed_tokens,lm_head,q_proj"]),
    "embed_tokens, tied": ("smollm2", ["--targets", "embed_tokens,v_proj"]),
    "lm_head, tied": ("smollm2", ["--targets", "lm_head,v_proj"]),
    "modules to save": ("mistral", ["--modules-to-save", "embed_tokens,lm_head,norm"]),
    "modules to save, tied": ("qwen3", ["--modules-to-save", "embed_tokens,q_norm"]),
    "patterns": ("llama3", ["--rank-pattern", "q_proj=2,layers.[01].mlp.up_proj=5",
                            "--alpha-pattern", "down_proj=9,v_proj=2.5"]),
    "blocks": ("llama3", ["--layers-to-transform", "0,2", "--exclude-modules", "0.mlp.up_proj"]),
    "an expression": ("llama3", ["--target-regex", r".*\.1\.(self_attn|mlp)\.(q|down)_proj"]),
    "full names": ("llama3", ["--targets", "model.layers.1.mlp.up_proj,model.layers.0.mlp"
                                           ".down_proj"]),
    "dora with patterns and saved norms": (
        "qwen2", ["--dora", "--rslora", "--rank-pattern", "q_proj=2", "--modules-to-save", "norm"]),
    "dora, fused": ("phi3", ["--dora", "--modules-to-save", "0.mlp.gate_up_proj",
                             "--exclude-modules", "0.mlp.gate_up_proj"]),
    "beside a vision model": ("gemma3_whole", []),
    "dora and saved norms beside a vision model": (
        "gemma3_whole", ["--dora", "--modules-to-save", "norm", "--exclude-modules", "k_proj"]),
    "blocks beside a vision model": (
        "gemma3_whole", ["--targets", "q_proj,v_proj", "--layers-to-transform", "1"]),
}
TRAINED = [([5, 9, 17], [9, 30, 41]), ([37, 3], [12]), ([8, 8, 50, 31], [22, 4, 45, 7])]
# Others than are trained on, whose losses do not vanish.
ROWS = [([9, 17, 5], [41, 9]), ([3, 37, 12], [30, 8, 22]), ([50, 31], [5, 45, 4])]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def write_rows(path, those):
    words = [" ".join(f"w{i}" for i in part) for row in those for part in row]
    rows = [{"prompt": p, "completion": " " + c} for p, c in zip(words[::2], words[1::2])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def torch_losses(model):
    losses = []
    model.eval()
    for prompt, completion in ROWS:
        ids = torch.tensor([prompt + completion + [EOS]])
        with torch.no_grad():
            logits = model(ids).logits[0]
        first = len(prompt)
        losses.append(torch.nn.functional.cross_entropy(logits[first - 1:-1],
                                                        ids[0, first:]).item())
    return losses


def wgrad_losses(wgrad, rows, model, adapter):
    adapter = ["--adapter", adapter] if adapter else []
    out = run(wgrad, "eval", "--model", model, *adapter, "--data", rows, "--device", "cpu",
              "--dtype", "f32", "--per-row", "--json")
    return [json.loads(line)["loss"] for line in out.splitlines() if '"row"' in line]


def load_base(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                attn_implementation="eager")


def load_adapter(base, adapter):
    """Fails where peft finds no place for a tensor, or no tensor for a place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        model = PeftModel.from_pretrained(load_base(base), adapter)
    places = {name.replace(".default", "").replace(".modules_to_save.", ".")
              .replace("magnitude_vector.weight", "magnitude_vector")
              for name, _ in model.named_parameters()
              if "lora_" in name or "modules_to_save" in name}
    stored = set(load_file(pathlib.Path(adapter) / "adapter_model.safetensors"))
    if places != stored:
        sys.exit(f"{adapter}: in one of peft and the file alone: {sorted(places ^ stored)}")
    return model


def worst(a, b):
    return max(abs(x / y - 1) for x, y in zip(a, b, strict=True))


def main():
    wgrad, models = sys.argv[1], pathlib.Path(sys.argv[2])
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write_rows(place / "rows.jsonl", ROWS)
        write_rows(place / "train.jsonl", TRAINED)
        for i, (name, (model, options)) in enumerate(CASES.items()):
            base, out, merged = models / model, place / f"run{i}", place / f"merged{i}"
            run(wgrad, "train", "--model", base, "--data", place / "train.jsonl", "--out", out,
                "--device", "cpu", "--dtype", "f32", "--steps", "8", "--rank", "4", "--lr", "0.01",
                *options)
            ours = wgrad_losses(wgrad, place / "rows.jsonl", base, out)
            plain = wgrad_losses(wgrad, place / "rows.jsonl", base, None)
            adapted = worst(ours, torch_losses(load_adapter(base, out)))
            run(wgrad, "merge", "--model", base, "--adapter", out, "--out", merged)
            whole = worst(ours, torch_losses(load_base(merged)))
            learned = worst(plain, ours)
            good = adapted <= BOUND and whole <= BOUND and learned > 1e-2
            failed |= not good
            print(f"{'ok  ' if good else 'FAIL'} {name}: peft {adapted:.1e}, merged {whole:.1e}, "
                  f"trained by {learned:.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
