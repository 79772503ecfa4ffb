#!/usr/bin/env python3
"""Writes tests/data/io/quantized.safetensors: floats and what ggml's reference quantisers make of them.

Needs numpy, gguf, safetensors and ggml itself, whose library is in the npm package
@node-llama-cpp/linux-x64 (3.22.1: `npm pack`, bins/linux-x64/libggml-base.so).
Usage: make_quantize_goldens.py LIBGGML_BASE OUT

values   rows of f32 of many sizes and shapes
q8_0 ... the blocks, as bytes; checked against gguf.quants where that package has the type
"""

import ctypes
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize
from safetensors.numpy import save_file

ROWS, COLUMNS = 8, 512
TYPES = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q6_K]
IN_GGUF_QUANTS = {Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1}


def make_values(rng):
    values = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    values[1] *= 0.02  # the size of weights
    values[2] *= 10.0 ** rng.integers(-8, 4, COLUMNS)
    values[3] = np.round(values[3] * 4) / 4  # ties
    values[4] = np.abs(values[4]) + 3  # no zero within
    values[5] = -np.abs(values[5])
    values[6, :256] = 0
    values[6, 300:] = 0
    values[7, :128] = 1
    values[7, 128:256] = -1
    values[7, 256:] = np.repeat(rng.standard_normal(8), 32) * 1e-6
    return values


def by_ggml(library, values, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((ROWS, COLUMNS // elements * size), np.uint8)
    library.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, ROWS, COLUMNS, None)
    return out


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int64, ctypes.c_void_p]
    values = make_values(np.random.default_rng(5))
    tensors = {"values": values}
    for kind in TYPES:
        tensors[kind.name.lower()] = by_ggml(library, values, kind)
        if kind in IN_GGUF_QUANTS:
            assert (quantize(values, kind) == tensors[kind.name.lower()]).all(), kind
    save_file(tensors, sys.argv[2], metadata={"made_by": "ggml"})


if __name__ == "__main__":
    main()
