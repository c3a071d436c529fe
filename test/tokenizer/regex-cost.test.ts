import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { requireBoundedRegex } from "../../src/text/tokenizer/regex-cost.ts";
import { ROOT } from "../project/files.ts";
import { countSteps } from "./backtracking.ts";
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

test.each(Object.entries(PUBLISHED))("accepts the pattern of %s", (_, source) => {
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
  ["(?:a*a*a*a*b)?", "retries several"],
  ["(?:a*a*a*a*b){0,1}?c?", "retries several"],
  ["a*(?:a*b)?", "retries several"],
  ["(?:(?:a*a*b)?)?", "retries several"],
  ["(?=a*a*b)c", "retries several"],
  ["(?=(?=a*a*b))", "retries several"],
  ["(?:(?=a*a*b))?c", "retries several"],
  [`${"(?:a|a)".repeat(20)}b`, "more than 4096 ways"],
  [String.raw`(a)\1`, "refers to a group"],
  ["a".repeat(5000), "has 5000 characters"],
  ["(", "does not parse"],
])("rejects %.40s", (source, why) => {
  expect(() => requireBoundedRegex(source, "file")).toThrow(expect.objectContaining({ code: "E_UNSUPPORTED" }));
  expect(() => requireBoundedRegex(source, "file")).toThrow(why);
});

/** Sequences of one to three of the parts, each alone, optional, in a lookahead, and before a character. */
function* expressions(): Generator<string, void, undefined> {
  const parts = ["a", "a*", "a+", "a?", "b", "b*", "(?:a*b)?", "(?:a|b*)", "(?=a*b)", "(?!a*b)", "(?:a+)?"];
  for (const first of parts) {
    for (const second of ["", ...parts]) {
      for (const third of second === "" ? [""] : ["", ...parts]) {
        const all = first + second + third;
        yield* [all, `(?:${all})?`, `(?=${all})`, `(?:${all})?c`];
      }
    }
  }
}

/** Factor by which matching takes longer for a text of twice the length: at most about 4 for the square, 8 for the cube. */
function growth(source: string): number {
  const texts = (length: number): string[] => [
    "a".repeat(length),
    "ab".repeat(length / 2),
    `${"a".repeat(length / 2)}${"b".repeat(length / 2)}`,
  ];
  const [short, long] = [texts(24), texts(48)].map((all) => all.map((text) => countSteps(source, text))) as [number[], number[]];
  return Math.max(...long.map((steps, at) => steps / (short[at] ?? 1)));
}

test("matching takes at most quadratic time for every accepted expression", () => {
  const accepted = [...expressions()].filter((source) => {
    try {
      requireBoundedRegex(source, "file");
      return true;
    } catch {
      return false;
    }
  });
  expect(accepted.length).toBeGreaterThan(1000);
  expect(accepted.filter((source) => growth(source) > 5)).toEqual([]);
  for (const source of ["(?:a*a*b)?", "a*a*b", "(?=(?=a*a*b))"]) expect(growth(source)).toBeGreaterThan(5);
});

test.each(["normalizer", "pre_tokenizer", "decoder"] as const)("checks expressions in the %s at any nesting depth", async (place) => {
  const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
  const part = { type: place === "pre_tokenizer" ? "Split" : "Replace", pattern: { Regex: "(a+)+$" }, behavior: "Isolated", content: "x" };
  const lists = { normalizer: "normalizers", pre_tokenizer: "pretokenizers", decoder: "decoders" };
  const inner = { type: "Sequence", [lists[place]]: [part] };
  const nested = { type: "Sequence", [lists[place]]: [inner, ...(file[place] === null ? [] : [file[place]])] };
  const directory = await modelDirectory({ "tokenizer.json": { ...file, [place]: nested } });
  await expect(loadTokenizer(directory)).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining(`${place}.`) });
});

test("rejects a replacement that multiplies the length of the text", async () => {
  const file = modelFiles()["tokenizer.json"] as Record<string, unknown>;
  const normalizer = { type: "Replace", pattern: { String: "a" }, content: "x".repeat(257) };
  const directory = await modelDirectory({ "tokenizer.json": { ...file, normalizer } });
  await expect(loadTokenizer(directory)).rejects.toThrow("normalizer.content: expected at most 256 characters, got 257");
});

test("accepts the shipped tokenizer", async () => {
  expect(await readFile(join(ROOT, "models/whetstone-tiny/tokenizer.json"), "utf8")).toContain("pre_tokenizer");
  expect((await loadTokenizer(join(ROOT, "models/whetstone-tiny"))).encode("hello").length).toBeGreaterThan(0);
});
