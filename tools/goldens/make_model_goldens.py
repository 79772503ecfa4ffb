#!/usr/bin/env python3
"""Writes tests/data/models: tiny random models of each family with what PyTorch computes for them.

Needs torch, transformers, peft, bitsandbytes, tokenizers, safetensors, gguf and numpy.
    python3 tools/goldens/make_model_goldens.py tests/data/models [MODEL or RUN ...]

A model's folder holds config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
expected.safetensors: `ids`, `labels` and `row_lengths` of a batch, `logits` of every position (each
row run alone, float32, eager attention), `loss` (mean over the counted tokens) and the gradient of
every weight of that loss ("grad.NAME"), `prompt` and `greedy`, the tokens that follow it, each the
likeliest after all before it by more than GAP. adapter/ is a PEFT adapter with a random B, and
adapter_expected.safetensors its logits, loss and gradients.

runs/NAME/run.json are ten optimizer steps over train.jsonl in its order: the command's options, and
each step's loss, gradient norm (before clipping) and learning rate. runs/NAME/adapter is what the
run starts from. NAME.gguf is that model in llama.cpp's form (gguf_models.py).
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
from bitsandbytes import functional as bnb
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup,
                          get_linear_schedule_with_warmup)

from gguf_models import GGUF, make_gguf
from tiny_models import COMMON, EOS, MODELS, ROW_LENGTHS, RUNS, STEPS, DEFAULTS
from tiny_models import linear_layers, vocabulary

GREEDY_TOKENS = 16
GAP = 1e-3  # of the logits: far more than two correct programs differ

def build_model(settings, seed):
    torch.manual_seed(seed)
    settings = dict(settings)
    model_type = settings.pop("model_type")
    if "text_config" in settings:
        settings["text_config"] = {**COMMON, **settings["text_config"]}
    else:
        settings = {**COMMON, **settings}
    config = AutoConfig.for_model(model_type, **settings)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.3)
            elif p.dim() == 1:
                p.normal_(0.0 if "gemma" in model_type else 1.0, 0.3)
            else:
                p.normal_(0, 1.3 / math.sqrt(p.shape[1]))
        if model.config.tie_word_embeddings:
            model.get_input_embeddings().weight.normal_(0, 0.4)
    return model.eval()


def write_tokenizer(folder, words):
    """A word a token: "w7" is id 7. It lets a test name ids in a JSONL file."""
    vocab = {f"w{i}": i for i in range(words)}
    del vocab["w0"], vocab["w1"], vocab["w2"]
    vocab.update({"<unk>": 0, "<s>": 1, "</s>": EOS})
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>",
              "bos_token": "<s>", "eos_token": "</s>", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def sample_rows(rng, lengths, words):
    """Rows of (ids, labels); about a third of the labels are not counted."""
    rows = []
    for n in lengths:
        ids = rng.integers(3, words, n)
        labels = np.where(rng.random(n) < 0.35, -100, ids)
        rows.append((ids.tolist(), labels.tolist()))
    return rows


def row_losses(logits, labels):
    targets = torch.tensor(labels[1:], dtype=torch.long)
    return torch.nn.functional.cross_entropy(logits[:-1], targets, ignore_index=-100,
                                             reduction="sum")


def counted(rows):
    return sum(label != -100 for _, labels in rows for label in labels[1:])


def expected(model, rows):
    """Logits, mean loss and its gradients; each row runs alone."""
    model.zero_grad()
    total = counted(rows)
    logits, loss = [], 0.0
    for ids, labels in rows:
        with torch.no_grad():
            model(torch.tensor([[EOS]]))  # dynamic rope remembers longer rows, but for a short one
        out = model(torch.tensor([ids])).logits[0]
        part = row_losses(out, labels) / total
        part.backward()
        loss += part.item()
        logits.append(out.detach())
    tensors = {"logits": torch.cat(logits), "loss": torch.tensor([loss])}
    for name, p in model.named_parameters():
        if p.requires_grad and p.grad is not None:  # the vision part of text has none
            name = name.removeprefix("base_model.model.").replace(".default.", ".")
            tensors["grad." + name] = p.grad.clone()
    return tensors


def greedy(model, seed, words):
    """A prompt and what follows it."""
    rng = np.random.default_rng(seed)
    while True:
        prompt = rng.integers(3, words, 5).tolist()
        ids, gap = list(prompt), math.inf
        for _ in range(GREEDY_TOKENS):
            with torch.no_grad():
                best = torch.topk(model(torch.tensor([ids]), use_cache=False).logits[0, -1], 2)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
        if gap > GAP:
            return {"prompt": torch.tensor(prompt, dtype=torch.int32),
                    "greedy": torch.tensor(ids[len(prompt):], dtype=torch.int32)}


def randomize_b(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(0.2 * torch.randn(p.shape, generator=generator))


def trim_adapter_config(folder):
    """Leaves what PEFT itself writes, but for the folder that it came from."""
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "tiny"
    if isinstance(config["target_modules"], list):
        config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=1) + "\n")
    for name in ["README.md"]:
        (folder / name).unlink(missing_ok=True)


def make_model(out, name, seed):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model = build_model(MODELS[name], seed)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    if "rope_scaling" in MODELS[name] and name != "gemma3":
        # The form that transformers wrote before version 5, as most published models have it.
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = rope
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder, vocabulary(name))

    rows = sample_rows(np.random.default_rng(seed), ROW_LENGTHS, vocabulary(name))
    tensors = expected(model, rows)
    tensors["ids"] = torch.tensor([i for ids, _ in rows for i in ids], dtype=torch.int32)
    tensors["labels"] = torch.tensor([i for _, l in rows for i in l], dtype=torch.int32)
    tensors["row_lengths"] = torch.tensor(ROW_LENGTHS, dtype=torch.int32)
    tensors.update(greedy(model, seed, vocabulary(name)))
    save_file(tensors, folder / "expected.safetensors")

    torch.manual_seed(seed + 1)
    # On a GPU the rows of a fused layer's B begin at multiples of 256 bytes.
    layers = linear_layers(name)
    lora = LoraConfig(r=4 if "qkv_proj" in layers else 3, lora_alpha=7, target_modules=layers,
                      task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    randomize_b(adapted, seed)
    adapted.save_pretrained(folder / "adapter")
    trim_adapter_config(folder / "adapter")
    save_file(expected(adapted, rows), folder / "adapter_expected.safetensors")


def nf4_round_trip(weight):
    """Quantised by bitsandbytes with double quantisation; dequantised here, because its CPU
    dequantiser is wrong for float32 rows that are no multiple of 64."""
    packed, state = bnb.quantize_4bit(weight.contiguous(), blocksize=64, quant_type="nf4",
                                      compress_statistics=True)
    codes = packed.flatten()
    values = torch.stack([codes >> 4, codes & 15], 1).flatten().long()
    nested = state.state2
    absmax = nested.code[state.absmax.long()]
    absmax = absmax * nested.absmax.repeat_interleave(256)[:absmax.numel()] + state.offset
    scale = absmax.repeat_interleave(64)[:weight.numel()]
    return (state.code[values][:weight.numel()] * scale).reshape(weight.shape)


def quantize_base(model):
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                module.weight.copy_(nf4_round_trip(module.weight))


def run_rows(rng, count, vocabulary_size):
    """Rows as prompt and completion; the completion and EOS are counted."""
    rows, lines = [], []
    words = rng.permutation(np.arange(3, vocabulary_size))[:40]
    for _ in range(count):
        prompt = rng.choice(words, rng.integers(1, 7)).tolist()
        # Something to learn: the completion repeats the prompt's first word and counts on.
        completion = [prompt[0]] + rng.choice(words, rng.integers(1, 9)).tolist()
        ids = prompt + completion + [EOS]
        rows.append((ids, [-100] * len(prompt) + completion + [EOS]))
        lines.append(json.dumps({"prompt": " ".join(f"w{i}" for i in prompt),
                                 "completion": " " + " ".join(f"w{i}" for i in completion)}))
    return rows, lines


def make_optimizer(model, s):
    groups = [dict(params=[p for p in model.parameters() if p.requires_grad and p.dim() >= 2],
                   weight_decay=s["weight_decay"]),
              dict(params=[p for p in model.parameters() if p.requires_grad and p.dim() < 2],
                   weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=s["lr"], betas=(s["beta1"], s["beta2"]), eps=s["eps"],
                             foreach=False)


def make_schedule(optimizer, s):
    warmup = s.get("warmup_steps", math.ceil(s["warmup_ratio"] * STEPS))
    if s["schedule"] == "cosine":
        return get_cosine_schedule_with_warmup(optimizer, warmup, STEPS)
    if s["schedule"] == "linear":
        return get_linear_schedule_with_warmup(optimizer, warmup, STEPS)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)


def options_of(s):
    names = ["method", "rank", "alpha", "lr", "schedule", "batch_size", "grad_accum",
             "weight_decay", "warmup_ratio", "warmup_steps", "max_grad_norm"]
    options = {n.replace("_", "-"): s[n] for n in names if n in s}
    if "warmup_steps" in s:
        options.pop("warmup-ratio")
    if "targets" in s:
        options["targets"] = ",".join(s["targets"])
    if s.get("rslora"):
        options["rslora"] = True
    return options


def make_run(out, name, seed):
    s = {**DEFAULTS, **RUNS[name]}
    folder = out / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(out / s["model"], dtype=torch.float32,
                                                 attn_implementation="eager")
    if s["method"] == "qlora":
        quantize_base(model)
    if s["method"] != "full":
        torch.manual_seed(seed)
        model = get_peft_model(model, LoraConfig(
            r=s["rank"], lora_alpha=s["alpha"], use_rslora=s.get("rslora", False),
            target_modules=s["targets"], task_type="CAUSAL_LM"))
        if not s.get("zero_b"):
            randomize_b(model, seed)
        model.save_pretrained(folder / "adapter")
        trim_adapter_config(folder / "adapter")
    model.train()

    per_step = s["batch_size"] * s["grad_accum"]
    rows, lines = run_rows(np.random.default_rng(seed), per_step * STEPS, vocabulary(s["model"]))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
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
        most = s["max_grad_norm"] if s["max_grad_norm"] > 0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(trained, most).item()
        steps.append({"loss": loss, "grad_norm": norm, "lr": schedule.get_last_lr()[0]})
        optimizer.step()
        schedule.step()
    record = {"model": s["model"], "steps": steps, "options": options_of(s)}
    (folder / "run.json").write_text(json.dumps(record, indent=1) + "\n")
    print(name, [round(x["loss"], 4) for x in steps])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or [*MODELS, *RUNS]
    for i, name in enumerate(MODELS):
        if name in wanted:
            make_model(out, name, 100 + i)
            print(name)
    for name in GGUF:
        if name in wanted:
            make_gguf(out, name)
    for i, name in enumerate(RUNS):
        if name in wanted:
            make_run(out, name, 200 + i)


if __name__ == "__main__":
    main()
