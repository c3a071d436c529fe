import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { textVocabulary } from "../../src/engine/onnx/sample/grammar-cache.ts";
import { UnsupportedError } from "../../src/base/errors.ts";
import { createDetokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory } from "./fixture.ts";

interface File {
  model: { vocab: Record<string, number>; [key: string]: unknown };
  added_tokens: Record<string, unknown>[];
  [key: string]: unknown;
}
const fixture = new URL("../oracle/byte-fallback/tokenizer.json", import.meta.url);
const tokenizerFile = (): File => JSON.parse(readFileSync(fixture, "utf8")) as File;
const directory = (file: File = tokenizerFile(), config: Record<string, unknown> = {}): Promise<string> =>
  modelDirectory({
    "tokenizer.json": file,
    "tokenizer_config.json": { eos_token: "</s>", ...config },
    "generation_config.json": {},
    "config.json": {},
  });

describe("a tokenizer with byte fallback", () => {
  test("returns exact bytes for words, spaces, single bytes and added tokens", async () => {
    const tokenizer = await loadTokenizer(await directory());
    const { vocab } = tokenizerFile().model;
    expect(tokenizer.tokenText(vocab["▁the"] as number)).toBe(" the");
    expect([...tokenizer.tokenBytes(vocab["<0x0A>"] as number)]).toEqual([10]);
    expect([...tokenizer.tokenBytes(vocab["<0xF0>"] as number)]).toEqual([0xf0]);
    expect(tokenizer.tokenText(vocab["</s>"] as number)).toBe("</s>");
    expect(tokenizer.byteTokenIds.size).toBe(256);
    expect([...tokenizer.eosTokenIds]).toEqual([vocab["</s>"]]);
  });

  test("streams multi-byte characters whole", async () => {
    const tokenizer = await loadTokenizer(await directory());
    const detokenizer = createDetokenizer(tokenizer);
    const pieces = [...tokenizer.encode("a👍漢")].map((id) => detokenizer.push(id));
    expect(pieces.join("")).toBe(" a👍漢");
    expect(pieces).toContain("👍");
    expect(pieces).toContain("漢");
    expect(detokenizer.flush()).toBe("");
    const cut = createDetokenizer(tokenizer);
    for (const id of tokenizer.encode("👍").slice(0, -1)) cut.push(id);
    expect(cut.flush()).toBe("\ufffd");
  });

  test("continues a text without an additional space", async () => {
    for (const [config, afterToken] of [
      [{}, " the quick"],
      [{ tokenizer_class: "LlamaTokenizer" }, "the quick"],
    ] as const) {
      const tokenizer = await loadTokenizer(await directory(tokenizerFile(), config));
      expect(tokenizer.decode(tokenizer.encode("the quick"))).toBe(" the quick");
      expect(tokenizer.decode(tokenizer.encode("the quick", { follows: "text" }))).toBe("the quick");
      expect(tokenizer.decode(tokenizer.encode("the quick", { follows: "token" }))).toBe(afterToken);
      expect(tokenizer.decode(tokenizer.encode("the</s>the quick", { follows: "text" }))).toBe(`the</s>${afterToken}`);
    }
  });

  test("provides the bytes of every token to constrained decoding", async () => {
    const tokenizer = await loadTokenizer(await directory());
    const { vocab } = tokenizerFile().model;
    const vocabulary = textVocabulary(tokenizer);
    expect([...(vocabulary.bytesOf(vocab["<0x0A>"] as number) ?? [])]).toEqual([10]);
    expect([...(vocabulary.bytesOf(vocab["▁"] as number) ?? [])]).toEqual([32]);
    expect(vocabulary.bytesOf(vocab["</s>"] as number)).toBeNull();
  });
});

describe("an unsupported tokenizer with byte fallback", () => {
  const change = (make: (file: File) => void): File => {
    const file = tokenizerFile();
    make(file);
    return file;
  };
  test.each<[string, (file: File) => void, RegExp]>([
    ["another normalizer", (file) => (file["normalizer"] = { type: "NFKC" }), /normalizer `NFKC`/],
    [
      "Metaspace that splits",
      (file) => {
        file["normalizer"] = null;
        file["pre_tokenizer"] = { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true };
      },
      /without `split`/,
    ],
    ["another decoder", (file) => (file["decoder"] = { type: "Metaspace", replacement: "▁" }), /decoders .* got `Metaspace`/],
    ["dropout", (file) => (file.model["dropout"] = 0.1), /`model.dropout` is not supported/],
  ])("is rejected for %s", async (_, make, message) => {
    const error: unknown = await loadTokenizer(await directory(change(make))).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(UnsupportedError);
    expect((error as Error).message).toMatch(message);
  });
});

test("a character becomes the unknown token if its bytes have no tokens", async () => {
  const file = tokenizerFile();
  const { vocab } = file.model;
  const unknown = vocab["<unk>"];
  delete vocab["<0xF0>"];
  const encode = async (fused: boolean): Promise<number[]> => {
    file.model["unk_token"] = "<unk>";
    file.model["fuse_unk"] = fused;
    return [...(await loadTokenizer(await directory(file))).encode("👍👍", { follows: "text" })];
  };
  expect(await encode(false)).toEqual([unknown, unknown]);
  expect(await encode(true)).toEqual([unknown]);
});
