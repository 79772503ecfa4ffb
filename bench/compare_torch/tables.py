"""Markdown tables of compare_torch's results."""
import json
import re

# A kernel belongs to the first part whose pattern its name has; PyTorch's names and wgrad's.
PARTS = [
    ("attention", r"attention|flash|fmha|sdpa"),
    ("NF4", r"nf4|kdequantize|kgemm_4bit"),
    ("products", r"matmul|matvec|gemm|gemv|nvjet|cutlass|xmma|splitk|cublas"),
    ("packing", r"pack_|f16_convert|amax"),
    ("loss", r"cross_entropy|softmax|nll"),
    ("optimizer", r"adam|multi_tensor|norm_partial|norm_total|clip"),
    ("other", r""),
]


def read(paths):
    results = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            results += [json.loads(line) for line in lines if line.startswith("{")]
    return results


def pairs(results, what, keys):
    """{case: {program: result}} in the order of the results."""
    found = {}
    for result in results:
        if result["what"] == what:
            found.setdefault(tuple(result[k] for k in keys), {})[result["program"]] = result
    return found


def table(head, rows):
    if not rows:
        return
    print("\n| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def shown(result, key, form, scale=1.0):
    return form.format(result[key] * scale) if result and key in result else ""


def shown_or_error(result, key, form, scale=1.0):
    if result and "error" in result:
        return result["error"].splitlines()[-1][:60].replace("|", "/")
    return shown(result, key, form, scale)


def ratio(ours, theirs, key):
    if ours and theirs and ours.get(key) and theirs.get(key):
        return f"{ours[key] / theirs[key]:.2f}"
    return ""


def outside_gpu(result):
    """The share of a step in which the device ran no kernel."""
    if not result or not result.get("gpu_seconds"):
        return ""
    share = result.get("outside_gpu", max(0.0, 1 - result["gpu_seconds"] / result["seconds"]))
    return f"{100 * share:.0f}%"


def show_speed(results):
    rows = []
    keys = ("model", "method", "recompute", "rows", "tokens_a_row")
    for case, by in pairs(results, "speed", keys).items():
        ours, theirs = by.get("wgrad"), by.get("torch")
        model, method, recompute, count, length = case
        rows.append([
            model, method, recompute, f"{count} x {length}",
            shown_or_error(ours, "seconds", "{:.1f}", 1e3),
            shown_or_error(theirs, "seconds", "{:.1f}", 1e3),
            shown(ours, "tokens_per_second", "{:.0f}"),
            shown(theirs, "tokens_per_second", "{:.0f}"),
            ratio(ours, theirs, "tokens_per_second"),
            shown(ours, "peak_memory_bytes", "{:.2f}", 1e-9),
            shown(theirs, "peak_memory_bytes", "{:.2f}", 1e-9),
            shown(theirs, "reserved_memory_bytes", "{:.2f}", 1e-9),
            ratio(ours, theirs, "peak_memory_bytes"), outside_gpu(ours), outside_gpu(theirs)])
    table(["model", "method", "recompute", "rows", "ms wgrad", "ms PyTorch", "tokens/s wgrad",
           "tokens/s PyTorch", "speed ratio", "GB wgrad", "GB PyTorch", "(reserved)",
           "memory ratio", "outside GPU wgrad", "PyTorch"], rows)


def by_part(kernels):
    parts = {name: 0.0 for name, _ in PARTS}
    for kernel, seconds in kernels.items():
        part = next(name for name, pattern in PARTS if re.search(pattern, kernel.lower()))
        parts[part] += seconds
    return parts


def show_parts(results):
    rows = []
    for result in results:
        if not result.get("kernels"):
            continue
        parts = by_part(result["kernels"])
        rows.append([result["model"], result["method"], result["recompute"],
                     f"{result['rows']} x {result['tokens_a_row']}", result["program"],
                     *(f"{seconds * 1e3:.1f}" for seconds in parts.values())])
    rows.sort(key=lambda row: row[:4])
    table(["model", "method", "recompute", "rows", "GPU ms of", *(name for name, _ in PARTS)],
          rows)


def show_longest(results):
    rows = []
    for case, by in pairs(results, "fit", ("model", "method", "gigabytes")).items():
        ours, theirs = by.get("wgrad"), by.get("torch")
        rows.append([case[0], case[1], f"{case[2]} GB", shown_or_error(ours, "tokens", "{:.0f}"),
                     shown_or_error(theirs, "tokens", "{:.0f}"), ratio(ours, theirs, "tokens")])
    table(["model", "method", "memory", "longest row wgrad", "PyTorch", "ratio"], rows)


def show_agreement(results):
    rows = []
    for case, by in pairs(results, "agree", ("model", "method")).items():
        ours = by["wgrad"]
        if "error" in ours:
            rows.append([*case, ours["error"], "", "", "", ""])
            continue
        losses = [" ".join(f"{loss:.5f}" for loss in by[name]["losses"])
                  for name in ("torch f32", "torch", "wgrad")]
        rows.append([*case, *losses, f"{by['torch']['difference']:.1e}",
                     f"{ours['difference']:.1e} {'agrees' if ours['agrees'] else 'DIFFERS'}"])
    table(["model", "method", "losses PyTorch f32", "PyTorch bf16", "wgrad", "bf16 off by",
           "wgrad off by"], rows)


def all_agree(results):
    return all(result.get("agrees") for result in results
               if result["what"] == "agree" and result["program"] == "wgrad")


def show(results):
    show_speed(results)
    show_parts(results)
    show_longest(results)
    show_agreement(results)
