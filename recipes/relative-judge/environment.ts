import { trajectory } from "whetstone";
import { defineEnvironment, type Environment } from "whetstone/environment";
import { type JudgeModel, relativeJudge } from "whetstone/judge";
import { scriptedJudge } from "./judge.ts";
import { heldOutWord, MAX_COMPLETION_TOKENS, promptOf, quality, trainWord, type WordScenario } from "./task.ts";

/** Returns the rubric of a word. The scripted judge reads only the word in it. */
function rubricOf({ id }: WordScenario): string {
  return `The task is to write ${id} backwards. The better candidate has more letters of the word backwards, in the right order, and nothing else.`;
}

/**
 * Creates the environment for a seed and a judge. The hidden quality is recorded with weight 0: the reward is the judge's score alone.
 * `heldOut` is the number of held-out words.
 */
export function judgedEnvironment(seed = 1, heldOut = 256, model: JudgeModel = scriptedJudge()): Environment<WordScenario> {
  return defineEnvironment({
    name: "relative-judge",
    scenarios: {
      train: (index) => trainWord(seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => heldOutWord(seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: promptOf(scenario) }] });
      await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
      return t;
    },
    rewards: [{ name: "quality", weight: 0, score: ({ text, scenario }) => quality(text, scenario.id) }],
    groupRewards: [relativeJudge({ model, rubric: rubricOf })],
    gold: ({ id }) => [...id].reverse().join(""),
  });
}

export default judgedEnvironment();
