#!/usr/bin/env python3
"""Writes tests/data/io: GGUF files by the `gguf` package and what they must decode to.

types.gguf / types.safetensors   every supported element type over random blocks, and gguf's own
                                 dequantisation of them; metadata of every value type
llama.gguf / llama.safetensors   a tiny Llama as llama.cpp's converter writes it (q and k reordered,
                                 llama3 scaling as divisors) and the same weights in Hugging Face's
                                 names and order

Needs numpy, gguf and safetensors. Usage: make_gguf_goldens.py [OUT]
"""

import math
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize
from safetensors.numpy import save_file

ROWS, COLUMNS = 3, 512

# Where the f16 scales stand within a block.
SCALES = {
    Type.Q8_0: [0],
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}


def random_halves(rng, count):
    """Finite halves of every size: normal, subnormal, zero, negative."""
    bits = rng.integers(0, 0x7C00, count, dtype=np.uint16)
    bits[::7] = rng.integers(0, 0x400, bits[::7].shape, dtype=np.uint16)
    return bits | (rng.integers(0, 2, count, dtype=np.uint16) << 15)


def random_blocks(rng, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for at in SCALES[kind]:
        blocks[:, at : at + 2] = random_halves(rng, len(blocks)).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def add_metadata_of_every_type(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 18000000000000000000)
    writer.add_int64("test.i64", -9000000000000000000)
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "naïve ☃")
    writer.add_array("test.strings", ["a", "", "ſ"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    writer.add_array("test.nested", [[1, 2], [3]])


def make_types(out):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out / "types.gguf", "test")
    add_metadata_of_every_type(writer)
    expected = {}
    floats = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    writer.add_tensor("f32", floats)
    expected["f32"] = floats
    halves = random_halves(rng, ROWS * COLUMNS).reshape(ROWS, COLUMNS).view(np.float16)
    writer.add_tensor("f16", halves)
    expected["f16"] = halves.astype(np.float32)
    bf16 = (floats.view(np.uint32) >> 16).astype(np.uint16)
    writer.add_tensor("bf16", bf16.view(np.uint8).reshape(ROWS, -1), raw_dtype=Type.BF16)
    expected["bf16"] = (bf16.astype(np.uint32) << 16).view(np.float32)
    for kind in SCALES:
        blocks = random_blocks(rng, kind)
        name = kind.name.lower()
        writer.add_tensor(name, blocks, raw_dtype=kind)
        expected[name] = dequantize(blocks, kind)
        assert np.isfinite(expected[name]).all()
    finish(writer)
    save_file(expected, out / "types.safetensors", metadata={"made_by": "gguf"})


def permute(weights, heads):
    """Hugging Face's half-split rotary rows to llama.cpp's neighbouring pairs."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def llama3_divisors(theta, dim, factor, low, high, original):
    divisors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (i / dim)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


def make_llama(out):
    rng = np.random.default_rng(2)
    hidden, heads, kv_heads, head, inner, vocab, layers = 64, 4, 2, 16, 96, 40, 2
    writer = gguf.GGUFWriter(out / "llama.gguf", "llama")
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor("rope_freqs.weight", llama3_divisors(500000.0, head, 8.0, 1.0, 4.0, 256))
    expected = {}

    def add(gguf_name, hf_name, shape, kind=Type.F32, heads=None):
        weights = rng.standard_normal(shape).astype(np.float32)
        stored = weights if heads is None else permute(weights, heads)
        if kind == Type.F32:
            writer.add_tensor(gguf_name, stored)
            expected[hf_name] = weights
            return
        blocks = gguf.quants.quantize(np.ascontiguousarray(stored), kind)
        writer.add_tensor(gguf_name, blocks, raw_dtype=kind)
        # Blocks lie within rows: quantising the rows in Hugging Face's order gives the same values.
        expected[hf_name] = dequantize(gguf.quants.quantize(weights, kind), kind)

    add("token_embd.weight", "model.embed_tokens.weight", (vocab, hidden), Type.Q8_0)
    for i in range(layers):
        block, layer = f"blk.{i}.", f"model.layers.{i}."
        attention = layer + "self_attn."
        add(block + "attn_norm.weight", layer + "input_layernorm.weight", (hidden,))
        q, kv = heads * head, kv_heads * head
        add(block + "attn_q.weight", attention + "q_proj.weight", (q, hidden), Type.Q4_1, heads)
        add(block + "attn_k.weight", attention + "k_proj.weight", (kv, hidden), Type.F32, kv_heads)
        add(block + "attn_v.weight", attention + "v_proj.weight", (kv, hidden), Type.Q5_0)
        add(block + "attn_q.bias", attention + "q_proj.bias", (q,), Type.F32, heads)
        add(block + "attn_k.bias", attention + "k_proj.bias", (kv,), Type.F32, kv_heads)
        add(block + "attn_v.bias", attention + "v_proj.bias", (kv,))
        add(block + "attn_output.weight", attention + "o_proj.weight", (hidden, q), Type.Q4_0)
        add(block + "ffn_norm.weight", layer + "post_attention_layernorm.weight", (hidden,))
        add(block + "ffn_gate.weight", layer + "mlp.gate_proj.weight", (inner, hidden), Type.Q5_1)
        add(block + "ffn_up.weight", layer + "mlp.up_proj.weight", (inner, hidden))
        add(block + "ffn_down.weight", layer + "mlp.down_proj.weight", (hidden, inner), Type.Q8_0)
    add("output_norm.weight", "model.norm.weight", (hidden,))
    finish(writer)
    save_file(expected, out / "llama.safetensors")


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests" / "data" / "io"
    out.mkdir(parents=True, exist_ok=True)
    make_types(out)
    make_llama(out)


if __name__ == "__main__":
    main()
