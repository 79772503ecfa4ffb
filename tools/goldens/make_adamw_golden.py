"""Writes tests/data/adamw/parameters.f32: PyTorch's AdamW after 1,000 steps.

    python tools/goldens/make_adamw_golden.py [OUTPUT_FOLDER]

Needs torch (made with 2.15). Parameters and gradients follow from integers, so that the test makes
the same ones: see `gradient` and `initial`.
"""

import pathlib
import sys

import torch

N = 37
STEPS = 1000


def initial():
    return torch.tensor([(i * 37 % 101 - 50) / 64 for i in range(N)], dtype=torch.float32)


def gradient(step):
    """Multiples of 1/1024 with magnitudes over some decades, exact in f32."""
    return torch.tensor(
        [((i * 7919 + step * 104729) % 2049 - 900) / 1024 * 2.0 ** (i % 9 - 6) for i in range(N)],
        dtype=torch.float32,
    )


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/adamw")
    folder.mkdir(parents=True, exist_ok=True)
    p = torch.nn.Parameter(initial())
    optimizer = torch.optim.AdamW(
        [p], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False
    )
    for step in range(1, STEPS + 1):
        p.grad = gradient(step)
        optimizer.step()
    (folder / "parameters.f32").write_bytes(p.detach().numpy().tobytes())


if __name__ == "__main__":
    main()
