import { describe, expect, it } from "vitest";
import { ArgumentError, DataError, UnsupportedError } from "../../src/base/errors.ts";
import { type ChatMessage, type ChatTokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory, sharedModel } from "./fixture.ts";

const { tokenizer } = await sharedModel();

describe("renderChat", () => {
  it("ends with the assistant header unless disabled", () => {
    const messages = [{ role: "user", content: "hello" }];
    expect(tokenizer.renderChat(messages)).toBe("<|user|>hello<|end|>\n<|assistant|>");
    expect(tokenizer.renderChat(messages, { addGenerationPrompt: false })).toBe("<|user|>hello<|end|>\n");
  });

  it("joins text parts with newlines and treats missing content as empty", () => {
    const messages: ChatMessage[] = [
      { role: "user", content: ["a", { type: "text", text: "b" }, { text: "c" }, { type: "text", text: null }] },
      { role: "assistant", content: null },
      { role: "assistant" },
    ];
    expect(tokenizer.renderChat(messages, { addGenerationPrompt: false })).toBe(
      "<|user|>a\nb\nc<|end|>\n<|assistant|><|end|>\n<|assistant|><|end|>\n",
    );
  });

  it.each([
    ['{"a": [1, "x"]}', '{"a": [1, "x"]}'],
    ["", "{}"],
    [undefined, "{}"],
    [null, "{}"],
    [{ b: true }, '{"b": true}'],
  ])("passes the arguments %j to the template as an object", (value, text) => {
    const messages = [
      { role: "assistant", content: "", tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: value } }] },
    ];
    expect(tokenizer.renderChat(messages, { addGenerationPrompt: false })).toBe(`<|assistant|>[f ${text}]<|end|>\n`);
  });

  it("keeps number formats and key order of arguments, as Python does", () => {
    const value = '{"b": 1.0, "10": 1e2, "9": 12345678901234567890, "a": [-0.0, {"x": "\\u00e9\\""}, null, []]}';
    const messages = [{ role: "assistant", content: "", tool_calls: [{ function: { name: "f", arguments: value } }] }];
    expect(tokenizer.renderChat(messages, { addGenerationPrompt: false })).toBe(
      '<|assistant|>[f {"b": 1.0, "10": 100.0, "9": 12345678901234567890, "a": [-0.0, {"x": "é\\""}, null, []]}]<|end|>\n',
    );
  });

  it("provides the reasoning under each of its names", async () => {
    const template = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}";
    const loaded = await loadTokenizer(await modelDirectory({ "chat_template.jinja": template }));
    for (const name of ["reasoning", "reasoning_content", "thinking"]) {
      expect(loaded.renderChat([{ role: "assistant", content: "x", [name]: "why" }])).toBe("why|why");
    }
  });

  it.each(["{", "[1]", "3", "null", '"x"'])("rejects the arguments %s and reports their path", (text) => {
    const messages = [
      { role: "user", content: "x" },
      { role: "assistant", tool_calls: [{ function: { name: "f", arguments: text } }] },
    ];
    expect(() => tokenizer.renderChat(messages)).toThrow(DataError);
    expect(() => tokenizer.renderChat(messages)).toThrow(/messages\[1\]\.tool_calls\[0\]\.function\.arguments/);
  });

  it("rejects content that is not text, and reports its type", () => {
    const messages = [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }];
    expect(() => tokenizer.renderChat(messages)).toThrow(UnsupportedError);
    expect(() => tokenizer.renderChat(messages)).toThrow(/messages\[0\]\.content\[0\].*image_url/);
  });

  it("does not modify the messages", () => {
    const messages = [{ role: "assistant", content: null, name: null, tool_calls: [{ function: { name: "f", arguments: "{}" } }] }];
    const before = structuredClone(messages);
    tokenizer.renderChat(messages);
    expect(messages).toEqual(before);
  });

  it("passes additional variables to templates, which never replace the conversation", async () => {
    const template =
      "{{ extra }}{{ messages | length }}{{ eos_token }}{{ pad_token }}{{ messages[0].reasoning_content }}{% if messages[0].name is defined %}!{% endif %}";
    const loaded = await loadTokenizer(
      await modelDirectory({
        "tokenizer_config.json": { eos_token: "<|end|>", pad_token: { content: "<|pad|>" }, chat_template: template },
      }),
    );
    const text = loaded.renderChat([{ role: "user", content: "x", reasoning: "why", name: undefined }], {
      variables: { extra: "E", messages: [] },
    });
    expect(text).toBe("E1<|end|><|pad|>why");
  });

  it("throws an argument error if the template throws", async () => {
    const loaded = await loadTokenizer(await modelDirectory({ "chat_template.jinja": "{{ raise_exception('no system role') }}" }));
    expect(() => loaded.renderChat([])).toThrow(ArgumentError);
    expect(() => loaded.renderChat([])).toThrow(/no system role/);
  });
});

