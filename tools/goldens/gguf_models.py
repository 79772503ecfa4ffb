"""The tiny models of make_model_goldens.py as llama.cpp's converter writes them.

llama3: Q8_0 where rows allow, else F16; the others: matrices in F16. Vectors are F32. A file has no
key for what llama.cpp holds constant: query_pre_attn_scalar of Gemma, the layers of SmolLM3 that do
not turn.
"""

import json
import math

import gguf
import numpy as np
from safetensors.torch import load_file

GGUF = ["llama3", "smollm3", "phi3", "olmo2", "gemma3", "gemma2", "granite"]

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BLOCK = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "mlp.gate_up_proj": "ffn_up"}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm",
              "pre_feedforward_layernorm": "ffn_norm",
              "post_feedforward_layernorm": "post_ffw_norm"}


def interleave(weight, heads):
    """llama.cpp rotates neighbouring pairs: rows (i, i + d/2) of a head become (2i, 2i + 1)."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def llama3_divisors(config):
    rope, d = config["rope_scaling"], config["head_dim"]
    wavelength = 2 * math.pi * config["rope_theta"] ** (np.arange(0, d, 2) / d)
    context = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = np.clip((context / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def add_rope(writer, config, architecture, head_dim):
    rope = config.get("rope_parameters", {})
    if architecture == "gemma3":
        rope = rope["full_attention"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta")))
    share = config.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(head_dim * share))
    if architecture == "llama":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    if architecture == "phi3":
        context = config["original_max_position_embeddings"]
        factor = config["max_position_embeddings"] / context
        writer.add_rope_scaling_orig_ctx_len(context)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(context)))
        for kind in ["long", "short"]:
            factors = np.array(config["rope_scaling"][f"{kind}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)


def add_family_keys(writer, config, architecture):
    if architecture in ["gemma2", "gemma3"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if architecture == "gemma3":
        writer.add_uint32("gemma3.attention.sliding_window_pattern",
                          config["sliding_window_pattern"])
    if architecture in ["gemma2", "gemma3", "phi3"]:
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])


def stored(module, values, config, architecture):
    """The values of a tensor of this module in llama.cpp's form."""
    if architecture in ["llama", "granite", "smollm3"]:
        if module.endswith("q_proj"):
            return interleave(values, config["num_attention_heads"])
        if module.endswith("k_proj"):
            return interleave(values, config["num_key_value_heads"])
    if architecture in ["gemma2", "gemma3"] and module.endswith("norm"):
        return values + 1
    return values


def gguf_name(key, architecture):
    module, kind = key.rsplit(".", 1)
    if not module.startswith("model.layers."):
        return f"{TOP[module]}.{kind}"
    _, _, layer, module = module.split(".", 3)
    names = {**BLOCK, **POST_NORMS} if architecture in ["gemma2", "gemma3", "olmo2"] else BLOCK
    return f"blk.{layer}.{names[module]}.{kind}"


def kind_of(values, architecture):
    if values.ndim < 2:
        return gguf.GGMLQuantizationType.F32
    small = architecture == "llama" and values.shape[1] % 32 == 0
    return gguf.GGMLQuantizationType.Q8_0 if small else gguf.GGMLQuantizationType.F16


def make_gguf(out, name):
    config = json.loads((out / name / "config.json").read_text())
    architecture = "llama" if name == "llama3" else name
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer = gguf.GGUFWriter(out / f"{name}.gguf", architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if architecture in ["gemma2", "gemma3"]:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    add_rope(writer, config, architecture, head_dim)
    add_family_keys(writer, config, architecture)
    writer.add_eos_token_id(config["eos_token_id"])
    for key, weight in load_file(out / name / "model.safetensors").items():
        values = stored(key.rsplit(".", 1)[0], weight.numpy(), config, architecture)
        kind = kind_of(values, architecture)
        writer.add_tensor(gguf_name(key, architecture), gguf.quants.quantize(values, kind),
                          raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
