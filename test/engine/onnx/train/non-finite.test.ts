/** A step that is not finite fails by the name of its tensor, and leaves the model as it was. */
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import type { Row } from "../../../../src/engine/port.ts";

const base = { id: "oracle", directory: join(import.meta.dirname, "../../../oracle/llama/model") };
const signal = new AbortController().signal;
const lora = { rank: 2, alpha: 2 };
const row = (weight: number): Row => ({ tokens: Int32Array.of(1, 2, 3, 4, 5), weights: Float32Array.of(0, weight, weight, 0, weight) });

let trainer: Trainer;
let id: string;
const step = (rate: number, more: object = {}) => trainer.optimStep(id, { learningRate: rate, ...more });
const pass = (rows: readonly Row[]) => trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
const weights = () => trainer.weights(id).flat;
beforeEach(async () => {
  trainer = new Trainer({ threads: 1 });
  id = await trainer.createModel(base, { seed: 1, lora });
  await pass([row(0.1)]);
  await step(1e-2);
});

/** Takes a step on finite rows; two models in the same state take the same step. */
async function next(): Promise<{ flat: Float32Array; gradNorm: number; step: number }> {
  await pass([row(0.1)]);
  return { ...(await step(1e-2)), flat: weights() };
}

async function expected(): Promise<Awaited<ReturnType<typeof next>>> {
  const failed = [trainer, id] as const;
  trainer = new Trainer({ threads: 1 });
  id = await trainer.createModel(base, { seed: 1, lora });
  await pass([row(0.1)]);
  await step(1e-2);
  const result = await next();
  [trainer, id] = failed;
  return result;
}

describe("the model is unchanged after", () => {
  test("a loss that overflows", async () => {
    await expect(pass([row(3e38)])).rejects.toMatchObject({ code: "E_NON_FINITE", message: expect.stringContaining("finite loss, got ") });
    expect(await next()).toEqual(await expected());
  });

  test("a loss that overflows after rows with accumulated gradients", async () => {
    await pass([row(0.1)]);
    await expect(pass([row(3e38)])).rejects.toMatchObject({ code: "E_NON_FINITE" });
    const kept = { ...(await step(1e-2)), flat: weights() };
    expect(kept).toEqual(await expected());
  });

  test("a gradient with an overflowing square, with the tensor of the largest gradient named", async () => {
    await pass([row(1e25)]);
    await expect(step(1e-2)).rejects.toMatchObject({
      code: "E_NON_FINITE",
      message: expect.stringMatching(
        /gradient norm, got Infinity; the gradient of tensor "base_model\.model\.model\.layers\.[01]\..*\.lora_[AB]\.weight"/,
      ),
    });
    expect(await next()).toEqual(await expected());
  });

  test.each([
    ["learning rate", 0.1, 1e39, {}],
    ["weight decay", 0.1, 1, { weightDecay: 1e39 }],
    ["denominator of 0", 0, 1e-2, { epsilon: 0, beta1: 0.999, beta2: 0 }],
  ])("a %s that takes weights to infinity", async (_, weight, rate, more) => {
    const before = weights();
    await pass([row(weight)]);
    await expect(step(rate, more)).rejects.toMatchObject({
      code: "E_NON_FINITE",
      message: expect.stringMatching(/finite weights after the update, got (NaN|-?Infinity) in tensor "base_model\./),
    });
    expect(weights()).toEqual(before);
    expect(await next()).toEqual(await expected());
  });
});

test("a huge learning rate with finite weights is a step; the next pass fails with the tensor and the token", async () => {
  await pass([row(0.1)]);
  expect(await step(1e20)).toMatchObject({ step: 2 });
  await expect(trainer.forward(id, [row(1)], signal)).rejects.toMatchObject({
    code: "E_NON_FINITE",
    message: expect.stringMatching(
      /got NaN for token 1 of row 0; the largest trained weight is -?[1-9]\.\d{3}e\+(19|20), in tensor "base_model\./,
    ),
  });
});

test("names the file's tensor, not the fused matrix, of a gradient that overflows", async () => {
  id = await trainer.createModel(base, { seed: 1 });
  await pass([row(1e25)]);
  await expect(step(1e-2)).rejects.toMatchObject({
    code: "E_NON_FINITE",
    message: expect.stringMatching(
      /tensor "model\.(layers\.\d\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj|\w+_layernorm)|embed_tokens|norm)\.weight"/,
    ),
  });
});
