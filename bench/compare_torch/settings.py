"""What the parts of compare_torch share."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COMPARE_CPU = os.path.join(ROOT, "bench", "compare_cpu")
sys.path.insert(0, COMPARE_CPU)

WGRAD = os.path.join(ROOT, "build", "wgrad")
SHAPES = ["smollm2-135m", "llama-3.2-1b", "qwen3-4b", "llama-3.1-8b"]
METHODS = ["lora", "qlora", "full"]


def shape_config(wgrad, model):
    """The config.json of a shape, as wgrad has it."""
    return json.loads(subprocess.check_output([wgrad, "bench", "--show-config", "--shape", model]))
