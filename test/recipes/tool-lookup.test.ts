import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment, { lookupTool } from "../../recipes/tool-lookup/environment.ts";
import {
  correct,
  followed,
  goldMessages,
  LONGEST_CHAIN,
  lookUp,
  type LookupScenario,
  lookupScenario,
  splitOf,
} from "../../recipes/tool-lookup/task.ts";
import { SPLITS } from "../../recipes/shared/splits.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

const chain: LookupScenario = { id: "abc", key: "abc", answer: "417", table: { abc: "xyz", xyz: "417" } };

describe("tool-lookup", () => {
  test("accepts only the number at the end of the chain", () => {
    expect(correct("417", chain)).toBe(1);
    expect(["xyz", "", "4170", "the number is 417", "none"].map((text) => correct(text, chain))).toEqual([0, 0, 0, 0, 0]);
    expect([followed([], chain), followed(["abc"], chain), followed(["abc", "xyz", "abc"], chain), followed(["417"], chain)]).toEqual([
      0, 0.5, 1, 0,
    ]);
  });

  test("the table contains only its own keys", () => {
    expect(["abc", "xyz", "qqq", "", "toString", "__proto__"].map((key) => lookUp(key, chain))).toEqual([
      "xyz",
      "417",
      "none",
      "none",
      "none",
      "none",
    ]);
  });

  test("the tool returns the value, or an error for an invalid call", async () => {
    const context = { signal: new AbortController().signal, callId: "1" };
    const tool = lookupTool(chain);
    expect(await tool.call('{"key":"abc"}', context)).toEqual({ text: "xyz", isError: false });
    expect((await tool.call('{"name":"abc"}', context)).isError).toBe(true);
  });

  test("problems have chains of one to three keys, and a first key is in only one split", () => {
    const lengths = new Set<number>();
    for (const split of SPLITS) {
      for (let index = 0; index < 100; index++) {
        const scenario = lookupScenario(split, index % 5, index);
        expect(lookupScenario(split, index % 5, index)).toEqual(scenario);
        expect(splitOf(scenario.key)).toBe(split);
        expect(scenario.answer).toMatch(/^\d{3}$/);
        lengths.add(Object.keys(scenario.table).length);
      }
    }
    expect([...lengths].sort((a, b) => a - b)).toEqual(Array.from({ length: LONGEST_CHAIN }, (_, index) => index + 1));
  });

  test("a gold conversation looks up each key, ends with the answer, and earns the full reward", async () => {
    expect(goldMessages(chain).map(({ role, content }) => [role, content])).toEqual([
      ["assistant", ""],
      ["tool", "xyz"],
      ["assistant", ""],
      ["tool", "417"],
      ["assistant", "417"],
    ]);
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1, findings: [] });
  });

  test("the command runs an SFT job and two RL steps", async () => {
    checkRun("tool-lookup", await runRecipe("tool-lookup", TINY));
  }, 120_000);
});
