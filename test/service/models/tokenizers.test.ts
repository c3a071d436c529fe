import { expect, test } from "vitest";
import { createTokenizers } from "../../../src/service/models/tokenizers.ts";
import type { ChatTokenizer } from "../../../src/text/tokenizer/index.ts";

test("a tokenizer is loaded once while it is in use, and tokenizers of unused bases are released", async () => {
  const loads: string[] = [];
  const tokenizers = createTokenizers(async (directory) => {
    loads.push(directory);
    return {} as ChatTokenizer;
  });
  const used = await tokenizers("used");
  for (let i = 0; i < 20; i++) {
    await tokenizers(`base ${i}`);
    expect(await tokenizers("used")).toBe(used);
  }
  expect(loads).toHaveLength(21);
  await tokenizers("base 0");
  expect(loads).toHaveLength(22);
});
