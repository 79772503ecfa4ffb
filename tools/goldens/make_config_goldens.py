#!/usr/bin/env python3
"""Writes tests/data/models/configs.json: what transformers makes of files that leave fields out.

Needs transformers.
    python3 tools/goldens/make_config_goldens.py tests/data/models/configs.json

An entry is a name, `given` (a config.json as published, or a family's name alone) and `full`, every
field of it as transformers fills it in.
"""

import json
import pathlib
import sys

from transformers import AutoConfig

CLASSES = {
    "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "granite": "GraniteForCausalLM", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "phi3": "Phi3ForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "smollm3": "SmolLM3ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
}


def gemma3(**text):
    vision = dict(hidden_size=1152, image_size=896, intermediate_size=4304,
                  model_type="siglip_vision_model", num_attention_heads=16, num_hidden_layers=27,
                  patch_size=14, vision_use_head=False)
    return dict(model_type="gemma3", boi_token_index=255999, eoi_token_index=256000,
                eos_token_id=[1, 106], image_token_index=262144, initializer_range=0.02,
                mm_tokens_per_image=256, torch_dtype="bfloat16", vision_config=vision,
                text_config=dict(model_type="gemma3_text", sliding_window=1024,
                                 rope_scaling=dict(factor=8.0, rope_type="linear"), **text))


# What files on the hub have, without what is the same everywhere.
PUBLISHED = {
    "Gemma 3 4B": gemma3(hidden_size=2560, intermediate_size=10240, num_hidden_layers=34),
    "Gemma 3 12B": gemma3(hidden_size=3840, intermediate_size=15360, num_hidden_layers=48,
                          num_attention_heads=16, num_key_value_heads=8),
    "Gemma 3 27B": gemma3(hidden_size=5376, intermediate_size=21504, num_hidden_layers=62,
                          num_attention_heads=32, num_key_value_heads=16, head_dim=128,
                          query_pre_attn_scalar=168),
    "Gemma 2 2B": dict(model_type="gemma2", hidden_act="gelu_pytorch_tanh", head_dim=256,
                       hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
                       num_attention_heads=8, num_key_value_heads=4, cache_implementation="hybrid"),
    "Mistral 7B 0.1": dict(model_type="mistral", hidden_size=4096, intermediate_size=14336,
                           num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                           max_position_embeddings=32768, rms_norm_eps=1e-5, rope_theta=10000.0,
                           sliding_window=4096, vocab_size=32000),
    "Mistral 7B 0.3": dict(model_type="mistral", hidden_size=4096, num_key_value_heads=8,
                           max_position_embeddings=32768, rms_norm_eps=1e-5, rope_theta=1000000.0,
                           sliding_window=None, vocab_size=32768),
    "Phi-3 mini 4k": dict(model_type="phi3", hidden_size=3072, intermediate_size=8192,
                          num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
                          rope_theta=10000.0, rope_scaling=None, sliding_window=2047,
                          original_max_position_embeddings=4096, vocab_size=32064),
    "OLMo 2 1B": dict(model_type="olmo2", hidden_size=2048, intermediate_size=8192,
                      num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
                      max_position_embeddings=4096, rms_norm_eps=1e-6, rope_theta=500000,
                      rope_scaling=None, vocab_size=100352),
    "Granite 3 2B": dict(model_type="granite", hidden_size=2048, intermediate_size=8192,
                         num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=8,
                         attention_multiplier=0.015625, embedding_multiplier=12.0,
                         logits_scaling=8.0, residual_multiplier=0.22, rms_norm_eps=1e-5,
                         max_position_embeddings=131072, rope_theta=10000000.0,
                         tie_word_embeddings=True, vocab_size=49155),
    "heads that are null": dict(model_type="llama", num_key_value_heads=None, head_dim=None),
}


def main():
    entries = []
    given = {**{f"{name} alone": dict(model_type=name) for name in CLASSES}, **PUBLISHED}
    for name, fields in given.items():
        full = AutoConfig.for_model(**fields).to_dict()
        for side in fields, full:
            side["architectures"] = [CLASSES[fields["model_type"]]]
        entries.append(dict(name=name, given=fields, full=full))
    text = ",\n".join(json.dumps(entry, default=str) for entry in entries)
    pathlib.Path(sys.argv[1]).write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
