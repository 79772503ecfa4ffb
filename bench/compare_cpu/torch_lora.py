"""The PyTorch + peft side of compare_cpu: prepares the shared start, or trains and reports.

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


def batches(path, rows_a_step):
    """Padded as Hugging Face's collators do: to the longest row of the batch, on the right."""
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    at = 0
    while True:
        batch = [rows[(at + i) % len(rows)] for i in range(rows_a_step)]
        at = (at + rows_a_step) % len(rows)
        longest = max(len(row["ids"]) for row in batch)
        pad = [longest - len(row["ids"]) for row in batch]
        yield {
            "input_ids": torch.tensor([r["ids"] + [0] * p for r, p in zip(batch, pad)]),
            "labels": torch.tensor([r["labels"] + [-100] * p for r, p in zip(batch, pad)]),
            "attention_mask": torch.tensor([[1] * len(r["ids"]) + [0] * p
                                            for r, p in zip(batch, pad)]),
        }


def train(options):
    torch.set_num_threads(options.threads)
    base = transformers.AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, options.adapter, is_trainable=True)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=0.01)
    start = time.perf_counter()
    rows = batches(options.ids, options.rows)
    for step in range(1, options.steps + 1):
        batch = next(rows)
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
    second.add_argument("--threads", type=int, required=True)
    second.add_argument("--lr", type=float, required=True)
    for command in (first, second):
        command.add_argument("--base", required=True)
        command.add_argument("--adapter", required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    {"prepare": prepare, "train": train}[options.command](options)


if __name__ == "__main__":
    main()
