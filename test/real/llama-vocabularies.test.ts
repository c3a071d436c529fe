/**
 * Tokenizers from llama.cpp's own vocabulary files, against its ids. `LLAMA_CPP_MODELS` is the folder `models` of its repository:
 * `ggml-vocab-<name>.gguf`, texts in `.inp`, ids in `.out`.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";

const folder = process.env["LLAMA_CPP_MODELS"] ?? "";

describe.skipIf(folder === "")("vocabulary", () => {
  test.each([
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen2",
    "qwen35",
    "deepseek-llm",
    "deepseek-coder",
    "command-r",
    "refact",
    "starcoder",
    "gemma-4",
  ])("%s gives the ids of llama.cpp", { timeout: 300_000 }, async (name) => {
    const path = join(folder, `ggml-vocab-${name}.gguf`);
    const texts = readFileSync(`${path}.inp`, "utf8").split("\n__ggml_vocab_test__\n");
    const lines = readFileSync(`${path}.out`, "utf8").trimEnd().split("\n");
    const expected = lines.map((line, index) => ({
      text: texts[index]!,
      ids: line
        .split(" ")
        .filter((id) => id !== "")
        .map(Number),
    }));
    // llama.cpp does not normalize text; tokenizers that do give the ids of the model's own tokenizer instead.
    const comparable = name.startsWith("qwen") ? expected.filter(({ text }) => text === text.normalize("NFC")) : expected;
    const tokenizer = await loadTokenizer(path);
    expect(comparable.map(({ text }) => ({ text, ids: [...tokenizer.encode(text)] }))).toEqual(comparable);
  });
});
