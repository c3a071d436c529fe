import { describe, expect, test } from "vitest";
import { extractAnswer, goldAnswer, reverseReward, reverseScenario, splitOf } from "../../recipes/reverse-text/task.ts";

describe("reverse-text", () => {
  test("gold answers score 1, wrong letters less, and an answer without tags 0", () => {
    const scenario = { prompt: "abcde", answer: "edcba" };
    expect(reverseReward(goldAnswer(scenario), scenario)).toBe(1);
    expect(reverseReward("<reversed_text>abcde</reversed_text>", scenario)).toBeCloseTo(0.2);
    expect(reverseReward("edcba", scenario)).toBe(0);
    expect(extractAnswer("<reversed_text>x</reversed_text> no, <reversed_text> y </reversed_text>")).toBe("y");
  });

  test("problems depend on seed and index only, have 5 to 10 letters, and no string is in two splits", () => {
    expect(reverseScenario("train", 3, 17)).toEqual(reverseScenario("train", 3, 17));
    for (const split of ["train", "sft", "validation", "held-out"] as const) {
      for (let index = 0; index < 200; index++) {
        const { prompt, answer } = reverseScenario(split, index % 5, index);
        expect(prompt).toMatch(/^[a-z]{5,10}$/);
        expect(answer).toBe(Array.from(prompt).toReversed().join(""));
        expect(splitOf(prompt)).toBe(split);
      }
    }
  });
});
