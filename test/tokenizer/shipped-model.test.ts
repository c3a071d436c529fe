import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { type ChatTokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";

const directory = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
const messages = [
  { role: "system", content: "Reverse the text." },
  { role: "user", content: "abc" },
  { role: "assistant", content: "cba" },
  { role: "user", content: "and the time?" },
  { role: "assistant", content: null, tool_calls: [{ id: "1", function: { name: "time", arguments: '{"zone": "UTC"}' } }] },
  { role: "tool", tool_call_id: "1", content: "noon" },
  { role: "assistant", content: "It is noon." },
];

function trained(tokenizer: ChatTokenizer): string {
  const { ids, mask } = tokenizer.renderTraining(messages);
  return tokenizer.decode([...ids].filter((_, index) => mask[index] === 1));
}

describe("the shipped base model's tokenizer", () => {
  it("renders its chat format", async () => {
    const tokenizer = await loadTokenizer(directory);
    expect(tokenizer.renderChat(messages.slice(0, 2))).toBe("<|system|>Reverse the text.<|end|><|user|>abc<|end|><|assistant|>");
    expect(tokenizer.eosTokenIds.map((id) => tokenizer.tokenText(id))).toEqual(["<|end|>"]);
  });

  it("trains every assistant turn and no other token", async () => {
    const tokenizer = await loadTokenizer(directory);
    expect(trained(tokenizer)).toBe(
      'cba<|end|><tool_call>{"name": "time", "arguments": {"zone": "UTC"}}</tool_call><|end|>It is noon.<|end|>',
    );
  });

  it("round-trips all bytes", async () => {
    const tokenizer = await loadTokenizer(directory);
    const seen = new Set(
      Array.from({ length: tokenizer.vocabularySize }, (_, id) => tokenizer.tokenBytes(id))
        .filter((bytes) => bytes.length === 1)
        .map((bytes) => bytes[0]),
    );
    expect(seen.size).toBe(256);
    const text = "naïve 東京 🎉 \n\t<tool_call>";
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
  });
});
