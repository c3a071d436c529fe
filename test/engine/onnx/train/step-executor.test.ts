import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { unpackTensors } from "../../../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { distinctCandidates } from "../../../../src/engine/onnx/train/thread-choice.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { ROOT } from "../../../project/files.ts";
import { watchPrograms } from "../../../support/programs.ts";
import { startHelper } from "../../../support/start-helper.ts";

const TINY = { id: "tiny", directory: join(ROOT, "models/whetstone-tiny") };

const rowOf = (index: number, length: number): Row => ({
  tokens: Int32Array.from({ length }, (_, t) => (index * 31 + t * 17 + ((index * t) % 7)) % 300),
  weights: new Float32Array(length).fill(1 / 500, length - 6),
});
/** Rows of two halves, and rows of a single batch. */
const SHARED = Array.from({ length: 16 }, (_, index) => rowOf(index, 40 + ((index * 37) % 50)));
const ALONE = [rowOf(1, 30), rowOf(2, 40)];

describe("a trainer with several candidate thread counts", () => {
  test.each([
    ["in parallel halves", SHARED],
    ["batch by batch", ALONE],
  ])(
    "chooses a count in its first steps, with results bit-identical to one thread in every step: %s",
    { timeout: 120_000 },
    async (_, rows) => {
      const [tuned, plain] = [new Trainer({ threads: [1, 2, 4], startHelper }), new Trainer({ threads: 1 })];
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
    },
  );

  test("keeps a given thread count", async () => {
    const { signal } = new AbortController();
    for (const threads of [1, 2, 3]) {
      const trainer = new Trainer({ threads, startHelper });
      const id = await trainer.createModel(TINY, { seed: 1, lora: { rank: 4 } });
      const { metrics } = await trainer.forwardBackward(id, ALONE, { kind: "cross-entropy" }, signal);
      expect(metrics.threads).toEqual({ threads, rates: [] });
    }
  });
});

describe("thread choices", () => {
  test("try no odd count for parallel halves, but keep a given one", () => {
    expect(distinctCandidates([1, 2, 3], true)).toEqual([1, 2]);
    expect(distinctCandidates([1, 2, 3], false)).toEqual([1, 2, 3]);
    expect(distinctCandidates([1, 2, 5], true)).toEqual([1, 2, 4]);
    expect(distinctCandidates([3], true)).toEqual([3]);
  });

  test("do not time forward passes", { timeout: 120_000 }, async () => {
    const trainer = new Trainer({ threads: [1, 2] });
    const { signal } = new AbortController();
    const id = await trainer.createModel(TINY, { seed: 1, lora: { rank: 4 } });
    const train = async () => (await trainer.forwardBackward(id, ALONE, { kind: "cross-entropy" }, signal)).metrics.threads!;
    // More runs than both candidates together have at most.
    for (let run = 0; run < 25; run++) await trainer.forward(id, ALONE, signal);
    expect(await train()).toEqual({ threads: 2, rates: [] });
    let last = await train();
    for (let run = 0; run < 25 && last.rates.length === 0; run++) last = await train();
    expect(last.rates.length).toBeGreaterThan(0);
  });

  test("are made per model shape, trained part, and way of execution", async () => {
    const trainer = new Trainer({ threads: [1, 2] });
    const { signal } = new AbortController();
    const train = async (id: string) => (await trainer.forwardBackward(id, ALONE, { kind: "cross-entropy" }, signal)).metrics.threads!;
    const settled = await trainer.createModel(TINY, { seed: 1, lora: { rank: 4 } });
    for (let run = 0; run < 25 && (await train(settled)).rates.length === 0;) run++;
    const rates = (await train(settled)).rates;
    expect(await train(await trainer.createModel(TINY, { seed: 2, lora: { rank: 4 } }))).toMatchObject({ rates });
    expect(await train(await trainer.createModel(TINY, { seed: 1, lora: { rank: 8 } }))).toEqual({ threads: 2, rates: [] });
    expect(await train(await trainer.createModel(TINY, { seed: 1 }))).toEqual({ threads: 2, rates: [] });
  });
});

test("the graphs of a large model are freed when its weights are published, and compiled again for the next step", async () => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-published-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const config = JSON.parse(await readFile(join(TINY.directory, "config.json"), "utf8")) as object;
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, vocab_size: 130_000, num_hidden_layers: 1 }));
  const layout = baseLayout(await readModelConfig(directory));
  await writeSafetensors(join(directory, "model.safetensors"), unpackTensors(new Float32Array(layout.length), layout));
  const trainer = new Trainer({ threads: 1 });
  const programs = watchPrograms();
  const { signal } = new AbortController();
  const logprobs = [];
  const id = await trainer.createModel({ id: "large", directory }, { seed: 1, lora: { rank: 4 } });
  for (let step = 0; step < 2; step++) {
    logprobs.push(await trainer.forward(id, ALONE, signal));
    expect(programs.released()).toBe(step);
    trainer.weights(id);
    await expect.poll(programs.released).toBe(step + 1);
  }
  expect(logprobs[1]).toEqual(logprobs[0]);
});
