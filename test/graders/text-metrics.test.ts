import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { textSimilarity, type TextMetric } from "../../src/graders/index.ts";
import { lcsLength, rangeLimits, windowLcs } from "../../src/graders/metrics/lcs.ts";
import { porterStem } from "../../src/graders/metrics/porter.ts";
import { fc, test } from "@fast-check/vitest";

/** Written by `test/oracle/text-metrics.py`. */
const oracle = JSON.parse(gunzipSync(readFileSync(join(import.meta.dirname, "text-metrics.json.gz"))).toString("utf8")) as {
  readonly versions: Readonly<Record<string, string>>;
  readonly metrics: readonly TextMetric[];
  readonly rows: readonly (readonly [text: string, reference: string, ...values: number[]])[];
  readonly stems: readonly (readonly [word: string, stem: string])[];
};

/** Max difference of a metric and the value of its reference implementation. */
const TOLERANCE = 1e-6;

describe("text metrics", () => {
  it("are compared with the versions of the reference implementations that OpenAI's guide lists, on 1,000 pairs", () => {
    expect(oracle.versions).toMatchObject({ rapidfuzz: "3.10.1", nltk: "3.9.1", "rouge-score": "0.1.2" });
    expect(oracle.rows).toHaveLength(1000);
    expect(oracle.metrics).toHaveLength(10);
  });

  it.each(oracle.metrics.map((metric, index) => [metric, index] as const))("equal the reference implementation: %s", (metric, index) => {
    const different = oracle.rows.filter(([text, reference, ...values]) => {
      return !(Math.abs(textSimilarity(metric, text, reference) - (values[index] ?? Number.NaN)) <= TOLERANCE);
    });
    expect(different).toEqual([]);
    // The pairs have values at both ends of the range and many between them.
    const values = oracle.rows.map(([, , ...all]) => all[index] ?? 0);
    expect(Math.min(...values)).toBe(0);
    expect(Math.max(...values)).toBeGreaterThan(0.99);
    expect(new Set(values).size).toBeGreaterThan(150);
  });

  it("ignore synonyms in METEOR, whose stage needs WordNet", () => {
    expect(textSimilarity("meteor", "the car stopped", "the automobile stopped")).toBe(
      textSimilarity("meteor", "the tree stopped", "the automobile stopped"),
    );
    expect(textSimilarity("meteor", "the cars stopped", "the car stops")).toBeGreaterThan(0.9);
  });
});

describe("texts that are too long", () => {
  const long = "a".repeat(20_000);

  it.each(["fuzzy_match", "rouge_l"] as const)("are rejected by %s, which compares all pairs of characters", (metric) => {
    expect(() => textSimilarity(metric, long, long)).toThrow(
      expect.objectContaining({ code: "E_GRADER", flag: "other_error", message: expect.stringContaining("got 20000 and 20000") }),
    );
    expect(textSimilarity(metric, long, `${"a".repeat(9_990)} b`)).toBeGreaterThanOrEqual(0);
  });

  it.each(oracle.metrics.filter((metric) => metric !== "fuzzy_match" && metric !== "rouge_l"))("are scored by %s", (metric) => {
    expect(textSimilarity(metric, `${long} b c d e f`, `${long} b c d e f`)).toBeGreaterThan(0.99);
  });
});

describe("the stemmer", () => {
  it("equals nltk's PorterStemmer on 3,000 words", () => {
    expect(oracle.stems.length).toBeGreaterThanOrEqual(3000);
    expect(oracle.stems.filter(([word, stem]) => porterStem(word) !== stem)).toEqual([]);
  });

  it("stems a long run of `y`, in which vowels and consonants alternate", () => {
    expect(porterStem("yyyying")).toBe("yyyi");
    const run = "y".repeat(99_999);
    expect(porterStem(`${run}ying`)).toBe(`${run}i`);
    expect(textSimilarity("meteor", `${run} cat`, `${run}s cat`)).toBeGreaterThan(0.9);
  });
});

/** LCS by its definition. */
function lcsByTable(a: readonly string[], b: readonly string[]): number {
  let row: number[] = [0, ...b.map(() => 0)];
  for (const token of a) {
    const next = [0];
    b.forEach((other, index) => next.push(token === other ? row[index]! + 1 : Math.max(row[index + 1]!, next[index]!)));
    row = next;
  }
  return row.at(-1) ?? 0;
}

const tokens = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 80 });

describe("longest common subsequences", () => {
  test.prop([tokens, tokens])("have the length of the table of all pairs", (a, b) => {
    expect(lcsLength(a, b)).toBe(lcsByTable(a, b));
  });

  const few = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 12 });

  test.prop([few, few])("have the length of the table in every window of the longer text", (...texts) => {
    const [a, b] = texts.toSorted((left, right) => left.length - right.length) as [string[], string[]];
    fc.pre(a.length > 0);
    const windows = Array.from(
      { length: a.length + b.length },
      (_, end) => [Math.max(0, end - a.length), Math.min(end, b.length)] as const,
    );
    const expected = windows.filter(([start, end]) => end > start).map(([start, end]) => [end - start, lcsByTable(a, b.slice(start, end))]);
    const found = Array.from(windowLcs(a, b), ({ length, common }) => [length, common]);
    expect(found).toEqual(expected);
  });

  test.prop([few, few])("have the length that the limits give for every range", (a, b) => {
    const limits = rangeLimits(a, b);
    for (let start = 0; start <= b.length; start++) {
      for (let end = start; end <= b.length; end++) {
        const counted = [...limits.subarray(start, end)].filter((limit) => limit < start).length;
        expect(counted).toBe(lcsByTable(a, b.slice(start, end)));
      }
    }
  });
});
