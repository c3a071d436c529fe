import { trajectory } from "whetstone";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import {
  extractAnswer,
  goldAnswer,
  MAX_COMPLETION_TOKENS,
  reverseMessages,
  reverseReward,
  type ReverseScenario,
  reverseScenario,
} from "./task.ts";

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out strings. */
export function reverseEnvironment(seed = 1, heldOut = 256): Environment<ReverseScenario> {
  return defineEnvironment({
    name: "reverse-text",
    scenarios: {
      train: (index) => reverseScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => reverseScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: reverseMessages(scenario) });
      await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
      return t;
    },
    rewards: [
      reward("ratio", ({ text, scenario }) => reverseReward(text, scenario)),
      // Weight 0, as a metric only: the published task rewards the ratio alone.
      weighted(
        0,
        reward("exact", ({ text, scenario }) => extractAnswer(text) === scenario.answer),
      ),
    ],
    gold: goldAnswer,
    scenarioId: ({ prompt }) => prompt,
  });
}

export default reverseEnvironment();
