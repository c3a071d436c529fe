/** The reference engine against PyTorch, and the embedded engine's gradients against the reference where PyTorch's are not recorded. */
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deserialize } from "node:v8";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import type { LossSpec, Row } from "../../src/engine/port.ts";
import { createReferenceEngine } from "../../src/testing/index.ts";
import { LOSSES } from "../engine/conformance/subject.ts";

const ORACLE = join(import.meta.dirname, "../oracle");
const LLAMA = join(ORACLE, "llama/model");
const FAMILIES = readdirSync(join(ORACLE, "families"));

/** Of `test/oracle/llama.py`. */
const expected = JSON.parse(gunzipSync(readFileSync(join(ORACLE, "llama/expected.json.gz"))).toString()) as {
  rows: number[][];
  weights: number[][];
  advantages: number[][];
  old: number[][];
  logprobs: number[][];
  losses: Record<LossSpec["kind"], { loss: number; gradients: Record<string, number[]> }>;
  adamw: { norms: number[]; weights: Record<string, number[]> };
};
const rows = expected.rows.map((tokens, i): Row => ({
  tokens: Int32Array.from(tokens),
  weights: Float32Array.from(expected.weights[i]!),
  advantages: Float32Array.from(expected.advantages[i]!),
  logprobs: Float32Array.from(expected.old[i]!),
}));

/** Largest difference, relative to the largest magnitude. */
function relativeError(actual: ArrayLike<number>, wanted: ArrayLike<number>): number {
  expect(actual.length).toBe(wanted.length);
  const scale = Array.from(wanted).reduce((most, x) => Math.max(most, Math.abs(x)), 1e-4);
  return Array.from(wanted).reduce((worst, x, i) => Math.max(worst, Math.abs(x - actual[i]!)), 0) / scale;
}

describe("a Llama in PyTorch", () => {
  const engine = createReferenceEngine({ baseModels: { oracle: LLAMA } });

  it("has the same log-probabilities", async () => {
    const model = await engine.createModel({ base: "oracle", seed: 0 });
    const all = rows.map((row) => ({ ...row, weights: row.weights.map((_, t) => (t === 0 ? 0 : 1)) }));
    const logprobs = await engine.forward(model, all);
    logprobs.forEach((row, i) => expect(relativeError(row, expected.logprobs[i]!)).toBeLessThan(2e-6));
  });

  it.each(LOSSES)("$kind: has the same loss and the same gradient of every parameter", async (loss) => {
    const model = await engine.createModel({ base: "oracle", seed: 0 });
    const { metrics } = await engine.forwardBackward(model, rows, loss);
    const wanted = expected.losses[loss.kind];
    expect(metrics.loss).toBeCloseTo(wanted.loss, 5);
    const gradients = engine.gradients(model);
    expect([...gradients.keys()].toSorted()).toEqual(Object.keys(wanted.gradients).toSorted());
    for (const [name, data] of gradients) expect(relativeError(data, wanted.gradients[name]!), name).toBeLessThan(5e-6);
  });

  it("takes the same clipped AdamW steps", async () => {
    const model = await engine.createModel({ base: "oracle", seed: 0 });
    for (const norm of expected.adamw.norms) {
      await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      const adam = { learningRate: 3e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0.1, maxGradNorm: 0.5 };
      expect(relativeError([(await engine.optimStep(model, adam)).gradNorm], [norm])).toBeLessThan(1e-5);
    }
    const scratch = await mkdtemp(join(tmpdir(), "whetstone-reference-"));
    await engine.saveState(model, scratch);
    const { trained } = deserialize(await readFile(join(scratch, "reference.bin"))) as { trained: Map<string, { data: Float32Array }> };
    // AdamW divides a gradient by its own magnitude, so one gradient near 0 has PyTorch's float32 rounding at the size of a step.
    for (const [name, wanted] of Object.entries(expected.adamw.weights))
      expect(relativeError(trained.get(name)!.data, wanted), name).toBeLessThan(1e-4);
    await rm(scratch, { recursive: true });
  });
});

describe("the embedded engine's gradients are the reference's", () => {
  it.each(FAMILIES.flatMap((family) => [null, 2].map((rank) => [family, rank] as const)))(
    "%s, adapter of rank %s",
    async (family, rank) => {
      const directory = join(ORACLE, "families", family, "model");
      const config = await readModelConfig(directory);
      const lora = rank === null ? {} : { lora: { rank, alpha: 5 } };
      const engine = createReferenceEngine({ baseModels: { [family]: directory } });
      const reference = await engine.createModel({ base: family, seed: 3, ...lora });
      const trainer = new Trainer({ threads: 1 });
      const id = await trainer.createModel({ id: family, directory }, { seed: 3, ...lora });
      const given = rows.slice(0, 2).map(({ tokens, weights, advantages, logprobs }): Row => {
        const cut = <T extends Float32Array>(values: T) => values.slice(0, Math.min(tokens.length, config.contextLength)) as T;
        return {
          tokens: tokens.slice(0, config.contextLength).map((token) => token % config.vocabularySize),
          weights: cut(weights),
          advantages: cut(advantages!),
          logprobs: cut(logprobs!),
        };
      });
      // A first step moves an adapter off the point where its gradient is that of B alone.
      const signal = new AbortController().signal;
      await engine.forwardBackward(reference, given, { kind: "cross-entropy" });
      await engine.optimStep(reference, { learningRate: 1e-2 });
      await trainer.forwardBackward(id, given, { kind: "cross-entropy" }, signal);
      await trainer.optimStep(id, { learningRate: 1e-2 });
      const bonus: LossSpec = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.3, entropyCoefficient: 0.3 };
      for (const loss of [...LOSSES, bonus]) {
        await engine.forwardBackward(reference, given, loss);
        await trainer.forwardBackward(id, given, loss, signal);
      }
      const layout = rank === null ? baseLayout(config) : adapterLayout(config, rank);
      const wanted = engine.gradients(reference);
      for (const { name, data } of unpackTensors(trainer.gradients(id), layout))
        expect(relativeError(data, wanted.get(name)!), name).toBeLessThan(5e-4);
    },
  );
});
