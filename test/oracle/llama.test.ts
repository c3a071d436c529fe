import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { gunzipSync } from "node:zlib";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readSafetensors } from "../support/safetensors.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import type { LossSpec, Row } from "../../src/engine/port.ts";
import { LOSSES } from "../engine/conformance/subject.ts";

/** Values of a small random Llama computed by Hugging Face transformers; see `llama.py`. */
interface Expected {
  rows: number[][];
  weights: number[][];
  advantages: number[][];
  old: number[][];
  logprobs: number[][];
  losses: Record<LossSpec["kind"], { loss: number; gradients: Record<string, number[]> }>;
  adamw: { norms: number[]; weights: Record<string, number[]> };
}

const directory = join(import.meta.dirname, "llama/model");
const signal = new AbortController().signal;
let expected: Expected;
let scratch: string;

beforeAll(async () => {
  expected = JSON.parse(gunzipSync(await readFile(join(import.meta.dirname, "llama/expected.json.gz"))).toString()) as Expected;
  scratch = await mkdtemp(join(tmpdir(), "whetstone-oracle-"));
});
afterAll(() => rm(scratch, { recursive: true, force: true }));

const rowsOf = (): Row[] =>
  expected.rows.map((tokens, i) => ({
    tokens: Int32Array.from(tokens),
    weights: Float32Array.from(expected.weights[i]!),
    advantages: Float32Array.from(expected.advantages[i]!),
    logprobs: Float32Array.from(expected.old[i]!),
  }));

/** Largest difference, relative to the largest expected magnitude. */
function relativeError(actual: ArrayLike<number>, wanted: readonly number[]): number {
  expect(actual.length).toBe(wanted.length);
  const scale = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-4);
  return wanted.reduce((worst, x, i) => Math.max(worst, Math.abs(x - actual[i]!)), 0) / scale;
}

async function start(): Promise<{ trainer: Trainer; id: string }> {
  const trainer = new Trainer({ threads: 1 });
  return { trainer, id: await trainer.createModel({ id: "oracle", directory }, { seed: 0 }) };
}

describe("a Llama in transformers", () => {
  test("log-probabilities agree", async () => {
    const { trainer, id } = await start();
    const all = rowsOf().map((row) => ({ ...row, weights: Float32Array.from(row.weights, (_, t) => (t === 0 ? 0 : 1)) }));
    const logprobs = await trainer.forward(id, all, signal);
    logprobs.forEach((row, i) => expect(relativeError(row, expected.logprobs[i]!)).toBeLessThan(5e-6));
  });

  test.each(LOSSES)("$kind: the loss and every parameter's gradient agree", async (loss) => {
    const { trainer, id } = await start();
    const { metrics } = await trainer.forwardBackward(id, rowsOf(), loss, signal);
    const wanted = expected.losses[loss.kind];
    expect(metrics.loss).toBeCloseTo(wanted.loss, 5);
    const layout = baseLayout(await readModelConfig(directory));
    const tensors = unpackTensors(trainer.gradients(id), layout);
    expect(tensors.map(({ name }) => name).toSorted()).toEqual(Object.keys(wanted.gradients).toSorted());
    for (const { name, data } of tensors) expect(relativeError(data, wanted.gradients[name]!), name).toBeLessThan(2e-5);
  });

  test("three clipped AdamW steps agree", async () => {
    const { trainer, id } = await start();
    for (const norm of expected.adamw.norms) {
      await trainer.forwardBackward(id, rowsOf(), { kind: "cross-entropy" }, signal);
      const { gradNorm } = await trainer.optimStep(id, {
        learningRate: 3e-3,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weightDecay: 0.1,
        maxGradNorm: 0.5,
      });
      expect(relativeError([gradNorm], [norm])).toBeLessThan(1e-5);
    }
    await trainer.saveState(id, scratch);
    const { tensors } = await readSafetensors(join(scratch, "model.safetensors"));
    for (const [name, wanted] of Object.entries(expected.adamw.weights))
      expect(relativeError(tensors.get(name)!.data, wanted), name).toBeLessThan(2e-5);
  });
});
