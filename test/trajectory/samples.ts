import type { ChatCompletion, ChatCompletionRequest } from "../../src/base/schema/index.ts";
import { Trajectory, TrajectoryGroup, type Policy } from "../../src/base/trajectory/index.ts";

/** Returns a policy that answers with `texts` in turn and keeps its requests. */
export function scriptedPolicy(...texts: readonly string[]): Policy & { readonly requests: ChatCompletionRequest[] } {
  const requests: ChatCompletionRequest[] = [];
  return {
    id: "team/p/n:step3",
    step: 3,
    requests,
    complete: async (request, { signal } = {}) => {
      signal?.throwIfAborted();
      requests.push(request);
      return completion(texts[(requests.length - 1) % texts.length] ?? "");
    },
  };
}

export function completion(text: string, model = "team/p/n:step3"): ChatCompletion {
  const letters = text.split("");
  return {
    id: "c",
    object: "chat.completion",
    created: 1,
    model,
    prompt_token_ids: [1, 2],
    usage: { prompt_tokens: 2, completion_tokens: letters.length, total_tokens: 2 + letters.length },
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: text },
        finish_reason: "stop",
        token_ids: letters.map((letter) => letter.charCodeAt(0)),
        logprobs: { content: letters.map((token) => ({ token, logprob: -0.5, top_logprobs: [] })) },
      },
    ],
  };
}

/** A trainable trajectory in one line; `overrides` go into its choice. */
export function sampled(reward: number, text = `t${reward}`, overrides: object = {}): Trajectory {
  const { choices, prompt_token_ids } = completion(text);
  const choice = { ...choices[0], prompt_token_ids, policy_version: 3, ...overrides };
  const wire = Trajectory.fromJSON({ messages_and_choices: [{ role: "user", content: "q" }, choice] }).toJSON();
  // Past the schema on purpose: a reward that is not finite must reach preflight.
  return Trajectory.fromWire({ ...wire, reward });
}

export function group(...trajectories: readonly Trajectory[]): TrajectoryGroup {
  return new TrajectoryGroup({ trajectories });
}
