import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { loadTokenizer } from "../../src/tokenizer/index.ts";
import { requireBoundedRegex } from "../../src/tokenizer/regex-cost.ts";
import { ROOT } from "../project/files.ts";
import { modelDirectory, modelFiles } from "./fixture.ts";

/** Patterns of published tokenizers. */
const PUBLISHED = {
  "GPT-2, SmolLM": String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  "Llama 3, SmolLM 3": String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  "Qwen 2, 2.5 and 3": String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  o200k: String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  "DeepSeek V3": String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  "DeepSeek, letters": String.raw`\s?\p{L}+`,
  "DeepSeek, end": String.raw`\s+$`,
  "groups of three digits": String.raw`\d{1,3}(?=(?:\d{3})*\b)`,
};

test.each(Object.entries(PUBLISHED))("the pattern of %s is accepted", (_, source) => {
  requireBoundedRegex(source, "file");
});

test.each([
  ["(a+)+$", "repeats a group"],
  ["(a|a)*$", "repeats a group"],
  ["(?:a?){30}a{30}", "repeats a group"],
  ["(?:a{1,64}){1,64}$", "repeats a group"],
  ["(?=(a+)+b)a", "repeats a group"],
  ["a*a*b", "retries several"],
  [String.raw`\p{L}*\p{L}*\p{L}*\p{N}`, "retries several"],
  ["(?:a*b?)a*c", "retries several"],
  ["a{0,1000}a{0,1000}b", "retries several"],
  [`${"(?:a|a)".repeat(20)}b`, "more than 4096 ways"],
  [String.raw`(a)\1`, "refers to a group"],
  ["a".repeat(5000), "has 5000 characters"],
  ["(", "does not parse"],
])("%.40s is refused", (source, why) => {
  expect(() => requireBoundedRegex(source, "file")).toThrow(expect.objectContaining({ code: "E_UNSUPPORTED" }));
  expect(() => requireBoundedRegex(source, "file")).toThrow(why);
});

test("matching takes at most the square of the length wherever an expression is accepted", () => {
  // 5,000 characters: the square takes a tenth of a second; with the cube the test would exceed its deadline.
  for (const source of Object.values(PUBLISHED)) {
    const js = new RegExp(source.replaceAll(/\(\?i:([^)]*)\)/gu, "(?:$1)"), "gu");
    for (const one of ["a", "1", " ", "\n", "!", "\u0301"]) expect(`${one.repeat(5000)}b`.match(js)?.length ?? 0).toBeGreaterThanOrEqual(0);
  }
});

test.each(["normalizer", "pre_tokenizer", "decoder"] as const)("an expression in the %s is found wherever it is", async (place) => {
  const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
  const part = { type: place === "pre_tokenizer" ? "Split" : "Replace", pattern: { Regex: "(a+)+$" }, behavior: "Isolated", content: "x" };
  const lists = { normalizer: "normalizers", pre_tokenizer: "pretokenizers", decoder: "decoders" };
  const inner = { type: "Sequence", [lists[place]]: [part] };
  const nested = { type: "Sequence", [lists[place]]: [inner, ...(file[place] === null ? [] : [file[place]])] };
  const directory = await modelDirectory({ "tokenizer.json": { ...file, [place]: nested } });
  await expect(loadTokenizer(directory)).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining(`${place}.`) });
});

test("a replacement that would multiply the text is refused", async () => {
  const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
  const normalizer = { type: "Replace", pattern: { String: "a" }, content: "x".repeat(257) };
  const directory = await modelDirectory({ "tokenizer.json": { ...file, normalizer } });
  await expect(loadTokenizer(directory)).rejects.toThrow("normalizer.content: expected at most 256 characters, got 257");
});

test("the shipped tokenizer passes", async () => {
  expect(await readFile(join(ROOT, "models/whetstone-tiny/tokenizer.json"), "utf8")).toContain("pre_tokenizer");
  expect((await loadTokenizer(join(ROOT, "models/whetstone-tiny"))).encode("hello").length).toBeGreaterThan(0);
});
