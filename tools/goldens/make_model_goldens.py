#!/usr/bin/env python3
"""Writes tests/data/models: tiny random models of each family with what PyTorch computes for them.

Needs torch, transformers, peft, bitsandbytes, tokenizers, safetensors, gguf and numpy.
    python3 tools/goldens/make_model_goldens.py tests/data/models

A model's folder holds config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
expected.safetensors: `ids`, `labels` and `row_lengths` of a batch, `logits` of every position (each
row run alone, float32, eager attention), `loss` (mean over the counted tokens) and the gradient of
every weight of that loss ("grad.NAME"). adapter/ is a PEFT adapter with a random B, and
adapter_expected.safetensors its logits, loss and gradients.

runs/NAME/run.json are ten optimizer steps over train.jsonl in its order: the command's options, and
each step's loss, gradient norm (before clipping) and learning rate. runs/NAME/adapter is what the
run starts from. llama3.gguf is that model in llama.cpp's form.
"""

import json
import math
import pathlib
import sys

import gguf
import numpy as np
import torch
from bitsandbytes import functional as bnb
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup,
                          get_linear_schedule_with_warmup)

VOCAB = 149
EOS = 2
ROW_LENGTHS = [17, 1, 9, 23, 2]
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=128, bos_token_id=1, eos_token_id=EOS,
              hidden_act="silu", rms_norm_eps=1e-5, attention_dropout=0.0)

MODELS = {
    "llama2": dict(model_type="llama", hidden_size=36, intermediate_size=47, num_hidden_layers=2,
                   num_attention_heads=2, num_key_value_heads=2, rope_theta=10000.0,
                   tie_word_embeddings=False),
    "llama3": dict(model_type="llama", hidden_size=32, intermediate_size=44, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, rope_theta=500.0,
                   tie_word_embeddings=True,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                     high_freq_factor=4.0, original_max_position_embeddings=32)),
    "llama_bias": dict(model_type="llama", hidden_size=36, intermediate_size=31,
                       num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                       rope_theta=10000.0, tie_word_embeddings=True, attention_bias=True,
                       mlp_bias=True, rope_scaling=dict(rope_type="linear", factor=2.5)),
    "smollm2": dict(model_type="llama", hidden_size=54, intermediate_size=49, num_hidden_layers=2,
                    num_attention_heads=9, num_key_value_heads=3, rope_theta=100000.0,
                    tie_word_embeddings=True),
    "mistral": dict(model_type="mistral", hidden_size=40, intermediate_size=45,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                    rope_theta=10000.0, sliding_window=5, tie_word_embeddings=False),
    "qwen2": dict(model_type="qwen2", hidden_size=42, intermediate_size=50, num_hidden_layers=2,
                  num_attention_heads=3, num_key_value_heads=1, rope_theta=1000000.0,
                  use_sliding_window=False, sliding_window=6, tie_word_embeddings=True),
    "qwen2_window": dict(model_type="qwen2", hidden_size=32, intermediate_size=37,
                         num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                         rope_theta=10000.0, use_sliding_window=True, sliding_window=4,
                         max_window_layers=1, tie_word_embeddings=False),
    "qwen3": dict(model_type="qwen3", hidden_size=40, intermediate_size=48, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=14, rope_theta=1000000.0,
                  use_sliding_window=False, tie_word_embeddings=True),
}

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# The options as the command line takes them; everything else is its default.
RUNS = {
    "lora_llama3": dict(model="llama3", method="lora", rank=4, alpha=8, targets=ALL, lr=2e-3,
                        schedule="cosine", batch_size=2, grad_accum=2),
    "rslora_qwen3": dict(model="qwen3", method="lora", rank=3, alpha=5, rslora=True,
                         targets=["q_proj", "v_proj", "down_proj"], lr=5e-3, schedule="linear",
                         warmup_steps=2, batch_size=3, grad_accum=1, zero_b=True,
                         max_grad_norm=0.5),
    "lora_mistral_mlp": dict(model="mistral", method="lora", rank=5, alpha=5,
                             targets=["up_proj", "gate_proj"], lr=1e-3, schedule="constant",
                             warmup_ratio=0.0, batch_size=4, grad_accum=1, weight_decay=0.1),
    "qlora_qwen2": dict(model="qwen2", method="qlora", rank=4, alpha=16, targets=ALL, lr=2e-3,
                        schedule="cosine", warmup_ratio=0.2, batch_size=2, grad_accum=1),
    "full_smollm2": dict(model="smollm2", method="full", lr=1e-3, schedule="cosine",
                         warmup_ratio=0.1, batch_size=2, grad_accum=2, weight_decay=0.1),
    "full_qwen2_window": dict(model="qwen2_window", method="full", lr=2e-3, schedule="linear",
                              batch_size=3, grad_accum=1, max_grad_norm=0.0),
}
STEPS = 10
DEFAULTS = dict(weight_decay=0.01, beta1=0.9, beta2=0.999, eps=1e-8, max_grad_norm=1.0,
                warmup_ratio=0.03)


