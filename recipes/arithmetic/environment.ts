import { trajectory } from "whetstone";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import {
  arithmeticMessages,
  type ArithmeticScenario,
  arithmeticScenario,
  correct,
  goldAnswer,
  LARGEST,
  MAX_COMPLETION_TOKENS,
  wellFormed,
} from "./task.ts";

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out problems, `train` has numbers up to `largest`. */
export function arithmeticEnvironment(seed = 1, heldOut = 256, largest = LARGEST): Environment<ArithmeticScenario> {
  return defineEnvironment({
    name: "arithmetic",
    scenarios: {
      train: (index) => arithmeticScenario("train", seed, index, largest),
      eval: Array.from({ length: heldOut }, (_, index) => arithmeticScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: arithmeticMessages(scenario) });
      await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
      return t;
    },
    rewards: [
      weighted(
        0.9,
        reward("correct", ({ text, scenario }) => correct(text, scenario)),
      ),
      weighted(
        0.1,
        reward("well_formed", ({ text }) => wellFormed(text)),
      ),
    ],
    gold: goldAnswer,
  });
}

export default arithmeticEnvironment();
