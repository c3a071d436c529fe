import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment, { arithmeticEnvironment } from "../../recipes/arithmetic/environment.ts";
import {
  type ArithmeticScenario,
  arithmeticScenario,
  correct,
  goldAnswer,
  LARGEST,
  splitOf,
  wellFormed,
} from "../../recipes/arithmetic/task.ts";
import { SPLITS } from "../../recipes/shared/splits.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

const sum: ArithmeticScenario = { id: "34+57", x: 34, y: 57 };

describe("arithmetic", () => {
  test("accepts only the correct sum inside the tags", () => {
    expect(goldAnswer(sum)).toBe("<answer>91</answer>");
    expect([correct("<answer>91</answer>", sum), wellFormed("<answer>91</answer>")]).toEqual([1, 1]);
    expect([correct("<answer>90</answer>", sum), wellFormed("<answer>90</answer>")]).toEqual([0, 1]);
    expect([correct("91", sum), wellFormed("91")]).toEqual([0, 0]);
    expect([correct("<answer>091</answer>", sum), correct("<answer></answer>", sum)]).toEqual([0, 0]);
    expect([correct("so <answer>91</answer>", sum), wellFormed("so <answer>91</answer>")]).toEqual([1, 0]);
  });

  test("a scenario depends on split, seed and index only, and a pair of numbers is in the same split in either order", () => {
    for (const split of SPLITS) {
      for (let index = 0; index < 200; index++) {
        const { x, y } = arithmeticScenario(split, index % 5, index);
        expect(arithmeticScenario(split, index % 5, index)).toEqual({ id: `${x}+${y}`, x, y });
        expect(Math.min(x, y)).toBeGreaterThanOrEqual(0);
        expect(Math.max(x, y)).toBeLessThanOrEqual(LARGEST);
        expect([splitOf(x, y), splitOf(y, x)]).toEqual([split, split]);
      }
    }
  });

  test("the splits have approximately their intended sizes", () => {
    const counts = Object.fromEntries(SPLITS.map((split) => [split, 0]));
    for (let x = 0; x <= LARGEST; x++) for (let y = x; y <= LARGEST; y++) counts[splitOf(x, y)]!++;
    const all = ((LARGEST + 1) * (LARGEST + 2)) / 2;
    // Four standard deviations of a fair draw.
    for (const [split, share] of [
      ["train", 7 / 16],
      ["sft", 7 / 16],
      ["validation", 1 / 16],
      ["held-out", 1 / 16],
    ] as const)
      expect(Math.abs(counts[split]! / all - share), split).toBeLessThan(4 * Math.sqrt((share * (1 - share)) / all));
  });

  test("the environment is seeded, and only gold answers earn 1", async () => {
    expect(environment.scenarios.eval).toHaveLength(256);
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1, findings: [] });
    expect(arithmeticEnvironment(2, 4).scenarios.eval).not.toEqual(arithmeticEnvironment(1, 4).scenarios.eval);
  });

  test("the command runs an SFT job and two RL steps", async () => {
    checkRun("arithmetic", await runRecipe("arithmetic", TINY));
  }, 120_000);
});
