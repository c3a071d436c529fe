import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import environment from "../../recipes/reverse-text/environment.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

/** Returns the rewards of a stored group, and the values of its reward function. */
function groupOf(line: string): { readonly rewards: number[]; readonly ratios: number[] } {
  const { trajectories } = JSON.parse(line) as { trajectories: { reward: number; metrics: Record<string, number> }[] };
  return { rewards: trajectories.map(({ reward }) => reward), ratios: trajectories.map(({ metrics }) => metrics["reward/ratio"] ?? NaN) };
}

const sorted = (values: readonly number[]): number[] => values.toSorted((a, b) => a - b);

describe("reverse-text", () => {
  test("only gold answers earn 1, and no held-out string is in the training split", async () => {
    expect(environment.scenarios.eval).toHaveLength(256);
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1 });
  });

  test("the quickstart runs an SFT job and two RL steps, with shuffled rewards as the control", async () => {
    const run = await runRecipe("quickstart", [...TINY, "--shuffle-rewards"]);
    checkRun("reverse-text", run);
    const groups = run.files["rl/trajectories/train/000000.jsonl"]!.trimEnd().split("\n").map(groupOf);
    // A permutation changes rewards but no group's sum.
    expect(groups.some(({ rewards, ratios }) => rewards.join() !== ratios.join())).toBe(true);
    for (const { rewards, ratios } of groups) expect(sorted(rewards)).toEqual(sorted(ratios));
  }, 120_000);
});
