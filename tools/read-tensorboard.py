#!/usr/bin/env python3
"""Reads the event files of a run with TensorBoard's own package and compares every scalar with
metrics.jsonl.

usage: tools/read-tensorboard.py RUN      (needs: pip install tensorboard)
"""
import json
import math
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

KEYS = {
    "train/loss": ("loss", 1.0),
    "train/lr": ("lr", 1.0),
    "train/grad_norm": ("grad_norm", 1.0),
    "train/tokens_per_second": ("tokens_per_second", 1.0),
    "train/peak_memory_gb": ("peak_memory_bytes", 1e9),
    "eval/loss": ("eval_loss", 1.0),
}


def as_f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = pathlib.Path(sys.argv[1])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    wrong = 0
    for tag in events.Tags()["scalars"]:
        key, unit = KEYS[tag]
        expected = [(l["step"], l[key]) for l in lines if key in l]
        seen = [(e.step, e.value) for e in events.Scalars(tag)]
        same = len(expected) == len(seen) and all(
            a == b and (math.isnan(y) if x is None else as_f32(x / unit) == y)
            for (a, x), (b, y) in zip(expected, seen))
        print(f"{tag:26} {len(seen):6} events, {'as' if same else 'NOT as'} metrics.jsonl has them")
        wrong += not same
    missing = [tag for tag, (key, _) in KEYS.items()
               if any(key in l for l in lines) and tag not in events.Tags()["scalars"]]
    if missing:
        print("missing:", ", ".join(missing))
    sys.exit(1 if wrong or missing else 0)


if __name__ == "__main__":
    main()
