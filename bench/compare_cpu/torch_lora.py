"""PyTorch + peft for the comparisons: prepares the shared start, or trains and reports.

prepare  GGUF -> a Hugging Face folder in float32 and a fresh LoRA adapter beside it
train    the rows of a file of token ids, in their order; prints a JSON line a step
"""
import argparse
import json
import os
import time

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model


def prepare(options):
    torch.manual_seed(0)
    folder, name = os.path.split(os.path.abspath(options.gguf))
    read = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32)
    # A model that came from GGUF counts as quantized and cannot be saved; one of its own can.
    config = type(read.config)(**{key: value for key, value in read.config.to_dict().items()
                                  if key != "quantization_config"})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(options.base)
    lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, lora_dropout=0.0,
                      target_modules="all-linear", task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(options.adapter)


def batches(path, rows_a_step, device):
    """Padded as Hugging Face's collators do: to the longest row of the batch, on the right."""
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    at = 0
    while True:
        batch = [rows[(at + i) % len(rows)] for i in range(rows_a_step)]
        at = (at + rows_a_step) % len(rows)
        longest = max(len(row["ids"]) for row in batch)
        pad = [longest - len(row["ids"]) for row in batch]
        padded = {
            "input_ids": [r["ids"] + [0] * p for r, p in zip(batch, pad)],
            "labels": [r["labels"] + [-100] * p for r, p in zip(batch, pad)],
            "attention_mask": [[1] * len(r["ids"]) + [0] * p for r, p in zip(batch, pad)],
        }
        yield {name: torch.tensor(rows, device=device) for name, rows in padded.items()}


def load(options):
    """What is trained, on its device. Weights that are trained stay in float32."""
    compute = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    more = {}
    if options.method == "qlora":
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=compute)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        options.base, dtype=torch.float32 if options.method == "full" else compute,
        device_map=options.device, **more)
    if options.method == "full":
        return base.train()
    return PeftModel.from_pretrained(base, options.adapter, is_trainable=True).train()


def train(options):
    torch.set_num_threads(options.threads)
    model = load(options)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=options.weight_decay)
    start = time.perf_counter()
    rows = batches(options.ids, options.rows, options.device)
    for step in range(1, options.steps + 1):
        batch = next(rows)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = model(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps({"step": step, "loss": loss.item(),
                          "tokens": int(batch["attention_mask"].sum()),
                          "seconds": time.perf_counter() - start}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("--gguf", required=True)
    first.add_argument("--rank", type=int, required=True)
    second = commands.add_parser("train")
    second.add_argument("--ids", required=True)
    second.add_argument("--rows", type=int, required=True)
    second.add_argument("--steps", type=int, required=True)
    second.add_argument("--threads", type=int, default=torch.get_num_threads())
    second.add_argument("--lr", type=float, required=True)
    second.add_argument("--weight-decay", type=float, default=0.01)
    second.add_argument("--method", choices=["lora", "qlora", "full"], default="lora")
    second.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    second.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    for command in (first, second):
        command.add_argument("--base", required=True)
        command.add_argument("--adapter", required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    {"prepare": prepare, "train": train}[options.command](options)


if __name__ == "__main__":
    main()
