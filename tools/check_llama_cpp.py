#!/usr/bin/env python3
"""Compares what llama.cpp computes from files of `wgrad export` with transformers and peft.

Needs torch, transformers, peft, and what tools/goldens/make_model_goldens.py imports; g++, the
sources of llama.cpp (for its headers: the PyPI package llama-cpp-python has them in vendor/) and its
libraries of the same version (the npm package @node-llama-cpp/linux-x64 has them in bins/).
    python3 tools/check_llama_cpp.py build/wgrad SOURCES LIBRARIES [NAME ...]

For each family a tiny random model with every peculiarity that llama.cpp has, as f32: the logits of
every position of a row, of the model, of model and adapter merged, and of the model with the adapter
alone beside it. Exits with 1 where one differs by more than the bound.
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from peft import LoraConfig, get_peft_model

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "goldens"))
from make_model_goldens import build_model  # noqa: E402
from tiny_models import MODELS, linear_layers  # noqa: E402

WORDS = 700
LENGTH = 48
# Of the largest logit: f32's rounding through a few blocks; where values pass through a table of
# halves, some fall on the other side of the middle between two.
BOUND, TABLE_BOUND = 2e-5, 5e-4
# What llama.cpp has no form for, taken out of the tiny models; None removes a setting.
CHANGES = {
    "gemma2": dict(query_pre_attn_scalar=24),
    "gemma3": dict(query_pre_attn_scalar=24),
    "llama_yarn": dict(rope_scaling=dict(rope_type="yarn", factor=4.0,
                                         original_max_position_embeddings=32)),
    "mistral": dict(sliding_window=None),
    "phi3": dict(sliding_window=None),
    "smollm3": dict(no_rope_layers=None, use_sliding_window=False, num_hidden_layers=5),
}
NAMES = ["gemma2", "gemma3", "granite", "llama2", "llama3", "llama_bias", "llama_yarn", "mistral",
         "olmo2", "phi3", "qwen2", "qwen3", "smollm2", "smollm3"]


def settings_of(name):
    settings = {**MODELS[name], "vocab_size": WORDS, **CHANGES.get(name, {})}
    return {key: value for key, value in settings.items()
            if value is not None or key == "sliding_window"}


class GeluOfHalves(torch.nn.Module):
    """As llama.cpp reads it from a table, between -10 and 10."""

    def forward(self, x):
        y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, 0, torch.where(x >= 10, x, y))


def compile_reader(sources, libraries, folder):
    program = folder / "llama_logits"
    shared = [next(libraries.glob(f"{stem}.*so*")) for stem in ["libllama", "libggml"]]
    subprocess.run(["g++", "-std=c++17", "-O1", HERE / "llama_logits.cc", "-o", program,
                    "-I", sources / "include", "-I", sources / "ggml" / "include", *shared,
                    f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"],
                   check=True)
    return program


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def write_folder(model, folder):
    model.save_pretrained(folder)
    text = HERE.parent / "tests" / "data" / "text" / "smollm_style"
    for file in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(text / file, folder)


def add_adapter(model, name, folder):
    adapted = get_peft_model(model, LoraConfig(
        r=4, lora_alpha=6, target_modules=linear_layers(name), rank_pattern={"down_proj": 3},
        alpha_pattern={"o_proj": 9}))
    with torch.no_grad():
        for key, p in adapted.named_parameters():
            if "lora_B" in key:
                p.normal_(0, 0.5 / math.sqrt(p.shape[1]))
    adapted.save_pretrained(folder)
    return adapted


def check(name, wgrad, reader, libraries, folder):
    model = build_model(settings_of(name), 1).eval()
    if name.startswith("gemma"):
        for layer in model.model.layers:
            layer.mlp.act_fn = GeluOfHalves()
    base, adapter = folder / "base", folder / "adapter"
    write_folder(model, base)
    ids = np.random.default_rng(1).integers(3, WORDS, LENGTH).tolist()
    expected = logits_of(model, ids)
    with_adapter = logits_of(add_adapter(model, name, adapter).eval(), ids)

    def export(out, *options):
        subprocess.run([wgrad, "export", "--model", base, "--out", folder / out, *options], check=True)

    export("base.gguf")
    export("merged.gguf", "--adapter", adapter)
    export("adapter.gguf", "--adapter", adapter, "--adapter-only")
    bound = TABLE_BOUND if name.startswith("gemma") else BOUND
    good = True
    for title, file, beside, right in [("base", "base.gguf", None, expected),
                                       ("merged", "merged.gguf", None, with_adapter),
                                       ("adapter", "base.gguf", "adapter.gguf", with_adapter)]:
        done = subprocess.run([reader, libraries, folder / file, folder / beside if beside else "-",
                               ",".join(map(str, ids))], capture_output=True, check=False)
        if done.returncode != 0:
            print(f"{name:12} {title:8} not read:", done.stderr.decode()[-500:])
            return False
        seen = np.frombuffer(done.stdout, np.float32).reshape(right.shape)
        error = np.abs(seen - right).max() / np.abs(right).max()
        same = (seen.argmax(1) == right.argmax(1)).sum()
        print(f"{name:12} {title:8} {error:.1e} of the largest logit, {same} of {LENGTH} likeliest"
              f" tokens the same{'' if error <= bound else '; TOO MUCH'}")
        good = good and error <= bound
    return good


def main():
    wgrad, sources, libraries = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        reader = compile_reader(sources, libraries, folder)
        good = [check(name, wgrad, reader, libraries, pathlib.Path(tempfile.mkdtemp(dir=folder)))
                for name in sys.argv[4:] or NAMES]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
