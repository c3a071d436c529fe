"""Writes the expected values of `tokenization.test.ts`: small tokenizers of each family's style in Hugging Face's own libraries.

    python test/oracle/tokenization.py

Needs transformers; the test does not. Writes `tokenization/<style>/` (a tokenizer directory as transformers saves it) and
`tokenization/<style>.json.gz` (texts with their ids, ids with their text, conversations with their rendering), and `tokenization/snippets.json.gz` (small templates with their rendering).
"""

import gzip
import json
import pathlib
import random
import re
import shutil

import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils.chat_template_utils import render_jinja_template

here = pathlib.Path(__file__).parent / "tokenization"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "Hello, world!", " leading", "trailing ", "two  spaces", "a   b\n\n\n  c \n", "\r\n\r\n x\r\ny\rz",
    "I'll, we'd, DON'T, it'S, they'Re, 'tis, o'clock, rock'n'roll, x'ſ, \u2019s", "1 12 123 1234 12345 3.14 1,000,000 2026-11-21 0x1F",
    "٣٤٥ ४५ ½ Ⅷ ² ①②③ ៤៥", "naïve café résumé", "nai\u0308ve cafe\u0301 re\u0301sume\u0301", "\u212b \u2126 \u212a \ufb01 \u1e9b\u0323 \u0344",
    "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8 가\u11a8", "日本語のテキスト、中文文本。", "العربية عَرَبِيّ", "हिन्दी में पाठ", "ภาษาไทย ไม่มีเว้นวรรค", "שָׁלוֹם",
    "👍 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ☃ 🏴󠁧󠁢󠁳󠁣󠁴󠁿", "a👍b 1👍2 '👍s", "zero\u200bwidth\u200djoin\u2060er\ufeffbom", "\ufeffstart", "a\u00a0b\u3000c\u2003d\u2028e\u2029f\u0085g\u000bh\u000ci\u180ej\u1680k",
    "   \u00a0 x", "\u00a0\u00a0", "\u0085\u0085\n", "\ufeff \ufeff", "\x00\x01\x02\x1b[0m\x7f", "\ue000\uf8ff\U000f0000\U0010fffd", "\ufffd\ufffe\u0378",
    "def f(x):\n    return x**2  # ²\n\n\nclass A:\n\tpass\n", "https://example.org/a?b=c&d=%20#e", "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\\n\"}",
    "!!! ??? ... --- ___ ***", "a_b-c.d/e\\f|g", "$100 €20 £5 ¥7 50% #1 @me", "xyzzy xyzzyx  xyzzy", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\u0301\u0301 a\u0301\u0302\u0323 \u0301",
    "Ünïcödé ÀÉÎ ß ẞ ŉ ǆ Ǆ İ ı ſ", "ᏣᎳᎩ ꮳꮃꭹ ⴀⴁ", "x\u0307\u0323 \u1e0b\u0323", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "<|im_start|><|im_start|>", "a<|endoftext|>b <|endoftext|> c",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<think>\nwhy 👍\n</think>\n\nso", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<think><think></think", " <mask> x <mask>  <mask>y",
    "<pad>  x <pad>", "<|IM_START|> <|im_\u0073tart|> ＜|im_start|＞",
]
PIECES = ["a", "the", "'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "1", "42", "777", "é", "e\u0301", "\u0301", "ß", "中", "語", "한", "\u1112\u1161", "👍", "👩‍👩‍👧", "🏽", "\u200d", "\ufe0f", "\u00a0", "\u3000",
          "\u0085", "\ufeff", "\u2028", ".", "!?", "_", "-", "'", "\"", "<", "|", "<|im_end|>", "<|eot_id|>", "<think>", "</think>", "<mask>", "word", "٣", "½", "ि", "ह", "\x00", "xyzzy", "$"]


def added(*names, special=True, **options):
    return [AddedToken(name, special=special, normalized=False, **options) for name in names]


def style(name):
    if name == "llama3":
        pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS + r"\p{N}{1,3}" + REST), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return None, pre, added("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"), "<|begin_of_text|>", "<|eot_id|>"
    if name == "qwen":
        pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS + r"\p{N}" + REST), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return normalizers.NFC(), pre, added("<|endoftext|>", "<|im_start|>", "<|im_end|>") + added(
            "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", special=False), None, "<|im_end|>"
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return None, pre, added("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>") + added("<mask>", lstrip=True) + added("<pad>", rstrip=True), "<|im_start|>", "<|im_end|>"


