import { trajectory } from "whetstone";
import { type AgentTool, defineTool, runAgent } from "whetstone/agent";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import type { RequestMessage } from "whetstone/schema";
import { z } from "zod";
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

/** Creates the lookup tool of a problem. */
export function lookupTool(scenario: LookupScenario): AgentTool {
  return defineTool({
    name: "lookup",
    description: "Find a key.",
    schema: z.object({ key: z.string() }),
    run: ({ key }) => lookUp(key, scenario),
  });
}

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out problems. */
export function lookupEnvironment(seed = 1, heldOut = 256): Environment<LookupScenario> {
  return defineEnvironment({
    name: "tool-lookup",
    scenarios: {
      train: (index) => lookupScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => lookupScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: lookupMessages(scenario), tools: [lookupTool(scenario)] });
      await runAgent(t, policy, { maxTurns: MOST_TURNS, maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
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

/** Returns the keys of all tool calls. */
function askedKeys(messages: readonly Pick<RequestMessage, "tool_calls">[]): string[] {
  return messages.flatMap(({ tool_calls: calls }) => (calls ?? []).map((call) => keyOf(call.function.arguments ?? "")));
}

/** Returns the key in a call's arguments; empty if the arguments do not match the tool's schema. */
function keyOf(text: string): string {
  try {
    const { key } = JSON.parse(text) as { key?: unknown };
    return typeof key === "string" ? key : "";
  } catch {
    return "";
  }
}

export default lookupEnvironment();
