import { trajectory } from "whetstone";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import type { RequestMessage } from "whetstone/schema";
import {
  correct,
  followed,
  goldMessages,
  lookUp,
  lookupMessages,
  type LookupScenario,
  lookupScenario,
  MAX_COMPLETION_TOKENS,
  MOST_TURNS,
} from "./task.ts";

/** What the model is told of the tool. */
export const LOOKUP_TOOLS = [
  {
    type: "function" as const,
    function: { name: "lookup", parameters: { type: "object", properties: { key: { type: "string" } } } },
  },
];

/** The task with the problems of one seed; `eval` are the first `heldOut` of the held-out ones. */
export function lookupEnvironment(seed = 1, heldOut = 256): Environment<LookupScenario> {
  return defineEnvironment({
    name: "tool-lookup",
    scenarios: {
      train: (index) => lookupScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => lookupScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: lookupMessages(scenario), tools: LOOKUP_TOOLS });
      for (let turn = 0; turn < MOST_TURNS; turn++) {
        // A seed fixes a request's draws: with the same one in every turn, the turns' draws would be the same.
        const seed = sampling.seed + turn;
        const { toolCalls } = await t.sample(policy, { maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling, seed });
        if (toolCalls.length === 0) break;
        for (const { id, function: call } of toolCalls)
          t.add({ role: "tool", tool_call_id: id ?? "", content: lookUp(keyOf(call.arguments), scenario) });
      }
      return t;
    },
    rewards: [
      weighted(
        0.8,
        reward("correct", ({ text, scenario }) => correct(text, scenario)),
      ),
      weighted(
        0.2,
        reward("followed", ({ trajectory: t, scenario }) => followed(askedKeys(t.messages()), scenario)),
      ),
    ],
    gold: goldMessages,
  });
}

/** Every key that was asked for. */
function askedKeys(messages: readonly Pick<RequestMessage, "tool_calls">[]): string[] {
  return messages.flatMap(({ tool_calls: calls }) => (calls ?? []).map((call) => keyOf(call.function.arguments)));
}

/** The key in a call's arguments; empty when they are not what the tool takes. */
function keyOf(text: string | null | undefined): string {
  try {
    const { key } = JSON.parse(text ?? "") as { key?: unknown };
    return typeof key === "string" ? key : "";
  } catch {
    return "";
  }
}

export default lookupEnvironment();
