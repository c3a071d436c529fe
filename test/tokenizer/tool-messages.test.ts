import { describe, expect, it } from "vitest";
import { type ChatMessage, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory } from "./fixture.ts";

/** Template in the style of ChatML, which reads neither tools nor tool calls. */
const PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

const WEATHER = {
  type: "function",
  function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
};
const DEFINITIONS = `You can call these tools; each line is the JSON schema of one function:
<tools>
{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
</tools>
To call a tool, write its name and arguments as JSON: <tool_call>{"name": "…", "arguments": {…}}</tool_call>`;

const call = (city: string) => ({ id: city, type: "function", function: { name: "weather", arguments: JSON.stringify({ city }) } });
const turns: ChatMessage[] = [
  { role: "user", content: "Rome or Oslo?" },
  { role: "assistant", content: null, tool_calls: [call("Rome"), call("Oslo")] },
  { role: "tool", tool_call_id: "Rome", content: "sun" },
  { role: "tool", tool_call_id: "Oslo", content: "rain" },
  { role: "assistant", content: "Rome." },
];

const load = async (template: string) => loadTokenizer(await modelDirectory({ "chat_template.jinja": template }));

describe("tools with a chat template that does not read them", () => {
  it("are described in the system message, with calls and results as text", async () => {
    const tokenizer = await load(PLAIN);
    const rendered = tokenizer.renderChat([{ role: "system", content: "Be brief." }, ...turns], {
      tools: [WEATHER],
      addGenerationPrompt: false,
    });
    expect(rendered).toBe(
      `<system>Be brief.\n\n${DEFINITIONS}</><user>Rome or Oslo?</>` +
        '<assistant><tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n' +
        '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call></>' +
        "<user><tool_response>sun</tool_response>\n<tool_response>rain</tool_response></><assistant>Rome.</>",
    );
  });

  it("are described in a new system message if the conversation has none", async () => {
    const tokenizer = await load(PLAIN);
    expect(tokenizer.renderChat(turns.slice(0, 1), { tools: [WEATHER] })).toBe(
      `<system>${DEFINITIONS}</><user>Rome or Oslo?</><assistant>`,
    );
  });

  it("are trained: every assistant turn, calls included, and nothing else", async () => {
    const tokenizer = await load(PLAIN.replaceAll("</>", "<|end|>"));
    const { ids, mask } = tokenizer.renderTraining(turns, { tools: [WEATHER] });
    expect(tokenizer.decode([...ids].filter((_, index) => mask[index] === 1))).toBe(
      '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n' +
        '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call><|end|>Rome.<|end|>',
    );
  });

  it("are described as text, and their calls are left to a template that reads only calls", async () => {
    const tokenizer = await load(
      PLAIN.replace("{{ m.content }}", "{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.arguments | tojson }}]{% endfor %}"),
    );
    const rendered = tokenizer.renderChat(turns.slice(0, 3), { tools: [WEATHER], addGenerationPrompt: false });
    expect(rendered).toBe(`<system>${DEFINITIONS}</><user>Rome or Oslo?</><assistant>[{"city": "Rome"}][{"city": "Oslo"}]</><tool>sun</>`);
  });

  it("leave conversations without tools unchanged", async () => {
    const tokenizer = await load(PLAIN);
    expect(
      tokenizer.renderChat([
        { role: "system", content: "S" },
        { role: "user", content: "U" },
      ]),
    ).toBe("<system>S</><user>U</><assistant>");
  });
});
