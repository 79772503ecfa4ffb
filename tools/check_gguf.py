#!/usr/bin/env python3
"""Compares a GGUF file that `wgrad export` wrote with the Hugging Face folder of the same model.

Needs torch, transformers, safetensors and gguf. The folder is what `wgrad merge` writes of the same
base and adapter in float32 (or the base itself).
    python3 tools/check_gguf.py MODEL.gguf FOLDER [--ggml LIBGGML_BASE]

Every tensor: torch's values with llama.cpp's order of the rows of q and k and 1 added to Gemma's
norms, converted by torch (F16, BF16) or quantised by gguf.quants, must have the file's bits; types
that gguf.quants cannot quantise (Q4_K, Q5_K, Q6_K) are quantised by ggml's own library, which the
npm package @node-llama-cpp/linux-x64 has, or counted as not compared. Then the sizes in the
metadata, the vocabulary and the chat template. Exits with 1 at a difference.
"""

import argparse
import ctypes
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open
from transformers import AutoTokenizer

ARCHITECTURES = {name: architecture for architecture, name in gguf.MODEL_ARCH_NAMES.items()}
PERMUTED = {"granite", "llama", "smollm3"}
NORMS_PLUS_ONE = {"gemma2", "gemma3"}


def permute(weights, heads):
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
            .swapaxes(1, 2).reshape(weights.shape))


def by_ggml(library, values, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    out = np.zeros((rows, columns // elements * size), np.uint8)
    library.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, rows, columns, None)
    return out


def stored(values, kind, library):
    """The bytes that the values have as `kind`; None where nothing here can tell."""
    if kind == Type.F32:
        return values.numpy()
    if kind == Type.F16:
        return values.to(torch.float16).numpy()
    if kind == Type.BF16:
        return values.to(torch.bfloat16).view(torch.int16).numpy()
    values = np.ascontiguousarray(values.numpy())
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        return None if library is None else by_ggml(library, values, kind)


def weights_of(folder):
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                yield name, tensors.get_tensor(name).float()


def compare_tensors(reader, folder, config, library):
    names = gguf.get_tensor_name_map(ARCHITECTURES[reader.architecture], config["num_hidden_layers"])
    left = {t.name: t for t in reader.tensors if not t.name.startswith("rope_")}
    wrong, unknown = [], 0
    for name, values in weights_of(folder):
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target == "output.weight" and target not in left:
            continue  # tied
        tensor = left.pop(target)
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if heads and reader.architecture in PERMUTED:
            values = permute(values, config[heads])
        if name.endswith("norm.weight") and reader.architecture in NORMS_PLUS_ONE:
            values = values + 1
        expected = stored(values, Type(tensor.tensor_type), library)
        if expected is None:
            unknown += 1
        elif expected.tobytes() != tensor.data.tobytes():
            wrong.append(target)
    print(f"{len(reader.tensors)} tensors: {len(wrong)} differ, {unknown} not compared, "
          f"{len(left)} without a counterpart", *wrong[:5], *list(left)[:5])
    return not wrong and not left


def compare_sizes(reader, config):
    expected = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
                "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
                "attention.head_count": "num_attention_heads",
                "attention.head_count_kv": "num_key_value_heads"}
    wrong = [key for key, field in expected.items()
             if reader.value(f"{reader.architecture}.{key}") != config[field]]
    print("sizes:", "differ: " + ", ".join(wrong) if wrong else "equal")
    return not wrong


def compare_tokens(reader, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = reader.value("tokenizer.ggml.tokens")
    vocabulary = tokenizer.get_vocab()
    same = all(tokens[i] == token for token, i in vocabulary.items())
    template = reader.value("tokenizer.chat_template") == tokenizer.chat_template
    print(f"{len(tokens)} tokens, {len(vocabulary)} in the folder:", "equal" if same else "differ",
          "; template", "equal" if template else "differs")
    return same and template


class Reader(gguf.GGUFReader):
    @property
    def architecture(self):
        return self.value("general.architecture")

    def value(self, key):
        field = self.get_field(key)
        return None if field is None else field.contents()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ggml")
    options = parser.parse_args()
    library = None
    if options.ggml:
        library = ctypes.CDLL(options.ggml)
        library.ggml_quantize_chunk.restype = ctypes.c_size_t
        library.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_int64, ctypes.c_void_p]
    reader = Reader(options.file)
    config = json.loads((options.folder / "config.json").read_text())
    good = [compare_tensors(reader, options.folder, config, library), compare_sizes(reader, config),
            compare_tokens(reader, options.folder)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
