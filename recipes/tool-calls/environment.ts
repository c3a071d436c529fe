import { trajectory } from "whetstone";
import { type AgentTool, defineTool, runAgent } from "whetstone/agent";
import { defineEnvironment, type Environment, reward, weighted } from "whetstone/environment";
import type { RequestMessage } from "whetstone/schema";
import { z } from "zod";
import {
  callScenario,
  type CallScenario,
  callScore,
  correct,
  goldMessages,
  type MadeCall,
  MAX_COMPLETION_TOKENS,
  MAX_TURNS,
  reportScore,
  requestMessages,
  resultOf,
} from "./task.ts";

/** Description and argument types of each tool. */
const TOOLS: Readonly<Record<string, { readonly description: string; readonly schema: z.ZodObject }>> = {
  weather: { description: "Weather of a city on a day.", schema: z.object({ city: z.string(), day: z.string() }) },
  set_timer: { description: "Start a timer.", schema: z.object({ minutes: z.int() }) },
  add_event: { description: "Add an event to the calendar.", schema: z.object({ title: z.string(), day: z.string(), hour: z.int() }) },
  find_contact: { description: "Phone number of a person.", schema: z.object({ name: z.string() }) },
  send_message: { description: "Send a text to a phone number.", schema: z.object({ number: z.string(), text: z.string() }) },
  find_product: { description: "Code of a product.", schema: z.object({ name: z.string() }) },
  order: { description: "Order a product by its code.", schema: z.object({ code: z.string(), quantity: z.int() }) },
};

/** Creates the tools of a scenario. All scenarios have the same definitions, so prompts share their beginning in the prefix cache. */
export function toolsOf(scenario: CallScenario): AgentTool[] {
  return Object.entries(TOOLS).map(([name, { description, schema }]) =>
    defineTool({ name, description, schema, run: (args) => resultOf(name, args, scenario) }),
  );
}

/** Creates the environment for a seed; `eval` has the first `heldOut` held-out requests. */
export function callEnvironment(seed = 1, heldOut = 256): Environment<CallScenario> {
  return defineEnvironment({
    name: "tool-calls",
    scenarios: {
      train: (index) => callScenario("train", seed, index),
      eval: Array.from({ length: heldOut }, (_, index) => callScenario("held-out", seed, index)),
    },
    async rollout(scenario, { policy, sampling }) {
      const t = trajectory({ messages: requestMessages(scenario), tools: toolsOf(scenario) });
      await runAgent(t, policy, { maxTurns: MAX_TURNS, maxCompletionTokens: MAX_COMPLETION_TOKENS, ...sampling });
      return t;
    },
    rewards: [
      weighted(
        0.5,
        reward("correct", ({ trajectory: t, text, scenario }) => correct(madeCalls(t.messages()), text, scenario)),
      ),
      weighted(
        0.4,
        reward("calls", ({ trajectory: t, scenario }) => callScore(madeCalls(t.messages()), scenario)),
      ),
      weighted(
        0.1,
        reward("report", ({ text, scenario }) => reportScore(text, scenario)),
      ),
    ],
    gold: goldMessages,
  });
}

/** Returns all tool calls of a conversation; arguments that are not a JSON object count as none. */
export function madeCalls(messages: readonly Pick<RequestMessage, "tool_calls">[]): MadeCall[] {
  return messages.flatMap(({ tool_calls: calls }) =>
    (calls ?? []).map(({ function: { name, arguments: text } }) => ({ tool: name, args: argumentsOf(text ?? "") })),
  );
}

function argumentsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

export default callEnvironment();
