#!/usr/bin/env python3
"""Writes tests/data/models/sampling.json: the distributions that transformers' processors leave.

Needs torch and transformers. Usage: make_sampling_goldens.py OUT

Each case has logits, the tokens seen so far, the settings, and the tokens that can still be drawn
with their probabilities after RepetitionPenalty, Temperature, TopK, TopP and MinP, in this order.
"""

import json
import pathlib
import sys

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

SETTINGS = [
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0},
    {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.0, "repetition_penalty": 1.0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.1, "repetition_penalty": 1.0},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.3, "repetition_penalty": 1.0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.3},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 0.8},
]


def main():
    torch.manual_seed(7)
    cases = []
    for settings in SETTINGS:
        logits = (torch.randn(1, 200) * 3 * 64).round() / 64  # exact in few digits
        seen = torch.randint(0, 200, (1, 30))
        processors = [RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]),
                      TemperatureLogitsWarper(settings["temperature"])]
        if settings["top_k"]:
            processors.append(TopKLogitsWarper(settings["top_k"]))
        if settings["top_p"] < 1:
            processors.append(TopPLogitsWarper(settings["top_p"]))
        if settings["min_p"]:
            processors.append(MinPLogitsWarper(settings["min_p"]))
        scores = logits.clone()
        for processor in processors:
            scores = processor(seen, scores)
        chances = torch.softmax(scores.double(), -1)[0]
        kept = [(i, chances[i].item()) for i in range(200) if torch.isfinite(scores[0, i])]
        kept.sort(key=lambda entry: -entry[1])
        cases.append({**settings, "logits": logits[0].tolist(),
                      "seen": seen[0].tolist(), "ids": [i for i, _ in kept],
                      "chances": [float(f"{p:.9g}") for _, p in kept]})
    pathlib.Path(sys.argv[1]).write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
