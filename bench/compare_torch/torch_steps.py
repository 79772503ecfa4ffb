"""The PyTorch side of compare_torch: times training steps of one model shape and method.

speed    the cases given as JSON, one after the other; prints a JSON line a case
fit      the longest row that trains within a limit of memory
"""
import argparse
import gc
import json
import statistics
import time

import torch
import transformers

WARM_STEPS = 3
WARM_SECONDS = 1.0
FIT_STEPS = 2


def quantise(model):
    """Makes all linear layers but the head NF4 with double quantisation, by bitsandbytes."""
    import bitsandbytes as bnb
    for name, old in list(model.named_modules()):
        if not isinstance(old, torch.nn.Linear) or old is model.get_output_embeddings():
            continue
        new = bnb.nn.Linear4bit(old.in_features, old.out_features, bias=old.bias is not None,
                                compute_dtype=torch.bfloat16, quant_type="nf4", device="meta")
        new.weight = bnb.nn.Params4bit(old.weight.data, requires_grad=False, quant_type="nf4",
                                       compress_statistics=True, module=new)
        if old.bias is not None:
            new.bias = old.bias
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, new.to(old.weight.device))
        old.weight = None
    model.is_loaded_in_4bit = True


class Trainee:
    """A model of random weights, its optimizer, and one training step."""

    def __init__(self, options):
        self.device = torch.device(options.device)
        config = transformers.AutoConfig.from_pretrained(options.config)
        full = options.method == "full"
        weights = torch.float32 if full and options.full_weights == "f32" else torch.bfloat16
        self.autocast = weights == torch.float32 or options.adapter == "f32"
        self.vocabulary = config.vocab_size
        with self.device:
            model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=weights, attn_implementation="sdpa")
        if options.method == "qlora":
            quantise(model)
        if not full:
            from peft import LoraConfig, get_peft_model
            lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank,
                              target_modules="all-linear", task_type="CAUSAL_LM")
            model = get_peft_model(model, lora,
                                   autocast_adapter_dtype=options.adapter == "f32")
        self.model = model.train()
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, weight_decay=0.01, fused=True)

    def recompute(self, how):
        if how == "block":
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            self.model.gradient_checkpointing_disable()

    def random_ids(self, rows, tokens):
        return torch.randint(self.vocabulary, (rows, tokens), device=self.device)

    def step(self, ids):
        """Rows of equal length: no padding and no mask, so that attention takes its fast path."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def forget(self):
        self.optimizer.zero_grad()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def synchronise(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def kernel_times(trainee, ids):
    """Seconds by kernel of one step, by the device's clock."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainee.step(ids)
        trainee.synchronise()
    return {event.key: event.self_device_time_total / 1e6 for event in profile.key_averages()
            if event.self_device_time_total > 0}


def speed(trainee, case, steps):
    trainee.recompute(case["recompute"])
    ids = trainee.random_ids(case["rows"], case["tokens_a_row"])
    start = time.perf_counter()
    warm = 0
    while warm < WARM_STEPS or time.perf_counter() - start < WARM_SECONDS:
        loss = trainee.step(ids)
        trainee.synchronise()
        warm += 1
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        trainee.step(ids)
        trainee.synchronise()
        seconds.append(time.perf_counter() - start)
    result = {"seconds": statistics.median(seconds), "loss": loss}
    result["tokens_per_second"] = ids.numel() / result["seconds"]
    if trainee.device.type == "cuda":
        result["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        result["reserved_memory_bytes"] = torch.cuda.max_memory_reserved()
        result["kernels"] = kernel_times(trainee, ids)
        result["gpu_seconds"] = sum(result["kernels"].values())
    return result


def attempted(trainee, work):
    """What work() returns; running out of memory is a result too."""
    try:
        result = work()
    except torch.OutOfMemoryError:
        result = {"error": "out of memory"}
    trainee.forget()
    return result


def fits(trainee, tokens):
    ids = trainee.random_ids(1, tokens)
    for _ in range(FIT_STEPS):
        trainee.step(ids)


def longest_row(trainee, limit_bytes, unit, most):
    """The longest row, in units, whose steps run within the limit."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))

    def fit(units):
        return attempted(trainee, lambda: fits(trainee, units * unit)) is None

    low, high = 0, 1
    while high * unit <= most and fit(high):
        low, high = high, 2 * high
    high = min(high, most // unit + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    torch.cuda.set_per_process_memory_fraction(1.0)
    return low * unit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "fit"])
    parser.add_argument("--config", required=True, help="folder of config.json")
    parser.add_argument("--method", choices=["lora", "qlora", "full"], required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--adapter", choices=["f32", "bf16"], required=True)
    parser.add_argument("--full-weights", choices=["f32", "bf16"], required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cases", type=json.loads, required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    trainee = Trainee(options)
    for case in options.cases:
        trainee.forget()
        if options.what == "speed":
            result = attempted(trainee, lambda: speed(trainee, case, options.steps))
        else:
            trainee.recompute("block")
            result = {"tokens": longest_row(trainee, case["limit_bytes"], case["unit"],
                                            case["most"])}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
