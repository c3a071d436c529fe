"""Renders random conversations with the chat templates of released models, as transformers does: expected values of `test/real/templates`.

    python test/oracle/real-templates.py <output directory> <template or directory>...

Needs transformers 5 and jinja2. Templates are `*.jinja` files and the `chat_template` of `tokenizer_config.json` files; directories are
searched. Writes one `<name>.json.gz` for each template: its source, the special tokens, and 200 conversations (`--count`) from a fixed
seed, each with two results of Python. `exact` renders precisely the given variables, `applied` what `apply_chat_template` makes of them:
keys of messages that are null are dropped, and the reasoning gets its other names. A result is a text, or the error that Python raises.

Three of five conversations are regular (roles alternate, tool results follow calls), the others are arbitrary. Each conversation has its own
habits: lists of text parts or not, arguments as objects or as JSON text, and the content of messages with tool calls.
"""

import argparse
import gzip
import hashlib
import json
import pathlib
import random
import re
import warnings
from datetime import datetime

import jinja2
import transformers
from transformers.utils import chat_template_utils

warnings.simplefilter("ignore")
# The day that `strftime_now` returns; the test sets its clock to it.
NOW = datetime(2026, 2, 3, 4, 5, 6)

TEXTS = [
    "", " ", "\n", "Hello!", "  leading and trailing  ", "\n\nlines\n\n  indented\n\ttab\n", "Grüße, 世界 👍🏽 é e\u0301", "It's \"quoted\" \\ and / <b>&amp;</b>",
    "first\r\nsecond\u2028third\x0bfourth", "1", "0.5", "None", "true", "[]", "{\"a\": 1}", "{{ user }} {% if x %} {# c #}", "<think>\nhm\n</think>\n\nanswer",
    "</think>after", "<think>open", "before</think>middle</think>end", "<|im_start|>user\nhi<|im_end|>", "[INST] x [/INST]", "<tool_response>x</tool_response>",
    "/no_think", "/think please", "what is 2 + 2?", "a " * 40, "\u00a0no-break\u3000", "\ufeffmark", "def f(x):\n    return x\n", "ИЖ ß İ ΑΣ", "---", "%s %d {0}",
]
NAMES = ["get_weather", "search", "add", "ipython", "python", "browser.search", "brave_search", "überprüfen", "final"]
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "ipython", "tool_response", "observation"]


