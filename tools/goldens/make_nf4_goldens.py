"""Writes tests/data/nf4: what bitsandbytes makes of a few weights.

    python tools/goldens/make_nf4_goldens.py [OUTPUT_FOLDER]

Needs torch and bitsandbytes (made with 0.50.2). Each case is a set of raw little-endian files
<case>.<what>. Dequantised values come from bitsandbytes' generic implementation: its AVX-512 one
is wrong for float32 rows that are no multiple of 64.
"""

import pathlib
import sys

import bitsandbytes.functional as F
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute


def weights():
    generator = torch.Generator().manual_seed(20)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    yield "normal", normal(40, 64)
    yield "blocks_cross_rows", normal(33, 66)
    yield "odd", normal(33, 65)
    yield "one", normal(1, 1)
    yield "two_nested_blocks", normal(300, 64) * torch.logspace(-2, 1, 300).unsqueeze(1)
    table = F.get_4bit_type("nf4", device="cpu")
    halfway = (table[:-1] + table[1:]) / 2
    edges = torch.cat([table, halfway, torch.nextafter(halfway, torch.tensor(2.0)), table, table[:1]])
    yield "table_and_halfway", torch.stack([edges, edges * 0.37, -edges, edges * 1e-20])
    yield "zero_block", torch.cat([normal(1, 64), torch.zeros(1, 64), normal(1, 64) * 1e-3])


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/nf4")
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, tensor):
        (folder / name).write_bytes(tensor.contiguous().numpy().tobytes())

    write("dynamic_map.f32", F.create_dynamic_map())
    for case, w in weights():
        packed, plain = F.quantize_4bit(w, blocksize=64, quant_type="nf4")
        nested_packed, nested = F.quantize_4bit(
            w, blocksize=64, quant_type="nf4", compress_statistics=True
        )
        assert torch.equal(packed, nested_packed)
        absmax = F.dequantize_blockwise(nested.absmax, nested.state2) + nested.offset
        table = F.get_4bit_type("nf4", device="cpu")

        def dequantised(scales):
            return _dequantize_4bit_compute(
                packed.reshape(-1), scales, table, 64, w.shape, torch.float32
            )

        write(f"{case}.w.f32", w)
        write(f"{case}.packed.u8", packed)
        write(f"{case}.absmax.f32", plain.absmax)
        write(f"{case}.dequantised.f32", dequantised(plain.absmax))
        write(f"{case}.absmax_codes.u8", nested.absmax)
        write(f"{case}.nested_absmax.f32", nested.state2.absmax)
        write(f"{case}.offset.f32", nested.offset.reshape(1))
        write(f"{case}.nested_dequantised.f32", dequantised(absmax))
        print(case, tuple(w.shape))


if __name__ == "__main__":
    main()
