import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { delay } from "../../src/base/util/delay.ts";
import { RunDirectory } from "../../src/run/run-directory.ts";
import { RunLoop, type StepPlan } from "../../src/training/train/loop.ts";
import type { RunOptions } from "../../src/training/train/options.ts";

const COUNT = 6;

/** Loop with a plan that records `step-end` in training. */
async function loopOf(plan: Partial<StepPlan<number>>): Promise<RunLoop<number>> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-loop-"));
  const directory = await RunDirectory.open(path, { version: 1, kind: "rl", fixed: {}, free: {} });
  onTestFinished(async () => {
    await directory.close();
    await rm(path, { recursive: true });
  });
  return new RunLoop(directory, { runDir: path } as RunOptions, {
    count: COUNT,
    maxAhead: 0,
    prepare: (step) => Promise.resolve(step),
    train: async (step) => {
      await directory.record({ type: "step-end", step, policyStep: step, checkpointStep: step + 1, metrics: {} });
    },
    evaluate: () => Promise.resolve(),
    ...plan,
  });
}

/** Rejects with `error` when the signal aborts. */
async function untilAborted(signal: AbortSignal, error: Error): Promise<never> {
  await delay(60_000, { signal }).catch(() => undefined);
  throw error;
}

it.each([0, 1, 3])("prepares exactly up to %i steps ahead of training, in order", async (maxAhead) => {
  const prepared: number[] = [];
  const trained: number[] = [];
  const gates = Array.from({ length: COUNT }, () => deferred<void>());
  const loop = await loopOf({
    maxAhead,
    prepare(step) {
      prepared.push(step);
      return Promise.resolve(step);
    },
    async train(step) {
      await gates[step]?.promise;
      trained.push(step);
    },
  });
  const done = loop.run(new AbortController().signal);
  for (let step = 0; step < COUNT; step++) {
    // Nothing but the gate holds training back, so a turn of the event loop is enough for every possible preparation.
    await delay(1);
    const ahead = Math.min(COUNT, step + maxAhead + 1);
    expect(prepared).toEqual(Array.from({ length: ahead }, (_, index) => index));
    expect(trained).toHaveLength(step);
    gates[step]?.resolve();
  }
  await done;
  expect(trained).toEqual(prepared);
});

it("fails with the first error, after the other part has been aborted and has ended", async () => {
  const failure = new Error("the preparation failed");
  let training: AbortSignal | undefined;
  let isOver = false;
  const loop = await loopOf({
    maxAhead: 2,
    prepare: (step) => (step === 1 ? delay(5).then(() => Promise.reject(failure)) : Promise.resolve(step)),
    async train(_, __, signal) {
      training = signal;
      try {
        await untilAborted(signal, new Error("the training was aborted"));
      } finally {
        await delay(5);
        isOver = true;
      }
    },
  });
  await expect(loop.run(new AbortController().signal)).rejects.toBe(failure);
  expect(training?.aborted).toBe(true);
  expect(isOver).toBe(true);
});

it("aborts a preparation when training fails, and one that waits for training", async () => {
  for (const maxAhead of [0, 1]) {
    const failure = new Error("the job failed");
    const loop = await loopOf({
      maxAhead,
      prepare: (step, { signal }) => (step === 1 ? untilAborted(signal, new Error("aborted")) : Promise.resolve(step)),
      train: () => delay(5).then(() => Promise.reject(failure)),
    });
    await expect(loop.run(new AbortController().signal)).rejects.toBe(failure);
  }
});

it("rejects with the signal's reason when aborted, although the aborted work throws another error", async () => {
  const controller = new AbortController();
  const reason = new Error("enough");
  const loop = await loopOf({ train: (_, __, signal) => untilAborted(signal, new Error("another error")) });
  const done = loop.run(controller.signal);
  await delay(5);
  controller.abort(reason);
  await expect(done).rejects.toBe(reason);
});

it("does not train a step with an incomplete preparation", async () => {
  const trained: number[] = [];
  const loop = await loopOf({
    prepare: (step) => Promise.resolve(step === 2 ? null : step),
    train(step) {
      trained.push(step);
      return Promise.resolve();
    },
  });
  expect(await loop.run(new AbortController().signal)).toMatchObject({ reason: "stopped" });
  expect(trained).toEqual([0, 1]);
});
