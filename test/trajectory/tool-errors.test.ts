import { expect, test } from "vitest";
import { z } from "zod";
import { defineEnvironment } from "../../src/library/environment/index.ts";
import { trainRl } from "../../src/index.ts";
import { defineTool, runAgent } from "../../src/library/rollout/agent/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { toolErrors } from "../../src/base/trajectory/tool-errors.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";
import { readLines, setUp } from "../train/support.ts";

const lookup = defineTool({
  name: "lookup",
  schema: z.object({ word: z.string() }),
  run: ({ word }) => {
    if (word !== "known") throw new Error(`no such word: ${word}`);
    return "found";
  },
});
const add = defineTool({ name: "add", schema: z.object({}), run: () => 3 });

/** Plays turns with calls of `lookup` and `add`. */
async function play(...turns: readonly (readonly (readonly [string, string])[])[]) {
  const t = trajectory({ messages: [{ role: "user", content: "Go." }], tools: [lookup, add] });
  await runAgent(t, createScriptedPolicy([...turns.map((calls) => ({ calls })), { text: "done" }]));
  return t;
}

test("counts the calls and errors of each tool, with its most frequent error, in call order", async () => {
  const one = await play(
    [
      ["lookup", '{"word":"a"}'],
      ["add", "{}"],
    ],
    [["lookup", '{"word":"known"}']],
  );
  const two = await play([
    ["add", "{}"],
    ["lookup", '{"word":"b"}'],
    ["lookup", '{"word":"b"}'],
  ]);
  expect(toolErrors([one.finish({ reward: 0 }), two.finish({ reward: 1 })])).toEqual([
    { tool: "lookup", calls: 4, errors: 3, message: "no such word: b" },
    { tool: "add", calls: 2, errors: 0, message: null },
  ]);
});

test("a run warns of a tool of which most calls fail, and of no other", async () => {
  const { model, runDir } = await setUp();
  let played = 0;
  const environment = defineEnvironment({
    name: "tools",
    scenarios: { train: (index) => ({ id: String(index) }), eval: [] },
    rollout: () =>
      play([
        ["lookup", '{"word":"a"}'],
        ["add", "{}"],
      ]),
    rewards: [{ name: "varied", score: () => played++ % 2 }],
  });
  await trainRl({ model, environment, steps: 1, scenariosPerStep: 2, groupSize: 2, runDir, report: false, progress: false }).done;
  const warnings = (await readLines(runDir, "events.jsonl")).filter(({ code }) => code === "tool-errors");
  expect(warnings).toEqual([
    expect.objectContaining({
      count: 4,
      message: expect.stringContaining("4 of 4 calls of the tool `lookup` failed, most often with: no such word: a.") as string,
    }),
  ]);
});
