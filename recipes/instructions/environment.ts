import { trajectory } from "whetstone";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import { goldAnswer } from "./gold.ts";
import { followed, instructionMessages, type InstructionScenario, instructionScenario, isSensible, MAX_COMPLETION_TOKENS } from "./task.ts";

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out problems. */
export function instructionsEnvironment(seed = 1, heldOut = 160): Environment<InstructionScenario> {
  return defineEnvironment({
    name: "instructions",
    scenarios: {
      train: (index) => instructionScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => instructionScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: instructionMessages(scenario) });
      await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
      return t;
    },
    rewards: [
      weighted(
        0.3,
        reward("followed", ({ text, scenario }) => followed(text, scenario)),
      ),
      weighted(
        0.2,
        reward("sensible", ({ text, scenario, trajectory: { choices } }) => isSensible(text, scenario) && isComplete(choices)),
      ),
      weighted(
        0.5,
        reward(
          "exact",
          ({ text, scenario, trajectory: { choices } }) =>
            followed(text, scenario) === 1 && isSensible(text, scenario) && isComplete(choices),
        ),
      ),
    ],
    gold: goldAnswer,
    scenarioId: ({ id }) => id,
  });
}

/** Returns true if the token limit cut no answer off. */
function isComplete(choices: readonly { readonly finish_reason?: string | null | undefined }[]): boolean {
  return choices.every(({ finish_reason: reason }) => reason !== "length");
}

export default instructionsEnvironment();
