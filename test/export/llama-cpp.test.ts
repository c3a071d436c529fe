/**
 * GGUF files in llama.cpp, against values of Hugging Face transformers. Runs where the Python package llama-cpp-python is installed;
 * `WHETSTONE_LLAMA_CPP_PYTHON` names the interpreter, by default `python3`.
 */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Expected, family, ggufAdapterOf, ggufOf, gunzipped, hasLlamaCpp, llamaCpp, modelWithTokenizer, ORACLE } from "./support.ts";

const TOLERANCE = 1e-4;

function maxDifference(actual: readonly number[][], expected: readonly number[][]): number {
  return Math.max(...actual.flatMap((row, i) => row.map((value, t) => Math.abs(value - expected[i]!.slice(-row.length)[t]!))));
}

interface Text {
  readonly text: string;
  readonly ids: number[];
  readonly with_special: number[];
}

function expectTokens(model: string, texts: readonly Text[]): void {
  const { tokens } = llamaCpp({ model, texts: texts.map(({ text }) => text) });
  const found = texts.map(({ text }, index) => ({ text, ids: tokens[index]![0], with_special: tokens[index]![1] }));
  expect(found).toEqual(texts.map(({ text, ids, with_special }) => ({ text, ids, with_special })));
}

// Skipped without llama.cpp, which has no npm package and takes minutes to build.
describe.skipIf(!hasLlamaCpp)("llama.cpp (skipped without the Python package llama-cpp-python)", () => {
  test.each(["llama3", "llama-biased", "qwen2", "qwen3", "smollm3"])(
    "gives the log-probabilities of transformers for %s, without an adapter, with a merged one, and with one in a file of its own",
    async (name) => {
      const { rows, ...expected } = await gunzipped<Expected>(`families/${name}/expected.json.gz`);
      const of = (model: string, lora?: string) => llamaCpp({ model, rows, vocabulary: 48, lora }).logprobs;
      const plain = await ggufOf(family(name, "model"), { preTokenizer: null });
      expect(maxDifference(of(plain.path), expected.logprobs)).toBeLessThan(TOLERANCE);
      const merged = await ggufOf(family(name, "model"), { adapter: family(name, "adapter"), preTokenizer: null });
      expect(maxDifference(of(merged.path), expected.lora.logprobs)).toBeLessThan(TOLERANCE);
      expect(maxDifference(of(plain.path, await ggufAdapterOf(name)), expected.lora.logprobs)).toBeLessThan(TOLERANCE);
    },
  );

  test.each(["llama3", "qwen", "smollm"])("splits texts into the same tokens as transformers with the tokenizer of %s", async (name) => {
    const { texts } = await gunzipped<{ texts: readonly Text[] }>(`tokenization/${name}.json.gz`);
    const { path } = await ggufOf(await modelWithTokenizer(join(ORACLE, "tokenization", name)));
    // The warnings name both differences: llama.cpp does not normalize, and its added tokens do not strip spaces.
    const comparable = texts.filter(({ text }) => text === text.normalize("NFC") && !/<mask>|<pad>/u.test(text));
    expect(comparable.length).toBeGreaterThan(300);
    expectTokens(path, comparable);
  });

  test("splits texts into the same tokens with a tokenizer in the style of SentencePiece", async () => {
    const files = {
      "tokenizer_config.json": { tokenizer_class: "PreTrainedTokenizerFast", bos_token: "<s>", eos_token: "</s>", unk_token: "<unk>" },
    };
    const directory = await modelWithTokenizer(join(ORACLE, "byte-fallback"), files);
    const { path, warnings } = await ggufOf(directory);
    expect(warnings).toEqual([]);
    const { variants } = await gunzipped<{ variants: readonly { readonly name: string; readonly texts: readonly Text[] }[] }>(
      "byte-fallback.json.gz",
    );
    const { texts } = variants.find(({ name }) => name === "the file's normalizers")!;
    expectTokens(path, texts);
  });
});
