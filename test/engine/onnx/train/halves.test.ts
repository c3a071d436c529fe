import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { StepModel } from "../../../../src/engine/onnx/train/step-executor.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { readBaseWeights } from "../../../../src/engine/onnx/model/weights.ts";
import { BatchRunner } from "../../../../src/engine/onnx/train/batch-runner.ts";
import { HelperThread } from "../../../../src/engine/onnx/threads/helper-thread.ts";
import { planBatches, positionsIn } from "../../../../src/engine/onnx/train/batch.ts";
import { rowsOfHalf, splitInHalves } from "../../../../src/engine/onnx/train/halves.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { ROOT } from "../../../project/files.ts";
import { startHelper } from "../../../support/start-helper.ts";

const TINY = join(ROOT, "models/whetstone-tiny");

const rowOf = (index: number, length: number): Row => ({
  tokens: Int32Array.from({ length }, (_, t) => (index * 31 + t * 17 + ((index * t) % 7)) % 300),
  weights: new Float32Array(length).fill(1 / 500, length - 6),
});
const rows = Array.from({ length: 40 }, (_, index) => rowOf(index, 12 + ((index * 37) % 90)));
const limits = { maxTokens: 512, maxSharing: 512, minRows: 1, pairCost: 1e-3, maxTrained: 4096 };

describe("parallel halves of a step", () => {
  test("contain every batch once, in order, at about equal cost", () => {
    const batches = planBatches(rows, limits);
    const [first, second] = splitInHalves(batches);
    expect(batches.filter((batch) => first.includes(batch))).toEqual(first);
    expect(batches.filter((batch) => second.includes(batch))).toEqual(second);
    expect(first.length + second.length).toBe(batches.length);
    const cost = (share: typeof batches) => share.reduce((sum, batch) => sum + positionsIn(batch), 0);
    expect(Math.abs(cost(first) - cost(second))).toBeLessThanOrEqual(Math.max(...batches.map(positionsIn)));
  });

  test("are sent with their own rows only", () => {
    const [, second] = splitInHalves(planBatches(rows, limits));
    const picked = rowsOfHalf(rows, second);
    const members = (batches: typeof second) => batches.flatMap((batch) => batch.groups.flatMap((group) => group.members));
    expect(members(picked.batches).map((position) => picked.rows[position])).toEqual(members(second).map((index) => rows[index]));
    expect(new Set(members(picked.batches)).size).toBe(picked.rows.length);
  });

  test("leave the gradients unchanged when aborted, also for the next call", async () => {
    const trainer = new Trainer({ threads: 2, startHelper });
    const id = await trainer.createModel({ id: "tiny", directory: TINY }, { seed: 1 });
    const run = (signal: AbortSignal) => trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
    const { signal } = new AbortController();
    await run(signal);
    const before = trainer.gradients(id);
    const controller = new AbortController();
    const aborted = run(controller.signal);
    setImmediate(() => controller.abort(new Error("enough")));
    await expect(aborted).rejects.toThrow("enough");
    expect(trainer.gradients(id)).toEqual(before);
    await run(signal);
    const twice = before.map((each) => each + each);
    expect(trainer.gradients(id).every((each, at) => Math.abs(each - twice[at]!) <= 1e-6 + 1e-4 * Math.abs(twice[at]!))).toBe(true);
    await trainer.unload(id);
  });

  test.each([{ lengths: [7, 7, 7, 60] }, { lengths: [64] }, { lengths: [20, 20, 100] }, { lengths: Array<number>(80).fill(2) }])(
    "log-probabilities of rows of $lengths tokens are bit-identical for every thread count",
    async ({ lengths }) => {
      const { signal } = new AbortController();
      const given = lengths.map((length, index) => ({ ...rowOf(index, length), weights: new Float32Array(length).fill(1, 1) }));
      const found = [];
      for (const threads of [1, 2, 4]) {
        const trainer = new Trainer({ threads, startHelper });
        const id = await trainer.createModel({ id: "tiny", directory: TINY }, { seed: 1, lora: { rank: 8 } });
        await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
        await trainer.optimStep(id, { learningRate: 0.01 });
        found.push(await trainer.forward(id, given, signal));
        await trainer.unload(id);
      }
      for (const other of found.slice(1)) expect(other).toEqual(found[0]);
    },
  );

  test("use the current parameters in the helper thread", async () => {
    const [one, two] = [new Trainer({ threads: 1 }), new Trainer({ threads: 2, startHelper })];
    const { signal } = new AbortController();
    const ends = [];
    for (const trainer of [one, two]) {
      const id = await trainer.createModel({ id: "tiny", directory: TINY }, { seed: 1, lora: { rank: 4 } });
      for (let step = 0; step < 3; step++) {
        await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
        await trainer.optimStep(id, { learningRate: 1e-2 });
      }
      ends.push((await trainer.forward(id, rows, signal)).map((each) => [...each]));
    }
    expect(ends[1]).toEqual(ends[0]);
  });

  test("use the current parameters after a call that was aborted before the helper started it", async () => {
    const config = await readModelConfig(TINY);
    const layout = baseLayout(config);
    const weights = await readBaseWeights(TINY, layout);
    const modelOf = (parameters: Float32Array, version = 0): StepModel => ({
      id: "model",
      version,
      gradients: new Float32Array(layout.length),
      base: { config, layout, weights: BaseWeights.kept(float32Weights(layout, weights)), rotary: rotaryTables(config) },
      lora: null,
      layout,
      parameters,
    });
    const batches = planBatches(rows, limits);
    const thread = new HelperThread({ niceness: 0 }, () => undefined);
    const { signal } = new AbortController();
    const run = (parameters: Float32Array, version: number, until = signal) =>
      thread.run({ model: modelOf(parameters, version), rows, batches, loss: null, signal: until }, 1);
    const changed = weights.map((each) => each * 0.9);
    await run(weights, 0);
    const controller = new AbortController();
    const [before, aborted] = [run(weights, 0), run(changed, 1, controller.signal)];
    controller.abort(new Error("enough"));
    await expect(aborted).rejects.toThrow("enough");
    await before;
    const runner = new BatchRunner(1);
    const expected = [];
    for (const batch of batches) expected.push(await runner.run(modelOf(changed), rows, batch, null, null));
    expect((await run(changed, 1)).results).toEqual(expected);
  });

  test("work for models on one base after another model was unloaded", async () => {
    const trainer = new Trainer({ threads: 2, startHelper });
    const { signal } = new AbortController();
    const create = () => trainer.createModel({ id: "tiny", directory: TINY }, { seed: 1, lora: { rank: 4 } });
    const first = await create();
    const before = await trainer.forward(first, rows, signal);
    const second = await create();
    expect(await trainer.forward(second, rows, signal)).toEqual(before);
    await trainer.unload(first);
    expect(await trainer.forward(second, rows, signal)).toEqual(before);
    const third = await create();
    expect(await trainer.forward(third, rows, signal)).toEqual(before);
  });
});
