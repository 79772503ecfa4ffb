#!/usr/bin/env python3
"""Writes runs of tests/data/models: what peft computes for each kind of adapter.

Needs torch, transformers, peft, bitsandbytes, tokenizers, safetensors, gguf and numpy, and the
models that make_model_goldens.py has written.
    python3 tools/goldens/make_adapter_goldens.py tests/data/models [RUN ...]

runs/NAME holds train.jsonl, adapter/ and run.json as make_model_goldens.py describes them, and
expected.safetensors: the adapter's tensors after the steps ("final.KEY"), the `ids` of one row with
its `logits` (that of the adapter at the start) and `merged_logits` (of merge_and_unload).
"""

import json
import pathlib
import sys

import numpy as np
import torch
from make_model_goldens import (counted, make_optimizer, make_schedule, options_of, quantize_base,
                                row_losses, run_rows)
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tiny_models import DEFAULTS, FUSED, STEPS, vocabulary
from transformers import AutoModelForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
COMMON = dict(method="lora", lr=2e-3, schedule="cosine", batch_size=2, grad_accum=1)

# The settings of a run, and of peft's LoraConfig beyond rank, alpha and targets.
RUNS = {
    "dora_qwen2": (dict(model="qwen2", rank=3, alpha=5, grad_accum=2), dict(use_dora=True), ALL),
    "qdora_llama3": (dict(model="llama3", method="qlora", rank=4, alpha=8, rslora=True),
              dict(use_dora=True), ["q_proj", "v_proj", "gate_proj", "down_proj"]),
    "embeddings_llama2": (dict(model="llama2", rank=4, alpha=8), {}, ["embed_tokens", "q_proj", "lm_head"]),
    "dora_head_llama2": (dict(model="llama2", rank=2, alpha=3), dict(use_dora=True), ["lm_head"]),
    "saved_mistral": (dict(model="mistral", rank=2, alpha=4),
              dict(modules_to_save=["embed_tokens", "lm_head", "norm", "1.mlp.up_proj"]),
              ["q_proj", "up_proj"]),
    "saved_qwen3": (dict(model="qwen3", rank=2, alpha=4),
                   dict(modules_to_save=["embed_tokens", "q_norm"]), ["v_proj"]),
    "patterns_qwen3": (dict(model="qwen3", rank=3, alpha=5, rslora=True),
                 dict(rank_pattern={"q_proj": 2, r".*1\.mlp\.down_proj": 5},
                      alpha_pattern={"down_proj": 9, "self_attn.q_proj": 2.5},
                      exclude_modules=["0.self_attn.v_proj"]),
                 r"model\.layers\.\d\.(self_attn|mlp)\.(q|v|down|gate)_proj"),
    "layers_llama3": (dict(model="llama3", rank=4, alpha=8),
               dict(layers_to_transform=[1], layers_pattern="layers"), ["q_proj", "o_proj", "up_proj"]),
    "dora_phi3": (dict(model="phi3_wide", rank=4, alpha=7), dict(use_dora=True), FUSED),
    "saved_phi3": (dict(model="phi3", rank=4, alpha=7),
                   dict(modules_to_save=["0.self_attn.qkv_proj", "1.mlp.gate_up_proj", "norm"]),
                   ["qkv_proj", "gate_up_proj"]),
    "saved_gemma3_whole": (
        dict(model="gemma3_whole", rank=4, alpha=7, rslora=True),
        dict(use_dora=True, modules_to_save=["model.language_model.norm", "0.mlp.up_proj"],
             exclude_modules=r".*(vision_tower|multi_modal_projector)\..*"),
        ["q_proj", "down_proj", "up_proj"]),
}
HALVES = ["embed_tokens.weight", "lm_head.weight"]  # stored in f16 in adapter/


def randomize(model, seed):
    """Matrices that begin at zero become random, and DoRA's lengths leave those of the weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name:
                p.copy_(0.2 * torch.randn(p.shape, generator=generator))
            if "lora_magnitude_vector" in name:
                p.mul_(1.0 + 0.2 * torch.randn(p.shape, generator=generator))
            if "modules_to_save" in name:
                p.mul_(1.0 + 0.1 * torch.randn(p.shape, generator=generator))
                if p.dim() == 2:
                    p.copy_(p.half().float())


def save_start(model, folder):
    """As PEFT writes it, but for wide tensors, which are f16 exactly."""
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "tiny"
    for key in ["target_modules", "exclude_modules"]:
        if isinstance(config[key], list):
            config[key] = sorted(config[key])
    path.write_text(json.dumps(config, indent=1) + "\n")
    tensors = load_file(folder / "adapter_model.safetensors")
    for name, value in tensors.items():
        if any(name.endswith(wide) for wide in HALVES):
            tensors[name] = value.half()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def load_base(path, quantized):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                 attn_implementation="eager")
    if quantized:
        quantize_base(model)
    return model


def train(model, s, rows):
    per_step = s["batch_size"] * s["grad_accum"]
    optimizer = make_optimizer(model, s)
    schedule = make_schedule(optimizer, s)
    steps = []
    for step in range(STEPS):
        batch = rows[step * per_step:(step + 1) * per_step]
        total, loss = counted(batch), 0.0
        optimizer.zero_grad()
        for ids, labels in batch:
            part = row_losses(model(torch.tensor([ids])).logits[0], labels) / total
            part.backward()
            loss += part.item()
        trained = [p for p in model.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(trained, s["max_grad_norm"]).item()
        steps.append({"loss": loss, "grad_norm": norm, "lr": schedule.get_last_lr()[0]})
        optimizer.step()
        schedule.step()
    return steps


def make_run(out, name, seed):
    settings, extra, targets = RUNS[name]
    s = {**DEFAULTS, **COMMON, **settings}
    folder = out / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = get_peft_model(load_base(out / s["model"], s["method"] == "qlora"), LoraConfig(
        r=s["rank"], lora_alpha=s["alpha"], use_rslora=s.get("rslora", False),
        target_modules=targets, task_type="CAUSAL_LM", **extra))
    randomize(model, seed)
    save_start(model, folder / "adapter")

    rng = np.random.default_rng(seed)
    rows, lines = run_rows(rng, s["batch_size"] * s["grad_accum"] * STEPS, vocabulary(s["model"]))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    ids = torch.tensor(rng.integers(3, vocabulary(s["model"]), 11))
    with torch.no_grad():
        tensors = {"ids": ids.int(), "logits": model(ids[None]).logits[0]}
    steps = train(model, s, rows)
    for key, value in get_peft_model_state_dict(model, save_embedding_layers=False).items():
        tensors["final." + key] = value.detach().clone()
    start = load_file(folder / "adapter" / "adapter_model.safetensors")
    with torch.no_grad():
        for key, p in model.named_parameters():
            key = key.replace(".modules_to_save.default.", ".").replace(".default", "")
            key = key.replace("magnitude_vector.weight", "magnitude_vector")
            if p.requires_grad:
                p.copy_(start[key].float())
        if not (model.config.tie_word_embeddings and name.startswith("saved")):
            merged = model.merge_and_unload()
            tensors["merged_logits"] = merged(ids[None]).logits[0]
    save_file(tensors, folder / "expected.safetensors")
    record = {"model": s["model"], "steps": steps, "options": options_of(s)}
    (folder / "run.json").write_text(json.dumps(record, indent=1) + "\n")
    print(name, [round(x["loss"], 4) for x in steps])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = pathlib.Path(sys.argv[1])
    for i, name in enumerate(RUNS):
        if name in (sys.argv[2:] or RUNS):
            make_run(out, name, 300 + i)


if __name__ == "__main__":
    main()
