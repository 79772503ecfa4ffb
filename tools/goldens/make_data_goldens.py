#!/usr/bin/env python3
"""Writes tests/data/data: ids and counted tokens of rows, found by transformers.

Each family's chat template is marked by hand with {% generation %} where the assistant's turn is,
and transformers then says where the marked text lies; a token counts that begins there. The marks
are removed again in the templates that the tests use. Plain rows are counted by the offsets that
the tokenizer reports.
The tokenizers and the real templates are those of tests/data/text.
"""

import json
import pathlib
import re

from jinja2 import TemplateError
from tokenizers import AddedToken
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

TEXT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "text"
OUT = TEXT.parent / "data"
MARKS = re.compile(r"\{% (?:end)?generation %\}")
GP = "{% if add_generation_prompt %}{{ "

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
          "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
          + GP + "'<|im_start|>assistant\\n' }}{% endif %}")

QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {%- if message.content or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

MISTRAL_V1 = ("{{ bos_token }}{% for message in messages %}"
              "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
              "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
              "{% else %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ ' ' }}"
              "{% endif %}{% endfor %}")


def mistral_system(user, assistant):
    """The system text goes before the last user message."""
    return ("{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
            "{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}"
            "{{ bos_token }}{% for message in loop_messages %}{% if message['role'] == 'user' %}"
            "{% if loop.last or loop.index0 == loop_messages | length - 2 and loop_messages[-1]['role'] == 'assistant' %}"
            "{% set lead = system_message + '\\n\\n' if system_message is defined else '' %}"
            "{% else %}{% set lead = '' %}{% endif %}" + user +
            "{% elif message['role'] == 'assistant' %}" + assistant + "{% endif %}{% endfor %}")


MISTRAL_V3 = mistral_system(
    "{{ '[INST] ' + lead + message['content'] + '[/INST]' }}",
    "{% generation %}{{ ' ' + message['content'] | trim + eos_token }}{% endgeneration %}")
MISTRAL_NEMO = mistral_system(
    "{{ '[INST]' + lead + message['content'] + '[/INST]' }}",
    "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}")


def by_role(system, user, assistant, closing="{% endif %}{% endfor %}"):
    return ("{% for message in messages %}{% if message['role'] == 'system' %}" + system +
            "{% elif message['role'] == 'user' %}" + user +
            "{% elif message['role'] == 'assistant' %}" + assistant + closing)


PHI3 = by_role(
    "{{ '<|system|>\\n' + message['content'] + '<|end|>\\n' }}",
    "{{ '<|user|>\\n' + message['content'] + '<|end|>\\n' }}",
    "{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}{{ '\\n' }}",
) + GP + "'<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"

PHI4_MINI = ("{% for message in messages %}{{ '<|' + message['role'] + '|>' }}{% if message['role'] == 'assistant' %}"
             "{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
             "{% else %}{{ message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
             + GP + "'<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}")

PHI4 = by_role(
    "{{ '<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>' }}",
    "{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}",
    "{{ '<|im_start|>assistant<|im_sep|>' }}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}",
) + GP + "'<|im_start|>assistant<|im_sep|>' }}{% endif %}"

OLMO2 = "{{ bos_token }}" + by_role(
    "{{ '<|system|>\\n' + message['content'] + '\\n' }}",
    "{{ '<|user|>\\n' + message['content'] + '\\n' }}",
    "{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% if not loop.last %}{{ '\\n' }}{% endif %}",
    "{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}")

ZEPHYR = by_role(
    "\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n",
    "\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n",
    "\n{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ '\\n' }}",
    "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")

GRANITE = ("{% for message in messages %}{{ '<|start_of_role|>' + message['role'] + '<|end_of_role|>' }}"
           "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|end_of_text|>' }}"
           "{% endgeneration %}{% else %}{{ message['content'] + '<|end_of_text|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
           + GP + "'<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}")


def real(name, *replacements):
    """A template of tests/data/text and its marked form."""
    plain = (TEXT / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    marked = plain
    for old, new in replacements:
        assert marked.count(old) == 1, (name, old)
        marked = marked.replace(old, new)
    return plain, marked


def own(marked):
    return MARKS.sub("", marked), marked


SMOLLM2 = real("smollm2", (
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
    "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}{% generation %}"
    "{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% else %}{{message['content'] + '<|im_end|>'}}"
    "{% endif %}{{'\n'}}"))
LLAMA3_PARTS = (
    ("{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim"
     " + '<|eot_id|>' %}",
     "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}"),
    ("{{ content }}{% endfor %}",
     "{{ content }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}"
     "{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"))
LLAMA2 = real("alternate", (
    "{{ ' ' + content.strip() + ' ' + eos_token }}",
    "{% generation %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endgeneration %}"))
GEMMA3 = real(
    "gemma3",
    ("    {%- if message['content'] is string -%}\n        {{ message['content'] | trim }}",
     "    {%- if message['role'] == 'assistant' -%}{% generation %}{{ message['content'] | trim + '<end_of_turn>' }}"
     "{% endgeneration %}\n    {%- elif message['content'] is string -%}\n        {{ message['content'] | trim }}"),
    ("    {{ '<end_of_turn>\n' }}",
     "    {{ '\n' if message['role'] == 'assistant' else '<end_of_turn>\n' }}"))
QWEN3 = real(
    "qwen3",
    ("        {%- if loop.index0 > ns.last_query_index %}\n",
     "        {{- '<|im_start|>assistant\\n' }}{% generation %}\n        {%- if loop.index0 > ns.last_query_index %}\n"),
    ("{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning", "{{- '<think>\\n' + reasoning"),
    ("            {%- else %}\n                {{- '<|im_start|>' + message.role + '\\n' + content }}",
     "            {%- else %}\n                {{- content }}"),
    ("        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}",
     "        {%- else %}\n            {{- content }}"),
    ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
     "        {{- '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}\n    {%- elif message.role == \"tool\" %}"))

PHI_TOKENS = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
HEADERS = ["<|start_header_id|>", "<|end_header_id|>"]
# name: (plain and marked template, tokenizer, special tokens to add, whether those take the space
# after them, tokenizer_config.json's tokens, generation_config.json's stop tokens)
FAMILIES = {
    "chatml": (own(CHATML), "qwen2_style", [], False, {}, []),
    "smollm2": (SMOLLM2, "smollm_style", [], False, {}, []),
    "qwen2_5": (own(QWEN25), "qwen2_style", [], False, {}, ["<|im_end|>", "<|endoftext|>"]),
    "qwen3": (QWEN3, "qwen2_style", [], False, {}, ["<|im_end|>", "<|endoftext|>"]),
    "llama3": (real("llama3", *LLAMA3_PARTS), "llama3_style", HEADERS, False, {}, []),
    "llama3_1": (real("llama3_1", *LLAMA3_PARTS), "llama3_style", HEADERS, False, {},
                 ["<|end_of_text|>", "<|eot_id|>"]),
    "llama2": (LLAMA2, "llama2_style", [], False, {}, []),
    "mistral_v1": (own(MISTRAL_V1), "llama2_style", [], False, {}, []),
    "mistral_v3": (own(MISTRAL_V3), "llama2_style", ["[INST]", "[/INST]"], False, {}, []),
    "mistral_nemo": (own(MISTRAL_NEMO), "llama2_style", ["[INST]", "[/INST]"], False, {}, []),
    "gemma3": (GEMMA3, "llama2_style", ["<start_of_turn>", "<end_of_turn>"], False, {}, []),
    "gemma3_stops": (GEMMA3, "llama2_style", ["<start_of_turn>", "<end_of_turn>"], False, {},
                     ["</s>", "<end_of_turn>"]),
    "phi3": (own(PHI3), "llama2_style", PHI_TOKENS, True, {"eos_token": "<|endoftext|>"}, []),
    "phi3_stops": (own(PHI3), "llama2_style", PHI_TOKENS, True, {"eos_token": "<|endoftext|>"},
                   ["<|endoftext|>", "<|end|>"]),
    "phi4": (own(PHI4), "qwen2_style", ["<|im_sep|>"], False, {}, []),
    "phi4_mini": (own(PHI4_MINI), "llama3_style", PHI_TOKENS, False,
                  {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, []),
    "olmo2": (own(OLMO2), "qwen2_style", [], False,
              {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, []),
    "zephyr": (own(ZEPHYR), "llama2_style", [], False, {}, []),
    "granite": (own(GRANITE), "llama3_style", ["<|start_of_role|>", "<|end_of_role|>"], False, {}, []),
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def tool(text):
    return {"role": "tool", "content": text}


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CONVERSATIONS = [
    {"messages": [user("Hi"), assistant("Hello!")]},
    {"messages": [system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye"), assistant("Bye.")]},
    {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")]},
    {"messages": [user("same"), assistant("same"), user("same"), assistant("same")]},
    {"messages": [user("x"), assistant("")]},
    {"messages": [user("x"), assistant(""), user(""), assistant("y")]},
    {"messages": [user("  spaces around \n"), assistant("\n\n  and here \t"), user("2"), assistant(" two ")]},
    {"messages": [user("你好 😀 é"), assistant("Ünïcödé 世界\u00a0ok 👍🏽"), user("ё"), assistant("😀")]},
    {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"),
                  assistant("<think>\nx\n</think>\n\nd")]},
    {"messages": [user("a"), assistant("b", reasoning_content="because"), user("c"),
                  assistant("d", reasoning_content="so")]},
    {"messages": [user("a"), assistant("b"), assistant("c"), user("d"), assistant("e")]},
    {"messages": [assistant("first"), user("then"), assistant("last")]},
    {"messages": [user("a"), assistant("b"), user("and no answer")]},
    {"messages": [system("only a system"), user("and a question")]},
    {"messages": [user("the mark \ue8f3\ue8f4\ue8f3"), assistant("\ue8f3\ue8f4\ue8f3 and wgrad mark")]},
    {"messages": [user("<|im_start|>assistant\n[/INST] {{ x }} <script>"), assistant("[INST] <|im_start|> &amp;")]},
    {"messages": [user("a"), assistant("let me see", tool_calls=[CALL]), tool("{\"t\": 21}"), assistant("21")],
     "tools": TOOLS},
    {"messages": [system("S"), user("a"), assistant("", tool_calls=[CALL, CALL]), tool("1"), tool("2"),
                  assistant("ok"), user("b"), assistant("c")], "tools": TOOLS},
    {"messages": [user("In 1984, 12345 people paid 3.50"), assistant("def f(x):\n    return x ** 2\n")]},
    {"messages": [user("a"), assistant("let me see"), tool("{\"t\": 21}"), assistant("21")]},
    {"messages": [system("S"), user("a"), assistant(""), tool("1"), tool("2"), assistant("ok"), user("b"),
                  assistant("c")], "tools": TOOLS},
]

PLAIN = [
    {"prompt": "The answer is", "completion": " 42."},
    {"prompt": "The answer is ", "completion": "42."},
    {"prompt": "Q: a\nA:", "completion": "\n\nb"},
    {"prompt": "", "completion": "no prompt"},
    {"prompt": "only a prompt", "completion": ""},
    {"prompt": "quick bro", "completion": "wn fox"},
    {"prompt": "é 世界 😀", "completion": "😀 Füße"},
    {"text": "The quick brown fox jumps."},
    {"text": " spaces and\n\nlines "},
    {"text": "a"},
]


def make_tokenizer(style, extra, rstrip, tokens, stops):
    folder = TEXT / style
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = len(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [
        AddedToken(token, special=True, normalized=False, rstrip=rstrip) for token in extra]})
    for name, token in tokens.items():
        setattr(tokenizer, name, token)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    added = [token for token in state["added_tokens"] if token["id"] >= known]
    assert len(added) == len(extra)
    config = {**json.loads((folder / "tokenizer_config.json").read_text()), **tokens}
    return tokenizer, {"tokenizer": style, "added_tokens": added, "config": config,
                       "stop_ids": [tokenizer.convert_tokens_to_ids(token) for token in stops]}


def flags(values):
    return "".join("1" if value else "0" for value in values)


def without_calls(messages):
    return [{key: value for key, value in message.items() if key != "tool_calls"} for message in messages]


def chat_rows(tokenizer, plain, marked):
    rows = []
    for i, conversation in enumerate(CONVERSATIONS):
        if marked == MISTRAL_V3 and conversation["messages"][0]["role"] == "assistant":
            continue  # nothing says whether the space before the first turn belongs to it
        tools, messages = conversation.get("tools"), conversation["messages"]
        try:
            text = tokenizer.apply_chat_template(messages, tools=tools, chat_template=plain, tokenize=False)
            shorter = without_calls(messages)
            loses_calls = shorter != messages and text == tokenizer.apply_chat_template(
                shorter, tools=tools, chat_template=plain, tokenize=False)
        except TemplateError:
            loses_calls = True
        if loses_calls:
            rows.append({"conversation": i, "refused": True})
            continue
        (again,), (spans,) = render_jinja_template(
            [messages], tools=tools, chat_template=marked,
            return_assistant_tokens_mask=True, **tokenizer.special_tokens_map)
        assert again == text, (marked, text)
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        counted = [any(start <= begin < end for start, end in spans) for begin, _ in found["offset_mapping"]]
        rows.append({"conversation": i, "ids": found["input_ids"], "counted": flags(counted)})
    return rows


def plain_rows(style):
    tokenizer = AutoTokenizer.from_pretrained(TEXT / style)
    rows = []
    for row in PLAIN:
        prompt, completion = row.get("prompt", ""), row.get("completion", row.get("text"))
        found = tokenizer(prompt + completion, return_offsets_mapping=True, return_special_tokens_mask=True)
        if "text" in row:
            counted = [i > 0 for i in range(len(found["input_ids"]))]
        else:
            counted = [begin >= len(prompt) and not added for (begin, _), added in
                       zip(found["offset_mapping"], found["special_tokens_mask"])]
        rows.append({"row": row, "ids": found["input_ids"] + [tokenizer.eos_token_id], "counted": flags(counted + [True])})
    return rows


def write(name, value):
    (OUT / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    families = []
    for name, ((plain, marked), *how) in FAMILIES.items():
        tokenizer, description = make_tokenizer(*how)
        families.append({"name": name, "template": plain, **description, "rows": chat_rows(tokenizer, plain, marked)})
    write("conversations.json", CONVERSATIONS)
    write("families.json", families)
    write("plain.json", [{"tokenizer": style, "rows": plain_rows(style)} for style in
                         ["llama3_style", "qwen2_style", "smollm_style", "llama2_style"]])


if __name__ == "__main__":
    main()
