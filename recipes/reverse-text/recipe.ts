import type { Recipe, SftThenRlConfig } from "../shared/sft-then-rl.ts";
import { reverseEnvironment } from "./environment.ts";
import { goldAnswer, reverseMessages, type ReverseScenario, reverseScenario } from "./task.ts";

/** Returns the task for the stages, with the problems of the settings' seed. */
export function reverseRecipe({ seed, heldOut, sft }: SftThenRlConfig): Recipe<ReverseScenario> {
  return {
    environment: reverseEnvironment(seed, heldOut),
    exact: "exact",
    validation: Array.from({ length: sft.validation }, (_, index) => reverseScenario("validation", seed, index)),
    example: (index) => {
      const scenario = reverseScenario("sft", seed, index);
      return { messages: [...reverseMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
    },
  };
}