def build_model(settings, seed):
    torch.manual_seed(seed)
    settings = dict(settings)
    model_type = settings.pop("model_type")
    config = AutoConfig.for_model(model_type, **{**COMMON, **settings})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.3)
            elif p.dim() == 1:
                p.normal_(1.0, 0.3)
            else:
                p.normal_(0, 1.3 / math.sqrt(p.shape[1]))
        if model.config.tie_word_embeddings:
            model.model.embed_tokens.weight.normal_(0, 0.4)
    return model


def write_tokenizer(folder):
    """A word a token: "w7" is id 7. It lets a test name ids in a JSONL file."""
    vocab = {f"w{i}": i for i in range(VOCAB)}
    del vocab["w0"], vocab["w1"], vocab["w2"]
    vocab.update({"<unk>": 0, "<s>": 1, "</s>": EOS})
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>",
              "bos_token": "<s>", "eos_token": "</s>", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def sample_rows(rng, lengths):
    """Rows of (ids, labels); about a third of the labels are not counted."""
    rows = []
    for n in lengths:
        ids = rng.integers(3, VOCAB, n)
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
        out = model(torch.tensor([ids])).logits[0]
        part = row_losses(out, labels) / total
        part.backward()
        loss += part.item()
        logits.append(out.detach())
    tensors = {"logits": torch.cat(logits), "loss": torch.tensor([loss])}
    for name, p in model.named_parameters():
        if p.requires_grad:
            name = name.removeprefix("base_model.model.").replace(".default.", ".")
            tensors["grad." + name] = p.grad.clone()
    return tensors


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
    if "scaling" in json.dumps(MODELS[name]):
        # The form that transformers wrote before version 5, as most published models have it.
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)

    rows = sample_rows(np.random.default_rng(seed), ROW_LENGTHS)
    tensors = expected(model, rows)
    tensors["ids"] = torch.tensor([i for ids, _ in rows for i in ids], dtype=torch.int32)
    tensors["labels"] = torch.tensor([i for _, l in rows for i in l], dtype=torch.int32)
    tensors["row_lengths"] = torch.tensor(ROW_LENGTHS, dtype=torch.int32)
    save_file(tensors, folder / "expected.safetensors")

    torch.manual_seed(seed + 1)
    lora = LoraConfig(r=3, lora_alpha=7, target_modules=ALL, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    randomize_b(adapted, seed)
    adapted.save_pretrained(folder / "adapter")
    trim_adapter_config(folder / "adapter")
    save_file(expected(adapted, rows), folder / "adapter_expected.safetensors")


GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
              "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def interleave(weight, heads):
    """llama.cpp rotates neighbouring pairs: rows (i, i + d/2) of a head become (2i, 2i + 1)."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def make_gguf(out, name):
    """The model as llama.cpp's converter writes it: Q8_0 where rows allow, else F16; norms F32."""
    config = json.loads((out / name / "config.json").read_text())
    writer = gguf.GGUFWriter(out / f"{name}.gguf", "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_eos_token_id(EOS)
    writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    for key, weight in load_file(out / name / "model.safetensors").items():
        module = key.removesuffix(".weight")
        prefix = ""
        if module.startswith("model.layers."):
            _, _, layer, module = module.split(".", 3)
            prefix = f"blk.{layer}."
        values = weight.numpy()
        if module.endswith("q_proj"):
            values = interleave(values, config["num_attention_heads"])
        if module.endswith("k_proj"):
            values = interleave(values, config["num_key_value_heads"])
        kind = gguf.GGMLQuantizationType.F32
        if values.ndim == 2:
            whole = values.shape[1] % 32 == 0
            kind = gguf.GGMLQuantizationType.Q8_0 if whole else gguf.GGMLQuantizationType.F16
        packed = gguf.quants.quantize(values, kind)
        writer.add_tensor(f"{prefix}{GGUF_NAMES[module]}.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama3_divisors(config):
    rope, d = config["rope_scaling"], config["head_dim"]
    wavelength = 2 * math.pi * config["rope_theta"] ** (np.arange(0, d, 2) / d)
    context = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = np.clip((context / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


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


def run_rows(rng, count):
    """Rows as prompt and completion; the completion and EOS are counted."""
    rows, lines = [], []
    words = rng.permutation(np.arange(3, VOCAB))[:40]
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
    rows, lines = run_rows(np.random.default_rng(seed), per_step * STEPS)
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
    for i, name in enumerate(MODELS):
        make_model(out, name, 100 + i)
        print(name)
    make_gguf(out, "llama3")
    for i, name in enumerate(RUNS):
        make_run(out, name, 200 + i)


if __name__ == "__main__":
    main()
