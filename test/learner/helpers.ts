/** Small wire values for the learner's tests. */

import { assistantChoice, trajectoryGroup } from "../../src/base/schema/index.ts";
import type { AssistantChoice, TrajectoryGroup } from "../../src/base/schema/index.ts";

/** A sampled turn; the k-th log-probability is `-(k + 1) / 10` unless given. */
export function choice(prompt: readonly number[], sampled: readonly number[], logprobs?: readonly number[]): AssistantChoice {
  return assistantChoice.parse({
    message: { role: "assistant", content: "x" },
    prompt_token_ids: prompt,
    token_ids: sampled,
    logprobs: { content: sampled.map((_, index) => ({ token: "x", logprob: logprobs?.[index] ?? -(index + 1) / 10 })) },
  });
}

/** A group from rewards and the choices of each trajectory. */
export function group(
  ...trajectories: readonly {
    readonly reward: number;
    readonly choices: readonly unknown[];
    readonly extra?: readonly (readonly unknown[])[];
  }[]
): TrajectoryGroup {
  return trajectoryGroup.parse({
    trajectories: trajectories.map(({ reward, choices, extra = [] }) => ({
      reward,
      messages_and_choices: [{ role: "user", content: "q" }, ...choices],
      additional_histories: extra.map((items) => ({ messages_and_choices: items })),
    })),
  });
}
