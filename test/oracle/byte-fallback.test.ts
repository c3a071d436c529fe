/** Tokenizers in the style of Llama 2 against transformers. `byte-fallback.py` wrote the values. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { type ChatMessage, createDetokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory } from "../tokenizer/fixture.ts";

interface Variant {
  name: string;
  /** Changes to the common `tokenizer.json`. */
  changes: Record<string, unknown>;
  config: Record<string, unknown>;
  texts: { text: string; ids: number[]; with_special: number[] }[];
  decoded: { ids: number[]; text: string }[];
  chats: { messages: ChatMessage[]; ids: number[]; mask: number[] }[];
}

const path = (name: string): string => join(import.meta.dirname, name);
const base = JSON.parse(await readFile(path("byte-fallback/tokenizer.json"), "utf8")) as Record<string, unknown>;
const { variants } = JSON.parse(gunzipSync(await readFile(path("byte-fallback.json.gz"))).toString()) as { variants: Variant[] };
const load = async ({ changes, config }: Variant) =>
  loadTokenizer(
    await modelDirectory({
      "tokenizer.json": { ...base, ...changes },
      "tokenizer_config.json": config,
      "generation_config.json": {},
      "config.json": {},
      "chat_template.jinja": undefined,
    }),
  );

describe.each(variants)("$name", (variant) => {
  test("encodes every text to the same ids", async () => {
    const tokenizer = await load(variant);
    const { texts } = variant;
    expect(texts.map(({ text }) => ({ text, ids: [...tokenizer.encode(text)] }))).toEqual(texts.map(({ text, ids }) => ({ text, ids })));
    // The last ids are equal without those before them.
    for (const tail of [1, 3, 10])
      expect(texts.map(({ text }) => [...tokenizer.encode(text, { tail })])).toEqual(texts.map(({ ids }) => ids.slice(-tail)));
    expect(texts.map(({ text }) => [...tokenizer.encode(text, { addSpecialTokens: true })])).toEqual(
      texts.map((entry) => entry.with_special),
    );
  });

  test("decodes ids to the text by which they continue another", async () => {
    const tokenizer = await load(variant);
    for (const { ids, text } of variant.decoded) {
      expect(tokenizer.decode(ids)).toBe(text);
      const detokenizer = createDetokenizer(tokenizer);
      expect(ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush()).toBe(text);
    }
  });

  test("trains on the same tokens", async () => {
    const tokenizer = await load(variant);
    for (const { messages, ids, mask } of variant.chats) {
      const rendered = tokenizer.renderTraining(messages);
      expect({ ids: [...rendered.ids], mask: [...rendered.mask] }).toEqual({ ids, mask });
    }
  });
});
