/** Tokenizers in GGUF files: written from tokenizer directories by the export, and read back. */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { readTokenizerFiles } from "../../src/text/tokenizer/load.ts";
import { ggufOf, gunzipped, modelWithTokenizer, ORACLE } from "../export/support.ts";

interface Expected {
  readonly texts: readonly { readonly text: string; readonly ids: number[]; readonly with_special: number[] }[];
  readonly decoded: readonly { readonly ids: number[]; readonly text: string }[];
}

describe.each(["llama3", "qwen", "smollm"])("%s", (style) => {
  test("gives the ids, texts and chats of the directory it was written from", async () => {
    const directory = await modelWithTokenizer(join(ORACLE, "tokenization", style));
    const original = await loadTokenizer(directory);
    const { file } = await readTokenizerFiles(directory);
    const stripping = file.added_tokens
      .filter((token) => token["lstrip"] === true || token["rstrip"] === true)
      .map(({ content }) => content);
    const tokenizer = await loadTokenizer((await ggufOf(directory)).path);
    const all = await gunzipped<Expected>(`tokenization/${style}.json.gz`);
    // llama.cpp has no tokens that strip the spaces next to them; the export reports them.
    const texts = all.texts.filter(({ text }) => !stripping.some((token) => text.includes(token)));
    expect(texts.length).toBeGreaterThan(all.texts.length / 2);
    const { decoded } = all;
    expect(texts.map(({ text }) => [...tokenizer.encode(text)])).toEqual(texts.map(({ ids }) => ids));
    expect(texts.map(({ text }) => [...tokenizer.encode(text, { addSpecialTokens: true })])).toEqual(
      texts.map(({ with_special: ids }) => ids),
    );
    expect(decoded.map(({ ids }) => tokenizer.decode(ids))).toEqual(decoded.map(({ text }) => text));
    expect(tokenizer.eosTokenIds).toEqual(original.eosTokenIds);
    expect(tokenizer.vocabularySize).toBe(original.vocabularySize);
    const messages = [
      { role: "user", content: "Hello" },
      { role: "assistant", content: "Hi" },
    ] as const;
    expect(tokenizer.renderChat(messages)).toBe(original.renderChat(messages));
  });
});

test("SentencePiece merges by scores and puts a space in front", async () => {
  const directory = await modelWithTokenizer(join(ORACLE, "byte-fallback"), {
    "tokenizer_config.json": { eos_token: "</s>", bos_token: "<s>" },
  });
  const original = await loadTokenizer(directory);
  const tokenizer = await loadTokenizer((await ggufOf(directory)).path);
  const { variants } = await gunzipped<{ readonly variants: readonly Expected[] }>("byte-fallback.json.gz");
  for (const { text } of variants[0]!.texts)
    expect({ text, ids: [...tokenizer.encode(text, { addSpecialTokens: true })] }).toEqual({
      text,
      ids: [...original.encode(text, { addSpecialTokens: true })],
    });
});
