/** Tokenizers of every family's style against Hugging Face's own: ids of awkward texts, text of any ids, chat templates. */
import { readFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { compileTemplate } from "../../src/text/tokenizer/chat-template.ts";
import { type ChatMessage, loadTokenizer, type RenderChatOptions } from "../../src/text/tokenizer/index.ts";

/** Values that `tokenization.py` wrote. */
interface Expected {
  texts: { text: string; ids: number[]; with_special: number[] }[];
  decoded: { ids: number[]; text: string; without_special: string }[];
  chats: {
    messages: ChatMessage[];
    tools: RenderChatOptions["tools"];
    add_generation_prompt: boolean;
    variables: Record<string, unknown>;
    text: string;
  }[];
}

const path = (name: string) => join(import.meta.dirname, "tokenization", name);
const expectedOf = async (style: string): Promise<Expected> =>
  JSON.parse(gunzipSync(await readFile(path(`${style}.json.gz`))).toString()) as Expected;

describe.each(["llama3", "qwen", "smollm"])("%s", (style) => {
  test("encodes every text to the same ids", async () => {
    const tokenizer = await loadTokenizer(path(style));
    const { texts } = await expectedOf(style);
    expect(texts.map(({ text }) => ({ text, ids: [...tokenizer.encode(text)] }))).toEqual(texts.map(({ text, ids }) => ({ text, ids })));
    // The last ids are equal without those before them.
    for (const tail of [1, 3, 10])
      expect(texts.map(({ text }) => [...tokenizer.encode(text, { tail })])).toEqual(texts.map(({ ids }) => ids.slice(-tail)));
    expect(texts.map(({ text }) => [...tokenizer.encode(text, { addSpecialTokens: true })])).toEqual(
      texts.map(({ with_special: ids }) => ids),
    );
  });

  test("decodes any ids to the same text", async () => {
    const tokenizer = await loadTokenizer(path(style));
    const { decoded } = await expectedOf(style);
    expect(decoded.map(({ ids }) => tokenizer.decode(ids))).toEqual(decoded.map(({ text }) => text));
    expect(decoded.map(({ ids }) => tokenizer.decode(ids, { skipSpecialTokens: true }))).toEqual(
      decoded.map(({ without_special: text }) => text),
    );
  });

  test("renders every conversation to the same text", async () => {
    const tokenizer = await loadTokenizer(path(style));
    const { chats } = await expectedOf(style);
    const rendered = chats.map(({ messages, tools, variables, add_generation_prompt: addGenerationPrompt }) =>
      tokenizer.renderChat(messages, { tools, variables, addGenerationPrompt }),
    );
    expect(rendered).toEqual(chats.map(({ text }) => text));
  });
});

test("templates print values that are not text as Python does", async () => {
  const { messages, rendered } = JSON.parse(gunzipSync(await readFile(path("snippets.json.gz"))).toString()) as {
    messages: unknown[];
    rendered: { template: string; text: string }[];
  };
  const ours = rendered.map(({ template }) => ({ template, text: compileTemplate(template).render({ messages, tools: null }) }));
  expect(ours).toEqual(rendered);
});
