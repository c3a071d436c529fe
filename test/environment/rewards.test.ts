import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  jsonSchemaReward,
  numericReward,
  regexReward,
  reward,
  similarityReward,
  weighted,
  type Reward,
} from "../../src/library/environment/index.ts";
import { numberIn } from "../../src/library/environment/number-in.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";

const trajectory = Trajectory.fromJSON({ messages_and_choices: [] });

async function score<S>(part: Reward<S>, text: string, scenario: S): Promise<number> {
  return Number(await part.score({ scenario, text, trajectory, signal: new AbortController().signal }));
}

describe("reward and weighted", () => {
  it("multiply weights and keep the name", () => {
    const half = weighted(
      0.5,
      weighted(
        -0.5,
        reward("short", () => true),
      ),
    );
    expect(half).toMatchObject({ name: "short", weight: -0.25 });
    expect(
      weighted(2, function tidy() {
        return 1;
      }),
    ).toMatchObject({ name: "tidy", weight: 2 });
  });

  it.each([
    ["an empty name", () => reward(" ", () => 1)],
    ["no function", () => reward("x", 3 as never)],
    [
      "a weight that is not finite",
      () =>
        weighted(
          Number.NaN,
          reward("x", () => 1),
        ),
    ],
    [
      "a function without a name",
      () =>
        weighted(
          1,
          (
            () => () =>
              1
          )(),
        ),
    ],
    ["no pattern", () => regexReward("a" as never)],
    ["no schema", () => jsonSchemaReward([] as never)],
    ["no answer", () => similarityReward("a" as never)],
    ["a negative tolerance", () => numericReward(() => 1, { tolerance: -1 })],
    ["a relative tolerance that is not finite", () => numericReward(() => 1, { relativeTolerance: Number.NaN })],
    ["another place", () => numericReward(() => 1, { which: "middle" as never })],
  ])("reject %s", (_, make) => {
    expect(make).toThrow(ConfigError);
  });
});

describe("regexReward", () => {
  it("finds the pattern anywhere in the text, independent of flags and earlier calls", async () => {
    for (const flags of ["", "g", "y", "gy"]) {
      const part = regexReward(new RegExp("b+", flags));
      expect([await score(part, "abb", 0), await score(part, "abb", 0), await score(part, "ac", 0)], flags).toEqual([1, 1, 0]);
    }
  });

  it("accepts a pattern per scenario and an extracted part of the text", async () => {
    const part = regexReward((scenario: { word: string }) => new RegExp(`^${scenario.word}$`), {
      name: "said",
      extract: (text) => /<a>(.*)<\/a>/.exec(text)?.[1],
    });
    expect(part.name).toBe("said");
    expect(await score(part, "so <a>yes</a>", { word: "yes" })).toBe(1);
    expect(await score(part, "so <a>no</a>", { word: "yes" })).toBe(0);
    expect(await score(part, "yes", { word: "yes" })).toBe(0);
  });
});

describe("numericReward", () => {
  it.each([
    ["The answer is 42.", 42],
    ["is -3", -3],
    ["x=−2.5", -2.5],
    ["5-3", 3],
    ["(7)-2", 2],
    ["GPT-4", 4],
    ["1,234,567.5 in all", 1234567.5],
    ["1,2", 2],
    ["1234,567", 567],
    [".5", 0.5],
    ["6.02e23", 6.02e23],
    ["first 1, then +2e-3", 0.002],
    ["none", null],
    ["1e999", null],
  ])("reads %j as %j", (text, value) => {
    expect(numberIn(text, "last")).toBe(value);
  });

  it("compares within the tolerance, like math.isclose", async () => {
    const exact = numericReward((scenario: number) => scenario);
    expect(await score(exact, "0.1", 0.1)).toBe(1);
    expect(await score(exact, "1000000000.5", 1e9)).toBe(1);
    expect(await score(exact, "1000000002", 1e9)).toBe(0);
    expect(await score(exact, "no number", 1)).toBe(0);
    const near = numericReward((scenario: number) => scenario, { tolerance: 0.5, which: "first" });
    expect([await score(near, "3.5 or 9", 3), await score(near, "3.51 or 3", 3)]).toEqual([1, 0]);
  });

  it("throws if the right number is not finite", async () => {
    await expect(
      score(
        numericReward(() => Number.NaN),
        "1",
        0,
      ),
    ).rejects.toThrow(/right number to be finite, got `NaN`/);
  });
});

describe("jsonSchemaReward", () => {
  const schema = z.toJSONSchema(z.object({ city: z.string(), days: z.array(z.int()).min(1) })) as never;

  it("accepts only JSON that matches the schema", async () => {
    const part = jsonSchemaReward(schema);
    const texts = ['{"city":"Ulm","days":[1]}', '{"city":"Ulm","days":[]}', '{"city":"Ulm"}', '{"city":"Ulm","days":[1]', "Ulm", ""];
    const scores = await Promise.all(texts.map((text) => score(part, text, 0)));
    expect(scores).toEqual([1, 0, 0, 0, 0, 0]);
  });

  it("reads the dialect that the schema names", async () => {
    // A list under `items` is a tuple in draft-07 and a mistake in 2020-12.
    const tuple = { items: [{ type: "string" }, { type: "number" }] };
    const old = jsonSchemaReward({ $schema: "http://json-schema.org/draft-07/schema#", ...tuple });
    expect([await score(old, '["a",1]', 0), await score(old, '["a","b"]', 0)]).toEqual([1, 0]);
    await expect(score(jsonSchemaReward(tuple), '["a",1]', 0)).rejects.toMatchObject({ code: "E_CONFIG" });
  });

  it("fails on a schema with a misspelt keyword instead of accepting everything", async () => {
    await expect(score(jsonSchemaReward({ type: "object", requird: ["a"] }), "{}", 0)).rejects.toThrow(/requird/);
  });
});

describe("similarityReward", () => {
  it("compares with the scenario's answer", async () => {
    const part = similarityReward((scenario: { answer: string }) => scenario.answer);
    expect(await score(part, "abcd", { answer: "bcde" })).toBe(0.75);
  });
});
