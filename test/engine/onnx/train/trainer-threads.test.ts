import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { BatchModel } from "../../../../src/engine/onnx/train/batch-runner.ts";
import type { Batch } from "../../../../src/engine/onnx/train/batch.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { TrainerThreads } from "../../../../src/engine/onnx/train/trainer-threads.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { ROOT } from "../../../project/files.ts";

const TINY = { id: "tiny", directory: join(ROOT, "models/whetstone-tiny") };

const rowOf = (index: number, length: number): Row => ({
  tokens: Int32Array.from({ length }, (_, t) => (index * 31 + t * 17 + ((index * t) % 7)) % 300),
  weights: new Float32Array(length).fill(1 / 500, length - 6),
});
/** Two shares, and one batch alone. */
const SHARED = Array.from({ length: 16 }, (_, index) => rowOf(index, 40 + ((index * 37) % 50)));
const ALONE = [rowOf(1, 30), rowOf(2, 40)];

describe("a trainer without a number of threads", () => {
  test.each([
    ["in shares", SHARED],
    ["batch by batch", ALONE],
  ])("finds one in its first steps, and computes the bits of one thread all the way: %s", { timeout: 120_000 }, async (_, rows) => {
    const [tuned, plain] = [new Trainer({ threads: [1, 2, 4] }), new Trainer({ threads: 1 })];
    const { signal } = new AbortController();
    const ids = [];
    for (const trainer of [tuned, plain]) ids.push(await trainer.createModel(TINY, { seed: 1, lora: { rank: 4 } }));
    const [id, other] = ids as [string, string];
    const tried = new Set<number>();
    let rates: readonly { threads: number; tokensPerSecond: number }[] = [];
    // A candidate has at most ten runs.
    for (let step = 0; step < 31 && rates.length === 0; step++) {
      const { metrics } = await tuned.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
      await plain.forwardBackward(other, rows, { kind: "cross-entropy" }, signal);
      expect(tuned.gradients(id)).toEqual(plain.gradients(other));
      for (const [trainer, model] of [[tuned, id] as const, [plain, other] as const])
        await trainer.optimStep(model, { learningRate: 1e-3 });
      tried.add(metrics.threads!.threads);
      ({ rates } = metrics.threads!);
    }
    const measured = rates.map(({ threads }) => threads);
    expect(measured.length).toBeGreaterThan(1);
    expect(measured).toEqual([1, 2, 4].slice(-measured.length));
    for (const { tokensPerSecond } of rates) expect(tokensPerSecond).toBeGreaterThan(0);
    const { metrics } = await tuned.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
    await plain.forwardBackward(other, rows, { kind: "cross-entropy" }, signal);
    expect(metrics.threads!.rates).toEqual(rates);
    expect(measured).toContain(metrics.threads!.threads);
    expect(tuned.gradients(id)).toEqual(plain.gradients(other));
    expect(await tuned.forward(id, rows, signal)).toEqual(await plain.forward(other, rows, signal));
  });

  test("keeps the one it is given", async () => {
    const { signal } = new AbortController();
    for (const threads of [1, 2, 3]) {
      const trainer = new Trainer({ threads });
      const id = await trainer.createModel(TINY, { seed: 1, lora: { rank: 4 } });
      const { metrics } = await trainer.forwardBackward(id, ALONE, { kind: "cross-entropy" }, signal);
      expect(metrics.threads).toEqual({ threads, rates: [] });
    }
  });
});

describe("kinds of steps", () => {
  const modelOf = (layers: number, rank: number | null) =>
    ({ base: { config: { layers } }, lora: rank === null ? null : { rank, alpha: 1 } }) as unknown as BatchModel;
  const batches = [{ families: [{ trained: 3 }], prompts: null, lanes: { count: 10, time: 100 } }] as unknown as readonly Batch[];
  const untrained = [{ families: [{ trained: 0 }], prompts: null, lanes: { count: 10, time: 100 } }] as unknown as readonly Batch[];

  test("go by the shape of the model, what is trained of it, and whether there are shares; models of one shape have one choice", () => {
    const threads = new TrainerThreads([1, 2, 4], () => undefined);
    const kind = threads.kindOf(modelOf(2, null), false);
    expect(threads.kindOf(modelOf(2, null), false)).toBe(kind);
    for (const other of [
      threads.kindOf(modelOf(3, null), false),
      threads.kindOf(modelOf(2, 4), false),
      threads.kindOf(modelOf(2, null), true),
    ])
      expect(other.choice).not.toBe(kind.choice);
  });

  test("in shares an odd number is none to try, but one to keep", () => {
    const threads = new TrainerThreads([1, 2, 3], () => undefined);
    expect(threads.kindOf(modelOf(2, null), true).choice.current).toBe(2);
    expect(threads.kindOf(modelOf(2, null), false).choice.current).toBe(3);
    expect(new TrainerThreads([3], () => undefined).kindOf(modelOf(2, null), true).choice.current).toBe(3);
  });

  test("what is not to be measured, or trains nothing, is computed with the best so far and says nothing of it", async () => {
    const threads = new TrainerThreads([1, 2], () => undefined);
    const kind = threads.kindOf(modelOf(2, null), false);
    for (let run = 0; run < 40; run++)
      for (const each of [null, untrained]) expect(await threads.run(kind, each, async (count) => count)).toBe(2);
    expect(kind.choice.isSettled).toBe(false);
    const counts = [];
    while (!kind.choice.isSettled) counts.push(await threads.run(kind, batches, async (count) => count));
    expect(new Set(counts)).toEqual(new Set([2, 1]));
  });
});
