import { describe, expect, it } from "vitest";
import { Dataset } from "../../src/library/dataset/index.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";

/** Returns a conversation with two tool calls of the given ids and their results. */
const called = ([first, second]: readonly [string, string], results: readonly [string, string], city = "Rome") => {
  const call = (id: string) => ({ id, type: "function", function: { name: "weather", arguments: JSON.stringify({ city }) } });
  return Trajectory.fromJSON({
    messages_and_choices: [
      { role: "user", content: "Weather?" },
      { role: "assistant", content: null, tool_calls: [call(first), call(second)] },
      { role: "tool", tool_call_id: results[0], content: "sun" },
      { role: "tool", tool_call_id: results[1], content: "rain" },
    ],
    reward: 1,
  });
};

describe("equality of conversations with tool calls", () => {
  const original = called(["call_a", "call_b"], ["call_a", "call_b"]);
  const renamed = called(["call_x", "call_y"], ["call_x", "call_y"]);

  it("ignores the ids of calls in dedupe and split", async () => {
    expect(await Dataset.from([original, renamed]).dedupe({ by: "messages" }).toArray()).toHaveLength(1);
    for (const seed of [1, 2, 3, 4]) {
      const { train, validation } = Dataset.from([original, renamed]).split({ validation: 0.5, seed });
      const sizes = [(await train.toArray()).length, (await validation.toArray()).length];
      expect(sizes.toSorted((a, b) => a - b)).toEqual([0, 2]);
    }
  });

  it("distinguishes results that belong to different calls, and different arguments", async () => {
    const swapped = called(["call_a", "call_b"], ["call_b", "call_a"]);
    const elsewhere = called(["call_a", "call_b"], ["call_a", "call_b"], "Oslo");
    expect(await Dataset.from([original, swapped, elsewhere]).dedupe({ by: "messages" }).toArray()).toHaveLength(3);
  });

  it("keeps records with different ids apart by the complete record", async () => {
    expect(await Dataset.from([original, renamed]).dedupe({ by: "trajectory" }).toArray()).toHaveLength(2);
  });
});
