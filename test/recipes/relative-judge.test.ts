import { describe, expect, test } from "vitest";
import { environmentRollout, validate } from "whetstone/environment";
import { validateJudge } from "whetstone/judge";
import { gatherTrajectoryGroups } from "whetstone";
import environment, { judgedEnvironment } from "../../recipes/relative-judge/environment.ts";
import { scriptedJudge } from "../../recipes/relative-judge/judge.ts";
import { heldOutWord, promptOf, quality, trainWord } from "../../recipes/relative-judge/task.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

const WORD = { id: "abcd" };
const ANSWERS = ["dcba", "dcb", "dc", "hh", "dcba"];

/** Returns a group of prepared answers to {@link WORD}, judged by the script. */
async function play(isShuffled: boolean, answers: readonly string[] = ANSWERS) {
  const policy = createScriptedPolicy(answers.map((text) => ({ text })));
  const rollout = environmentRollout(judgedEnvironment(1, 1, scriptedJudge(isShuffled)));
  const [group] = await gatherTrajectoryGroups([WORD], rollout, { policy, groupSize: answers.length, concurrency: 1, seed: 3 });
  return group!;
}

describe("relative-judge", () => {
  test("words depend on seed and index only, and no held-out word is trained on", () => {
    const trained = new Set(Array.from({ length: 3584 }, (_, index) => trainWord(3, index).id));
    const held = new Set(Array.from({ length: 512 }, (_, index) => heldOutWord(3, index).id));
    expect([trained.size, held.size]).toEqual([3584, 512]);
    expect([...held].filter((word) => trained.has(word))).toEqual([]);
    expect(trainWord(3, 7)).toEqual(trainWord(3, 7));
    expect(promptOf(WORD)).toBe("Reverse: abcd");
  });

  test("the judge's score is the reward, and the hidden quality is recorded only", async () => {
    const group = await play(false);
    expect(group.rewards).toEqual(ANSWERS.map((text) => quality(text, WORD.id)));
    expect(group.rewards[0]).toBe(1);
    expect(group.trajectories.map(({ metrics }) => metrics["independent_reward"])).toEqual([0, 0, 0, 0, 0]);
    expect(group.trajectories.map(({ metrics }) => metrics["reward/quality"])).toEqual(group.rewards);
  });

  test("the control gives the same scores to other candidates, the same ones whenever it is repeated", async () => {
    const group = await play(true);
    const distinct = (rewards: readonly number[]) => [...new Set(rewards)].toSorted((a, b) => a - b);
    expect(distinct(group.rewards)).toEqual(distinct(ANSWERS.map((text) => quality(text, WORD.id))));
    expect(group.rewards[0]).toBe(group.rewards[4]);
    expect((await play(true)).rewards).toEqual(group.rewards);
  });

  test("the judge passes validateJudge, and the control does not", async () => {
    const { trajectories } = await play(false, ["dcba", "dcb", "dc", "hh"]);
    const cases = [{ scenario: WORD, trajectories }];
    const judged = await validateJudge(environment.groupRewards[0]!, cases);
    expect(judged).toMatchObject({ isValid: true, pairwiseAccuracy: 1, findings: [] });
    const control = await validateJudge(judgedEnvironment(1, 1, scriptedJudge(true)).groupRewards[0]!, cases, { orders: 40 });
    expect(control.pairwiseAccuracy).toBeLessThan(0.7);
    expect(control.findings.map(({ code }) => code)).toContain("order-changes-scores");
  });

  test("only gold answers earn 1", async () => {
    // The hidden quality has weight 0, so the expected reward is the judge's.
    expect(await validate(judgedEnvironment(1, 8))).toMatchObject({ isValid: true, expected: 1, findings: [] });
  });

  test("the command runs two RL steps", async () => {
    checkRun(
      "relative-judge",
      await runRecipe(
        "relative-judge",
        TINY.filter((_, index) => index !== 2 && index !== 3),
      ),
    );
  }, 120_000);
});
