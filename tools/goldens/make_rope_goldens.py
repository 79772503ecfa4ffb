#!/usr/bin/env python3
"""Writes what transformers' rotary embeddings have for each kind of scaling.

Needs torch and transformers.
    python3 tools/goldens/make_rope_goldens.py tests/data/models/rope.json

An entry has the fields of a config.json, the number of tokens of a row, the inverse frequencies
(float32) and the factor of cosines and sines.
"""

import json
import pathlib
import sys

from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BASE = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=1,
            intermediate_size=8, vocab_size=16, max_position_embeddings=64)
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.3, 2.6, 3.0, 3.5]
LONG = [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 11.0, 15.0, 20.0, 26.0, 30.0, 32.5]

CASES = [
    ({}, dict(rope_type="linear", factor=2.5), [10]),
    ({}, dict(rope_type="dynamic", factor=4.0), [10, 64, 65, 200]),
    (dict(rope_theta=500000.0, max_position_embeddings=131072),
     dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
          original_max_position_embeddings=8192), [10]),
    (dict(max_position_embeddings=32768),
     dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8192), [10]),
    (dict(max_position_embeddings=32768),
     dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8192, beta_fast=16.0,
          beta_slow=2.0, truncate=False), [10]),
    (dict(max_position_embeddings=32768),
     dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=0.7,
          mscale_all_dim=1.2), [10]),
    (dict(max_position_embeddings=32768), dict(rope_type="yarn", factor=8.0, attention_factor=1.5),
     [10]),
    (dict(model_type="phi3", max_position_embeddings=128, original_max_position_embeddings=32,
          partial_rotary_factor=0.75),
     dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG), [10, 32, 33]),
    (dict(model_type="phi3", max_position_embeddings=128, original_max_position_embeddings=32,
          partial_rotary_factor=0.75),
     dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, attention_factor=1.25), [33]),
    (dict(max_position_embeddings=128),
     dict(rope_type="longrope", short_factor=SHORT + SHORT[:4], long_factor=LONG + LONG[:4],
          original_max_position_embeddings=32, factor=6.0), [33]),
]


def main():
    entries = []
    for fields, rope, lengths in CASES:
        given = {**BASE, **fields, "rope_scaling": rope}
        phi3 = given.pop("model_type", "llama") == "phi3"
        for length in lengths:
            config = (Phi3Config if phi3 else LlamaConfig)(**json.loads(json.dumps(given)))
            compute = ROPE_INIT_FUNCTIONS[rope["rope_type"]]
            frequencies, factor = compute(config, "cpu", seq_len=length)
            architecture = "Phi3ForCausalLM" if phi3 else "LlamaForCausalLM"
            entries.append({"config": {"architectures": [architecture], **given},
                            "row_length": length, "inverse_frequencies": frequencies.tolist(),
                            "attention_factor": factor})
    text = ",\n".join(json.dumps(entry) for entry in entries)
    pathlib.Path(sys.argv[1]).write_text("[\n" + text + "\n]\n")


if __name__ == "__main__":
    main()
