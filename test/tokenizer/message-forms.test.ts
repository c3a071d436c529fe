import { describe, expect, it } from "vitest";
import { type ChatMessage, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { compileTemplate } from "../../src/text/tokenizer/chat-template.ts";
import { modelDirectory } from "./fixture.ts";

/** Turns as released templates write them; `body` renders one message `m`. */
function turns(body: string): string {
  return `{% for m in messages %}<{{ m.role }}>${body}{% endfor %}`;
}

const loaded = async (template: string): ReturnType<typeof loadTokenizer> =>
  loadTokenizer(await modelDirectory({ "chat_template.jinja": template }));

async function render(template: string, messages: readonly ChatMessage[]): Promise<string> {
  return (await loaded(template)).renderChat(messages, { addGenerationPrompt: false });
}

const call = (given: unknown, content: string | null = null): ChatMessage[] => [
  { role: "user", content: "q" },
  { role: "assistant", content, tool_calls: [{ id: "1", function: { name: "f", arguments: given } }] },
];

describe("tool calls", () => {
  // As in the templates of DeepSeek V3 and of the distilled R1 for Llama.
  const beside = turns(
    "{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}",
  );

  it.each([null, ""])("are rendered by a template that requires null content and arguments as text, given content %j", async (content) => {
    expect(await render(beside, call('{"x":1}', content))).toBe('<user>q<assistant>f{"x":1}');
    expect(await render(beside, call({ x: 1.5, y: ["é"] }, content))).toBe('<user>q<assistant>f{"x": 1.5, "y": ["é"]}');
    expect(await render(beside, call(null, content))).toBe("<user>q<assistant>f{}");
  });

  it("have arguments as an object unless the template concatenates them", async () => {
    const either = turns(
      "{{ m.content }}{% for c in m.tool_calls %}{% set a = c.function.arguments %}{{ a if a is string else a | tojson }}{% endfor %}",
    );
    expect(compileTemplate(either).forms.toolArguments).toBe("object");
    expect(await render(either, call('{"x":1}'))).toBe('<user>q<assistant>{"x": 1}');
    const escaping = turns("{{ m.content }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}");
    expect(await render(escaping, call('{"x":1}'))).toBe('<user>q<assistant>{"name": "f", "arguments": {"x": 1}}');
    const text = turns("{{ m.content }}{% for c in m.tool_calls %}{{ '<' + c.function.arguments + '>' }}{% endfor %}");
    expect(await render(text, call({ x: 1 }))).toBe('<user>q<assistant><{"x": 1}>');
  });

  it("have an empty text where the template prints null as None", async () => {
    const prints = turns("{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.arguments | tojson }}]{% endfor %}");
    expect(await render(prints, call("{}"))).toBe("<user>q<assistant>[{}]");
  });

  it("are not trained if the template leaves them out of messages with text", async () => {
    const tokenizer = await loaded(beside);
    expect(() => tokenizer.renderTraining(call("{}", "text"))).toThrow(/renders nothing of its `tool_calls`.*where `content` is empty/);
  });
});

describe("lists of parts", () => {
  const parts = [{ type: "text", text: "a" }, "b", { type: "output_text", text: "c" }];

  it("stay lists for the roles with parts that the template concatenates", async () => {
    // As in the template of Gemma 3, which reads only the first part of a system message.
    const template = turns(
      "{% if m.role == 'system' %}{{ m.content if m.content is string else m.content[0].text }}" +
        "{% elif m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}",
    );
    expect(
      await render(template, [
        { role: "system", content: parts },
        { role: "user", content: parts },
      ]),
    ).toBe("<system>a\nb\nc<user>abc");
    expect(await render(template, [{ role: "user", content: [] }])).toBe("<user>");
  });

  it("become a text for a template that would print the list", async () => {
    expect(await render(turns("{{ m.content }}"), [{ role: "user", content: parts }])).toBe("<user>a\nb\nc");
  });

  it("replace a text that the template would skip", async () => {
    // As in the template of SmolVLM.
    const template = turns("{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}");
    expect(await render(template, [{ role: "user", content: "text" }])).toBe("<user>text");
  });
});

describe("reasoning", () => {
  const answer = { role: "assistant", content: "answer" };

  it.each(["reasoning", "reasoning_content", "thinking"])("is read under the name %s", async (name) => {
    const template = turns(`{{ m.${name} }}|{{ m.content }}`);
    for (const given of ["reasoning", "reasoning_content", "thinking"]) {
      expect(await render(template, [{ ...answer, [given]: "why" }])).toBe("<assistant>why|answer");
    }
    expect(await render(template, [{ role: "assistant", content: [{ type: "thinking", thinking: "why" } as never, "answer"] }])).toBe(
      "<assistant>why|answer",
    );
  });

  it("is a part of the content for a template that reads no such name", async () => {
    // As in the template of Ministral 3 Reasoning.
    const template = turns(
      "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'thinking' %}[{{ p.thinking }}]{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}",
    );
    expect(await render(template, [{ ...answer, reasoning_content: "why" }])).toBe("<assistant>[why]answer");
    expect(await render(template, [{ ...answer, content: "", thinking: "why" }, answer])).toBe("<assistant>[why]<assistant>answer");
  });
});

it("gives templates `documents` that is null, as transformers does", async () => {
  const template = "{{ documents is none }}{{ documents is defined }}";
  expect(await render(template, [])).toBe("TrueTrue");
  const tokenizer = await loaded(template);
  expect(tokenizer.renderChat([], { variables: { documents: [] } })).toBe("FalseTrue");
});

it("finds the forms of a template that does not end within the limits", () => {
  const template = compileTemplate("{% for a in range(1000) %}{% for b in range(1000) %}{{ messages }}{% endfor %}{% endfor %}");
  expect(template.forms).toMatchObject({ toolArguments: "object", emptyContent: "", reasoning: "fields" });
});

it("names where a finished turn differs from its prompt", async () => {
  const header = "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  const tokenizer = await loaded(turns("{{ m.content }};") + header);
  expect(() =>
    tokenizer.renderTraining([
      { role: "user", content: "q" },
      { role: "assistant", content: "a" },
    ]),
  ).toThrow(/own prompt: after the same 19 characters the prompt continues with "<think>", the finished turn with "a;".*reasoning_content/);
});
