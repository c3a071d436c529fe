import { z } from "zod";
import { defineToolEnvironment } from "../../src/library/protocols/index.ts";
import { defineTool } from "../../src/library/rollout/agent/index.ts";

/** Scenario: two numbers to add. */
export interface Sum {
  readonly a: number;
  readonly b: number;
}

/** Number of released episodes, over all environments of {@link sums}. */
export const released = { count: 0 };

/** Environment with a tool that counts its calls, and a reward of 1 for the sum minus 0.1 per call. */
export function sums() {
  return defineToolEnvironment<Sum>({
    name: "Sums",
    scenarios: {
      train: [
        { a: 2, b: 3 },
        { a: 4, b: 5 },
      ],
      eval: [{ a: 6, b: 7 }],
    },
    start: ({ a, b }) => {
      let calls = 0;
      const add = defineTool({
        name: "add",
        description: "Adds two numbers.",
        schema: z.object({ x: z.number(), y: z.number() }),
        run: ({ x, y }) => `${x + y} after ${++calls}`,
      });
      return {
        messages: [{ role: "user", content: `What is ${a} + ${b}?` }],
        tools: [add],
        close: () => {
          released.count++;
        },
      };
    },
    rewards: [
      { name: "correct", score: ({ scenario, text }) => text.includes(String(scenario.a + scenario.b)) },
      { name: "calls", weight: -0.1, score: ({ trajectory }) => trajectory.messages().filter(({ role }) => role === "tool").length },
    ],
  });
}
