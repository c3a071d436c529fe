/**
 * Conformance of a chat completion server, over HTTP only. By default the suite starts its own services; with
 * `CONFORMANCE_BASE_URL` (the address without `/v1`) and `CONFORMANCE_API_KEY` it tests another server, with `CONFORMANCE_MODEL` one
 * of its models. Cases that need an option or a fault are skipped there, with the reason.
 */
import { afterAll, describe, expect, it } from "vitest";
import { chatCompletionRequest } from "../../src/base/schema/index.ts";
import type { ConformanceCase } from "./case.ts";
import { basics } from "./cases/basics.ts";
import { errors } from "./cases/errors.ts";
import { prompt } from "./cases/prompt.ts";
import { sampling } from "./cases/sampling.ts";
import { stopping } from "./cases/stopping.ts";
import { streaming } from "./cases/streaming.ts";
import { structured } from "./cases/structured.ts";
import { tools } from "./cases/tools.ts";
import { closeServices } from "./servers.ts";
import { Target } from "./target.ts";

const cases: readonly ConformanceCase[] = [
  ...basics,
  ...sampling,
  ...stopping,
  ...structured,
  ...prompt,
  ...tools,
  ...streaming,
  ...errors,
];

/** Numbers of the specification's cases, with gaps. */
const NUMBERS = [
  [1, 9],
  [12, 16],
  [18, 36],
  [38, 44],
  [46, 52],
  [54, 54],
  [56, 57],
  [59, 64],
  [66, 68],
  [70, 71],
  [73, 77],
  [79, 82],
  [84, 86],
  [88, 90],
  [92, 94],
].flatMap(([first = 0, last = 0]) => Array.from({ length: last - first + 1 }, (_, at) => first + at));
const ERROR_ROWS = 13;

afterAll(closeServices);

describe("chat completions", () => {
  for (const each of cases) {
    it(`${each.number}: ${each.title}`, { timeout: each.timeoutMs ?? 120_000 }, async (context) => {
      const target = await Target.of(each);
      if (target === null) return context.skip(`needs ${each.needs!.because}`);
      await each.run(target);
      expect(
        (each.fields ?? []).filter((field) => !target.hasSent(field)),
        "fields it speaks of and does not send",
      ).toEqual([]);
    });
  }
});

describe("the conformance suite", () => {
  const own = new Set(cases.map((each) => each.number));

  it("has every case of the list, every row of the error table, and additional cases from number 100", () => {
    const rows = Array.from({ length: ERROR_ROWS }, (_, at) => `E${at + 1}`);
    const beyond = [...own].filter((number): number is number => typeof number === "number" && number >= 100);
    expect([...own].map(String).toSorted()).toEqual([...NUMBERS, ...rows, ...beyond].map(String).toSorted());
  });
  it("has a case for every field of the schema", () => {
    const spoken = new Set(cases.flatMap((each) => each.fields ?? []));
    expect([...spoken].toSorted()).toEqual(Object.keys(chatCompletionRequest.shape).toSorted());
  });
});