/** Returns the rendered text with trained spans in braces. */
function marked(loaded: ChatTokenizer, messages: readonly ChatMessage[], tools?: readonly unknown[]): string {
  const { ids, mask } = loaded.renderTraining(messages, { tools });
  expect(mask).toHaveLength(ids.length);
  let text = "";
  let trained = false;
  for (const [index, id] of ids.entries()) {
    if ((mask[index] === 1) !== trained) {
      trained = !trained;
      text += trained ? "{" : "}";
    }
    text += loaded.tokenText(id);
  }
  return trained ? `${text}}` : text;
}

describe("renderTraining", () => {
  it("marks the assistant's text, including its closing token, and nothing after it", () => {
    const messages = [
      { role: "system", content: "s" },
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
      { role: "user", content: "c" },
      { role: "assistant", content: "d" },
      { role: "user", content: "never answered" },
    ];
    expect(marked(tokenizer, messages)).toBe(
      "<|system|>s<|end|>\n<|user|>a<|end|>\n<|assistant|>{b<|end|>}\n<|user|>c<|end|>\n<|assistant|>{d<|end|>}",
    );
  });

  it("trains tool calls, and supports consecutive assistant turns", () => {
    const messages = [
      { role: "user", content: "a" },
      { role: "assistant", content: null, tool_calls: [{ function: { name: "f", arguments: '{"x":1}' } }] },
      { role: "assistant", content: "ok" },
    ];
    expect(marked(tokenizer, messages)).toBe('<|user|>a<|end|>\n<|assistant|>{[f {"x": 1}]<|end|>}\n<|assistant|>{ok<|end|>}');
  });

  it("starts with exactly the prompt tokens of sampling", () => {
    const messages = [
      { role: "user", content: "hello" },
      { role: "assistant", content: "hello w" },
    ];
    const { ids, mask } = tokenizer.renderTraining(messages);
    const prompt = tokenizer.encode(tokenizer.renderChat(messages.slice(0, 1)));
    expect([...ids.subarray(0, prompt.length)]).toEqual([...prompt]);
    expect([...ids.subarray(prompt.length)]).toEqual([...tokenizer.encode("hello w<|end|>")]);
    expect([...mask]).toEqual([...ids].map((_, index) => (index < prompt.length ? 0 : 1)));
  });

  it("trains the whole completion if the tokenizer has no closing token", async () => {
    const loaded = await loadTokenizer(
      await modelDirectory({
        "tokenizer_config.json": { chat_template: "{% for m in messages %}{{ m.content }};{% endfor %}" },
        "generation_config.json": {},
      }),
    );
    expect(
      marked(loaded, [
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
      ]),
    ).toBe("a;{b;}");
  });

  it("rejects a template that rewrites earlier turns", async () => {
    const template =
      "{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}[gone]{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}";
    const loaded = await loadTokenizer(await modelDirectory({ "chat_template.jinja": template }));
    const turn = [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
    ];
    expect(marked(loaded, turn)).toBe("a<|end|>{b<|end|>}");
    expect(() => loaded.renderTraining([...turn, ...turn])).toThrow(DataError);
    expect(() => loaded.renderTraining([...turn, ...turn])).toThrow(/prompt of messages\[3\].*does not extend/);
  });

  it("rejects a conversation without an assistant message", () => {
    expect(() => tokenizer.renderTraining([{ role: "user", content: "a" }])).toThrow(/at least one assistant message/);
  });

  it("rejects a template that omits the assistant", async () => {
    const loaded = await loadTokenizer(await modelDirectory({ "chat_template.jinja": "{{ messages[0].content }}" }));
    expect(() =>
      loaded.renderTraining([
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
      ]),
    ).toThrow(/renders nothing/);
  });
});