class Conversations:
    def __init__(self, seed: str):
        self.rng = random.Random(hashlib.sha256(seed.encode()).digest())

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def text(self) -> str:
        if self.chance(0.5):
            return self.rng.choice(TEXTS)
        return self.rng.choice(["", " ", "\n"]).join(self.rng.choice(TEXTS) for _ in range(self.rng.randint(1, 3)))

    def content(self, wild: bool):
        """A text, a list of text parts if the conversation has lists, or, only if `wild`, null and lists of texts."""
        kind = self.rng.random()
        if not self.has_lists or kind < 0.7:
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(1, 3))]
        if not wild or kind < 0.93:
            return parts
        return self.rng.choice([None, [], [self.text()], "", parts])

    def value(self, depth: int = 0):
        choices = [self.text, lambda: self.rng.randint(-5, 10**6), lambda: self.rng.choice([0.5, -2.25, 1e-7, 1.5e20, 3.14159, 1.0, -0.0]), lambda: self.chance(0.5),
                   lambda: None]
        if depth < 2:
            choices += [lambda: [self.value(depth + 1) for _ in range(self.rng.randint(0, 3))],
                        lambda: {key: self.value(depth + 1) for key in self.rng.sample(["x", "ключ", "a b", "items", "type", "10", "9"], self.rng.randint(0, 3))}]
        return self.rng.choice(choices)()

    def arguments(self, wild: bool):
        keys = self.rng.sample(["city", "query", "n", "größe", "nested", "code", "items"], self.rng.choice([0, 1, 1, 2, 3]))
        value = {key: self.value() for key in keys}
        if self.chance(0.05) and wild:
            return self.rng.choice([None, "", "{", [1], "text"])
        if self.argument_form == "object" or (self.argument_form == "mixed" and self.chance(0.5)):
            return value
        return json.dumps(value, ensure_ascii=self.chance(0.5), separators=self.rng.choice([None, (",", ":")]))

    def schema(self, depth: int = 0) -> dict:
        kinds = ["string", "number", "integer", "boolean", "enum", "union", "const", "bare"] + (["object", "array", "ref", "map"] if depth < 2 else [])
        kind = self.rng.choice(kinds) if self.chance(0.5) else "string"
        schema: dict = {"type": kind}
        if kind == "object":
            properties = {name: self.schema(depth + 1) for name in self.rng.sample(["a", "b_c", "größe", "items", "type", "name"], self.rng.randint(0, 3))}
            schema["properties"] = properties
            if self.chance(0.5):
                schema["required"] = [name for name in properties if self.chance(0.6)]
        elif kind == "array":
            schema["items"] = self.schema(depth + 1)
        elif kind == "enum":
            schema = {"type": "string", "enum": self.rng.choice([["celsius", "fahrenheit"], ["ü", "\"", "\n"], [1, 2, None]])}
        elif kind == "union":
            schema = self.rng.choice([{"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"oneOf": [{"type": "integer"}, {"enum": ["x"]}]}])
        elif kind == "const":
            schema = {"const": self.rng.choice(["x", 3, None, {"k": [1]}])}
        elif kind == "ref":
            schema = {"$ref": "#/$defs/Node"}
        elif kind == "map":
            schema = {"type": "object", "additionalProperties": self.rng.choice([{"type": "string"}, True, False])}
        elif kind == "bare":
            schema = {}
        if self.chance(0.5):
            schema["description"] = self.text()
        if self.chance(0.2):
            schema["default"] = self.value(1)
        if self.chance(0.1):
            schema["nullable"] = self.chance(0.5)
        return schema

    def tool(self, wild: bool) -> dict:
        properties = {name: self.schema() for name in self.rng.sample(["city", "query", "n", "größe", "nested", "unit"], self.rng.randint(0, 4))}
        parameters: dict = {"type": "object", "properties": properties}
        if self.chance(0.7):
            parameters["required"] = [name for name in properties if self.chance(0.5)]
        if self.chance(0.2):
            parameters |= {"$defs": {"Node": {"type": "object", "properties": {}}}, "additionalProperties": False}
        function: dict = {"name": self.rng.choice(NAMES), "description": self.text(), "parameters": parameters}
        if self.chance(0.15):
            function["strict"] = True
        if self.chance(0.1):
            function["return"] = {"type": "string", "description": "text"}
        if wild:
            for key in ("description", "parameters"):
                if self.chance(0.1):
                    del function[key]
            if self.chance(0.1):
                return function
        return {"type": "function", "function": function}

    def call(self, wild: bool) -> dict:
        call = {"id": f"call{self.rng.randint(0, 99999):05d}", "type": "function", "function": {"name": self.rng.choice(NAMES), "arguments": self.arguments(wild)}}
        if wild:
            for key in ("id", "type"):
                if self.chance(0.2):
                    del call[key]
            if self.chance(0.05):
                return call["function"]
        return call

    def assistant(self, wild: bool, calls: int) -> dict:
        message: dict = {"role": "assistant", "content": self.content(wild)}
        if calls > 0:
            message["tool_calls"] = [self.call(wild) for _ in range(calls)]
            beside_calls = self.rng.choice(["text", "null", "absent", "empty"]) if self.beside_calls == "mixed" else self.beside_calls
            if beside_calls == "null":
                message["content"] = None
            elif beside_calls == "empty":
                message["content"] = ""
            elif beside_calls == "absent":
                del message["content"]
        if self.chance(0.35):
            message[self.rng.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = self.text()
        return message

    def regular(self) -> list[dict]:
        messages: list[dict] = []
        if self.chance(0.5):
            messages.append({"role": "system" if self.chance(0.9) else "developer", "content": self.content(False)})
        for turn in range(self.rng.randint(1, 4)):
            messages.append({"role": "user", "content": self.content(False)})
            while self.has_calls and self.chance(0.4):
                calls = self.assistant(False, self.rng.choice([1, 1, 1, 2]))
                messages.append(calls)
                for call in calls["tool_calls"]:
                    message = {"role": "tool", "tool_call_id": call["id"], "content": self.content(False) if self.chance(0.6) else json.dumps(self.value())}
                    if self.chance(0.5):
                        message["name"] = call["function"]["name"]
                    messages.append(message)
                if self.chance(0.15):
                    return messages
            if turn == 0 or self.chance(0.75):
                messages.append(self.assistant(False, 0))
        if self.chance(0.6) and messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": self.content(False)})
        return messages

    def arbitrary(self) -> list[dict]:
        messages: list[dict] = []
        for _ in range(self.rng.randint(1, 7)):
            role = self.rng.choices(ROLES, [2, 1, 6, 6, 3, 0.3, 0.3, 0.2, 0.2])[0]
            if role == "assistant":
                messages.append(self.assistant(True, self.rng.choice([0, 0, 0, 1, 2])))
                continue
            message: dict = {"role": role, "content": self.content(True)}
            if role == "tool" and self.chance(0.7):
                message["tool_call_id"] = "call00001"
            if self.chance(0.15):
                message["name"] = self.rng.choice(NAMES)
            if self.chance(0.03):
                del message["content"]
            messages.append(message)
        return messages

    def cohere_tool(self) -> dict:
        definitions = {name: {"type": self.rng.choice(["str", "int", "List[str]"]), "required": self.chance(0.5), "description": self.text()} for name in
                       self.rng.sample(["city", "query", "n"], self.rng.randint(0, 3))}
        return {"name": self.rng.choice(NAMES), "description": self.text(), "parameter_definitions": definitions}

    def variables(self, source: str) -> dict:
        wild = self.chance(0.4)
        self.has_lists = self.chance(0.3)
        self.has_calls = self.chance(0.6)
        self.argument_form = self.rng.choices(["object", "text", "mixed"], [6, 3, 1])[0]
        self.beside_calls = self.rng.choice(["text", "null", "absent", "empty", "mixed"])
        result: dict = {"messages": self.arbitrary() if wild else self.regular(), "add_generation_prompt": self.chance(0.6)}
        result["tools"] = [self.tool(wild) for _ in range(self.rng.randint(1, 3))] if self.chance(0.55) else None
        if "parameter_definitions" in source and self.chance(0.8):
            result["tools"] = [self.cohere_tool() for _ in range(self.rng.randint(1, 3))]
        result["documents"] = None
        optional = {
            "enable_thinking": [True, False], "thinking": [True, False], "date_string": ["26 Jul 2024"], "current_date": ["2026-02-03"],
            "documents": [[{"title": "Title", "text": "Text\n of é"}, {"title": "", "text": ""}], [{"doc_id": 1, "text": "a", "snippet": "s"}]],
            "reasoning_effort": ["low", "medium", "high", "none"], "model_identity": ["You are a test."], "builtin_tools": [["python"], ["browser", "python"]],
            "tools_in_user_message": [True, False], "custom_tools": [None], "keep_past_thinking": [True], "preserve_thinking": [True], "clear_thinking": [True, False],
            "thinking_budget": [0, 512, -1], "controls": [{"length": "short"}], "citations": [True], "functions": [None, [self.tool(False)["function"]]], "datetime": ["now"],
            "truncate_history_thinking": [False], "available_tools": [[]], "drop_thinking": [True, False], "thinking_mode": ["thinking", "chat"],
            "add_vision_id": [True], "safety_mode": ["NONE"], "system_message": ["S"],
        }
        for name, values in optional.items():
            if self.chance(0.6 if re.search(rf"\b{name}\b", source) else 0.05):
                result[name] = self.rng.choice(values)
        return result


def outcome(render) -> dict:
    try:
        return {"text": render()}
    except Exception as error:  # noqa: BLE001 - any error of a template is an expected value
        return {"error": type(error).__name__, "message": str(error)[:200]}


class FixedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def templates(paths: list[str]):
    """Yields name, source and special tokens of every template."""
    for given in map(pathlib.Path, paths):
        files = [given] if given.is_file() else sorted([*given.rglob("*.jinja"), *given.rglob("tokenizer_config.json")])
        for file in files:
            name = (file.stem if given.is_file() else str(file.relative_to(given)).removesuffix(".jinja")).removesuffix("/models/tokenizer_config.json")
            if file.name != "tokenizer_config.json":
                yield name, file.read_text(), {"bos_token": "<bos>", "eos_token": "<eos>"}
                continue
            config = json.loads(file.read_text())
            found = config.get("chat_template") or []
            tokens = {}
            for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
                token = config.get(key)
                token = token.get("content") if isinstance(token, dict) else token
                if token is not None:
                    tokens[key] = token
            for entry in [{"name": "", "template": found}] if isinstance(found, str) else found:
                yield f"{name} {entry['name']}".strip(), entry["template"], tokens


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    chat_template_utils.datetime = FixedClock
    seen: set[str] = set()
    for name, source, tokens in templates(options.paths):
        if source in seen:
            continue
        seen.add(source)
        file_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        try:
            compiled = chat_template_utils._compile_jinja_template(source)
        except jinja2.TemplateSyntaxError as error:
            print(f"{name}: not a template for transformers: {error}")
            continue
        conversations = Conversations(name)
        cases = []
        for _ in range(options.count):
            variables = conversations.variables(source)
            given = json.loads(json.dumps(variables))

            def applied(given=given):
                messages = [{key: value for key, value in message.items() if value is not None} for message in given["messages"]]
                others = {key: value for key, value in given.items() if key != "messages"}
                (text,), _ = chat_template_utils.render_jinja_template([messages], chat_template=source, **tokens, **others)
                return text

            cases.append({"variables": json.dumps(variables, ensure_ascii=False), "exact": outcome(lambda: compiled.render(**tokens, **given)), "applied": outcome(applied)})
        result = {"name": name, "template": source, "tokens": tokens, "now": NOW.isoformat(), "cases": cases,
                  "versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__}}
        path = options.output / f"{file_name}.json.gz"
        with gzip.GzipFile(path, "wb", mtime=0) as file:
            file.write(json.dumps(result, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        texts = sum("text" in case["exact"] for case in cases)
        print(f"{name}: {len(source)} characters, {texts} of {len(cases)} rendered")


main()