# Templates of our own that use what the families' templates use.
CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'Functions, one JSON object a line:' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if call.function %}{%- set call = call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- call.name }}
                {{- '", "arguments": ' }}
                {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "01 Jan 2026" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {%- for name, value in call.arguments | items %}
            {{- name + '=' + (value | tojson) }}
            {%- if not loop.last %}{{- ', ' }}{%- endif %}
        {%- endfor %}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
PLAIN = """{% for message in messages %}
    {% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are terse.<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
TEMPLATES = {"llama3": HEADERS, "qwen": CHATML, "smollm": PLAIN}

TOOL = {"type": "function", "function": {"name": "wetter", "description": "It's \"weather\" <b>&</b> für 東京 👍", "parameters": {
    "type": "object", "properties": {"stadt": {"type": "string", "enum": ["Köln", "東京"]}, "tage": {"type": "number", "default": 1.5}}, "required": []}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "wetter", "arguments": {"stadt": "Köln", "tage": 3, "x": [True, None, {"y": "z\n\"'<"}], "f": 0.5}}}
CHATS = [
    {"messages": [{"role": "user", "content": "  Grüße 👍 \n"}]},
    {"messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "e\u0301?"}]},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n\n</think>\n\nanswer"}], "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "answer", "reasoning_content": "\nhm 🤔\n"}, {"role": "user", "content": "more"}]},
    {"messages": [{"role": "user", "content": "q"}], "variables": {"enable_thinking": False, "date_string": "5 März"}},
]
WITH_TOOLS = [
    {"messages": [{"role": "user", "content": "weather?"}], "tools": [TOOL, TOOL]},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                  {"role": "tool", "content": "{\"grad\": 21}", "tool_call_id": "c1"}, {"role": "assistant", "content": "21°"}], "tools": [TOOL]},
]
PARALLEL = {"messages": [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]},
                         {"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}], "tools": [TOOL]}

# What templates do with values that are not text: each prints as in Python.
SNIPPETS = [
    "{{ {'a': 1, 'b': [1, 2.5, true, none, \"it's\", 'q\"', 'n\\n\\t']} }}{{ [] }}{{ {} }}{{ (1, 'a') }}", "{{ true }} {{ none }} {{ [1, 'a'] }}",
    "{{ messages | string }}{{ messages[0] ~ 'x' }}{{ true ~ none ~ 1.5 }}", "{{ messages }}", "{{ nothing }}{{ nothing ~ 'a' }}|{{ messages[0].nothing }}",
    "{% set x = messages[0] ~ '' %}{{ x | length }}{{ [true, none] | string }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(true) }}{{ m(none) }}{% set y %}{{ false }}{% endset %}{{ y }}",
    "{{ (messages[0].content ~ '!') | upper }}", "{{ 0.5 + 0.25 }} {{ 1 / 3 }} {{ 4 / 2 }} {{ 0.00001 }} {{ 123456789.5 * 10000000000 }}",
    "{{ 'a' in 'abc' }}{{ 'q' not in ['a'] }}{{ messages | length > 1 and not tools }}{{ messages[0]['nothing'] is defined }}",
    "{% for k, v in {'z': 1, 'a': true}.items() %}{{ k }}{{ v }}{% else %}{{ none }}{% endfor %}{% if messages %}{{ 1 == 1 }}{% else %}{{ 2 }}{% endif %}",
    "{% generation %}x{% endgeneration %}y", "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.content }}{{ loop.last }}{% endfor %}",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}", "{% filter upper %}abc{{ true }}{% endfilter %}", "  {% if true %}\n  a\n  {% endif %}\n b\n",
    "{{ messages | map(attribute='content') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
]
VALUES = [{"role": "user", "content": "hallo é"}, {"role": "assistant", "content": "b 👍 \u00a0\u200d it's \x00 \\ \"", "n": None, "t": [True, 1.5, {"k": "'"}]}]
rendered = [{"template": t, "text": render_jinja_template(conversations=[VALUES], chat_template=t, tools=None)[0][0]} for t in SNIPPETS]
here.mkdir(exist_ok=True)
(here / "snippets.json.gz").write_bytes(gzip.compress(json.dumps({"messages": VALUES, "rendered": rendered}).encode(), mtime=0))

corpus = TEXTS + ["the quick brown fox jumps over the lazy dog and the other thing that they say is there "] * 3
for name in ["llama3", "qwen", "smollm"]:
    normalizer, pre, specials, bos, eos = style(name)
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=520, min_frequency=1, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if name == "llama3":
        # A word that no merge reaches: only `ignore_merges` finds it.
        content = json.loads(tokenizer.to_str())
        content["model"]["vocab"]["xyzzy"] = len(content["model"]["vocab"])
        content["model"]["ignore_merges"] = True
        content["model"]["merges"] = [m for m in content["model"]["merges"] if "".join(m) not in ("xy", "xyz", "zy", "zzy", "yzzy", "xyzzy")]
        content["model"]["merges"] = [m for m in content["model"]["merges"] if all("zy" not in part and "xy" not in part for part in m)]
        tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_tokens(specials)
    if bos and name == "llama3":
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, clean_up_tokenization_spaces=False)
    fast.chat_template = TEMPLATES[name]
    shutil.rmtree(here / name, ignore_errors=True)
    fast.save_pretrained(here / name)
    (here / name / "special_tokens_map.json").unlink()
    fast = transformers.AutoTokenizer.from_pretrained(here / name)

    rng = random.Random(3)
    texts = TEXTS + ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 14))) for _ in range(400)]
    # Beside a token that swallows white space the library takes U+0085 and U+FEFF otherwise; see docs/how-to/add-a-base-model.md.
    texts = [t for t in texts if not re.search("[\x85\ufeff]\\s*<mask>|<pad>\\s*[\x85\ufeff]", t)]
    ids = [[rng.randrange(len(fast)) for _ in range(rng.randint(1, 12))] for _ in range(150)]
    chats = CHATS + ([] if name == "smollm" else WITH_TOOLS) + ([PARALLEL] if name == "qwen" else [])
    expected = {
        "versions": {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__},
        "texts": [{"text": t, "ids": fast.encode(t, add_special_tokens=False), "with_special": fast.encode(t)} for t in texts],
        "decoded": [{"ids": i, "text": fast.decode(i), "without_special": fast.decode(i, skip_special_tokens=True)} for i in ids],
        "chats": [{"add_generation_prompt": True, "variables": {}, "tools": None, **chat} for chat in chats],
    }
    for chat in expected["chats"]:
        chat["text"] = fast.apply_chat_template(chat["messages"], tools=chat["tools"], tokenize=False,
                                                add_generation_prompt=chat["add_generation_prompt"], **chat["variables"])
    (here / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode(), mtime=0))
