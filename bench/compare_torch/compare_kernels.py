#!/usr/bin/env python3
"""Times single kernels of PyTorch beside those that `wgrad bench` times, on one GPU in one run.

    python3 bench/compare_torch/compare_kernels.py --wgrad build/wgrad [--json FILE]

Products in bf16 and in f32 (TF32 off), and causal attention with 32 query heads on 8, forward and
backward, through PyTorch's flash and cuDNN backends. Each time is the median of seven groups of
calls, by CUDA events, after two seconds of work that raise the card's clock.
"""

import argparse
import json
import statistics
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def seconds(call):
    """Of one call: the median of groups that last about 30 ms each."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def group(count):
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / count

    once = group(3)
    count = max(1, min(200, int(0.03 / once)))
    return statistics.median(group(count) for _ in range(7))


def warm_up():
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(3000):
        x @ x
    torch.cuda.synchronize()


def products():
    """Times by the names of wgrad's rows."""
    torch.backends.cuda.matmul.allow_tf32 = False
    times = {}
    for m, n, k in [(4096, 4096, 4096), (512, 4096, 4096)]:
        for dtype, name in [(torch.bfloat16, "product_f16 {} {}x{}x{} (operands packed before)"),
                            (torch.float32, "matmul {} {}x{}x{}")]:
            make = lambda r, c: torch.randn(r, c, device="cuda", dtype=dtype)
            for op, a, b in [("NT", make(m, k), make(n, k).t()), ("NN", make(m, k), make(k, n)),
                             ("TN", make(k, m).t(), make(k, n))]:
                times[name.format(op, m, n, k)] = seconds(lambda: a @ b)
    return times


def attention(backend):
    """Forward, and forward with backward, by (rows, tokens, head_dim)."""
    times = {}
    for rows, tokens in [(4, 2048), (1, 8192)]:
        for dim in (64, 128):
            make = lambda heads: torch.randn(rows, heads, tokens, dim, device="cuda",
                                             dtype=torch.bfloat16, requires_grad=True)
            q, k, v, grad = make(32), make(8), make(8), make(32).detach()

            def forward():
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=True)

            def both():
                forward().backward(grad)
                q.grad = k.grad = v.grad = None

            with torch.no_grad():
                alone = seconds(forward)
            times[rows, tokens, dim] = (alone, seconds(both))
    return times


def wgrad_rows(program):
    command = [program, "bench", "--json", "--rows", "1", "--tokens", "8", "--steps", "1"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row["name"]: row for row in json.loads(output)["kernels"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wgrad", required=True)
    parser.add_argument("--json", help="write the rows here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: PyTorch sees no CUDA device here; run this where it does")
    ours = wgrad_rows(options.wgrad)
    warm_up()
    rows = []

    def add(what, theirs, own):
        rows.append({"what": what, "torch_ms": theirs * 1e3, "wgrad_ms": own * 1e3,
                     "ratio": theirs / own})
        print("| {what} | {torch_ms:.3f} | {wgrad_ms:.3f} | {ratio:.2f} |".format(**rows[-1]))

    print("| what | PyTorch ms | wgrad ms | wgrad's speed / PyTorch's |\n|---|---|---|---|")
    for name, theirs in products().items():
        if name in ours:
            add(name, theirs, ours[name]["seconds"])
    for backend, label in [(SDPBackend.FLASH_ATTENTION, "flash"),
                           (SDPBackend.CUDNN_ATTENTION, "cuDNN")]:
        for (count, tokens, dim), (alone, both) in attention(backend).items():
            name = "attention_{{}} f16 {} x {}, 32/8 heads of {}".format(count, tokens, dim)
            forward, backward = (ours.get(name.format(w)) for w in ("forward", "backward"))
            if forward and backward:
                what = "{} x {}, head_dim {}, beside {}".format(count, tokens, dim, label)
                add("attention forward, " + what, alone, forward["seconds"])
                add("attention forward + backward, " + what, both,
                    forward["seconds"] + backward["seconds"])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
