import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { describe, expect, it, test } from "vitest";
import { isStalled, rateFor } from "../../src/training/train/learning-rate.ts";
import { readLines, setUp, start } from "./support.ts";

test.each([
  [816_000, "rl", false, 3e-4],
  [816_000, "sft", false, 1e-3],
  [816_000, "rl", true, 3e-3],
  [816_000, "sft", true, 1e-3],
  [135e6, "rl", true, 5e-4],
  [135e6, "sft", true, 1e-3],
  [135e6, "rl", false, 5e-5],
  [8e9, "rl", false, 5e-6],
  [8e9, "sft", false, 5e-5],
  [816_000, "preference", false, 1e-5],
  [816_000, "preference", true, 3e-5],
  [135e6, "preference", true, 3e-5],
  [8e9, "preference", false, 1e-6],
] as const)("a model of %d parameters trained by %s (adapter: %s) has the default rate %d", (parameters, kind, isAdapter, rate) => {
  expect(rateFor(parameters, kind, isAdapter).rate).toBe(rate);
});

test.each([
  [[0.36, 0.37, 0.36, 0.36, 0.37, 0.36, 0.37, 0.37, 0.36, 0.37], true],
  [[0.36, 0.37, 0.36, 0.36, 0.37, 0.46, 0.47, 0.47, 0.46, 0.47], false],
  [[0.36, 0.37, 0.36], false],
] as const)("rewards %j have stalled: %s", (rewards, expected) => {
  const steps = rewards.map((reward) => ({ checkpointStep: 1, metrics: { "reward/mean": reward, "reward/std": 0.3 } }));
  expect(isStalled(steps as unknown as Parameters<typeof isStalled>[0])).toBe(expected);
});

describe("a run without a learning rate", () => {
  it("chooses one by the model's size, prints and records it, and keeps it when it resumes", async () => {
    const made = await setUp();
    const shown = new PassThrough();
    await start(made, { steps: 1, progress: shown }).done;
    const configOf = async (): Promise<unknown> => JSON.parse(await readFile(join(made.runDir, "config.json"), "utf8"));
    expect(await configOf()).toMatchObject({ default_learning_rate: 3e-4, train: { learning_rate: 3e-4 } });
    expect((await readLines(made.runDir, "metrics.jsonl"))[0]).toMatchObject({ learning_rate: 3e-4 });
    shown.end();
    expect(await text(shown)).toMatch(/: learning rate 0\.0003, default for reinforcement learning of all \S+ M parameters\n/u);
    await start(made, { steps: 2, progress: false }).done;
    expect(await configOf()).toMatchObject({ default_learning_rate: 3e-4, train: { learning_rate: 3e-4 } });
    await start(made, { steps: 3, progress: false, train: (step) => (step === 2 ? {} : { learningRate: 1e-5 }) }).done;
    expect((await readLines(made.runDir, "metrics.jsonl")).map(({ learning_rate: rate }) => rate)).toEqual([3e-4, 3e-4, 3e-4]);
  });

  it("keeps the rate that an earlier start was given", async () => {
    const made = await setUp();
    await start(made, { steps: 1, progress: false, train: { learningRate: 2e-4 } }).done;
    await start(made, { steps: 2, progress: false }).done;
    expect((await readLines(made.runDir, "metrics.jsonl")).map(({ learning_rate: rate }) => rate)).toEqual([2e-4, 2e-4]);
  });

  it("warns once per ten steps without a change of the reward if the given rate is far below the default", async () => {
    const made = await setUp({ script: ({ params }) => [40 + Number(params.seed % 2n), 41] });
    await start(made, { steps: 10, progress: false, train: { learningRate: 5e-6 } }).done;
    const warnings = (await readLines(made.runDir, "events.jsonl")).filter(({ code }) => code === "tiny-updates");
    expect(warnings.map(({ step, message }) => [step, message])).toEqual([
      [9, expect.stringContaining("learning rate 0.000005 makes tiny updates. Set `train.learningRate` near 0.0003")],
    ]);
  });
});
