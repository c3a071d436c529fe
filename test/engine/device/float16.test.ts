/** Weights stored as float16 on the device `webgpu`, where an adapter with shader-f16 is installed. */
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createOnnxEngine, type Engine, type LoraSpec, type OnnxEngineOptions, type Row } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../src/engine/onnx/model/safetensors.ts";
import { openBaseWeights } from "../../../src/engine/onnx/model/weight-source.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { createFloat16Engine, driverWithoutFloat16, missingFloat16 } from "../../support/float16-adapter.ts";
import { params } from "./sampling.ts";

const TIED = join(import.meta.dirname, "../../oracle/llama/model");
const SEPARATE = join(import.meta.dirname, "../../oracle/families/llama3/model");
const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 } as const;
const lora = { rank: 4, alpha: 8 };
const LENGTH = 24;
const ROWS: Row[] = [1, 2, 3].map((k) => ({
  tokens: Int32Array.from({ length: LENGTH }, (_, t) => (t < 10 ? t : (t * k) % 48)),
  weights: Float32Array.from({ length: LENGTH }, (_, t) => Number(t >= 10)),
  logprobs: new Float32Array(LENGTH).fill(NaN),
  advantages: new Float32Array(LENGTH).fill(k - 2),
}));

async function start(directory: string, options: Partial<OnnxEngineOptions> = {}): Promise<Engine> {
  const engine = await createFloat16Engine({ baseModels: { base: directory }, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

/** Returns a copy of a base model in one file, with other values. */
async function changed(directory: string, change: (values: Float32Array, name: string) => Float32Array): Promise<string> {
  const copy = await mkdtemp(join(tmpdir(), "whetstone-float16-"));
  onTestFinished(() => rm(copy, { recursive: true, force: true }));
  await cp(join(directory, "config.json"), join(copy, "config.json"));
  const source = await openBaseWeights(directory);
  const names = baseLayout(await readModelConfig(directory)).parameters.flatMap(({ files }) => files.map(({ name }) => name));
  const tensors = [];
  for (const name of names) tensors.push({ name, shape: source.shapeOf(name)!, data: change(await source.read(name), name) });
  await source.close();
  await writeSafetensors(join(copy, "model.safetensors"), tensors);
  return copy;
}

/** Trains for two steps and returns the log-probabilities and gradient norms, the device's bytes and sampled tokens. */
async function computed(engine: Engine, spec: { lora?: LoraSpec } = { lora }) {
  const model = await engine.createModel({ base: "base", seed: 3, ...spec });
  const first = (await engine.forward(model, ROWS)).flatMap((row) => [...row]);
  const norms: number[] = [];
  let bytes = 0;
  for (let step = 0; step < 2; step++) {
    const { metrics } = await engine.forwardBackward(model, ROWS, loss);
    bytes = metrics.device!.bytes;
    norms.push((await engine.optimStep(model, { learningRate: 1e-2, maxGradNorm: 1 })).gradNorm!);
  }
  const policy = await engine.publish(model);
  const tokens = [];
  for await (const { id, logprob } of engine.sample(policy, Int32Array.of(1, 2, 3), params(7, { maxTokens: 8 })))
    tokens.push({ id, logprob });
  return { first, norms, bytes, tokens };
}

const worst = (a: readonly number[], b: readonly number[]) => Math.max(...a.map((value, i) => Math.abs(value - b[i]!)));

/** Rounds toward 0 to bfloat16, and to 0 below the smallest number that is exact in float16. */
function toBfloat16(values: Float32Array): Float32Array {
  const bits = new Uint32Array(values.slice().buffer).map((each) => each & 0xffff_0000);
  return new Float32Array(bits.buffer).map((value) => (Math.abs(value) < 2 ** -17 ? 0 : value));
}

describe.skipIf(missingFloat16 !== null)(
  `float16 weights on the device webgpu${missingFloat16 === null ? "" : `: ${missingFloat16}`}`,
  { timeout: 120_000 },
  () => {
    test.each([
      ["tied", TIED],
      ["separate", SEPARATE],
    ])("%s head: bfloat16 weights have the same results as float32 storage, to the last bit in the forward pass", async (_, directory) => {
      const base = await changed(directory, toBfloat16);
      const [half, single] = [await computed(await start(base)), await computed(await start(base, { weightPrecision: "float32" }))];
      expect(half.first).toEqual(single.first);
      expect(half.tokens.map(({ id }) => id)).toEqual(single.tokens.map(({ id }) => id));
      half.norms.forEach((norm, step) => expect(norm / single.norms[step]!).toBeCloseTo(1, 4));
      expect(
        worst(
          half.tokens.map(({ logprob }) => logprob),
          single.tokens.map(({ logprob }) => logprob),
        ),
      ).toBeLessThan(1e-4);
    });

    test("float32 weights change log-probabilities by their rounding; matrices and embeddings take half the bytes", async () => {
      const [half, single] = [await computed(await start(TIED)), await computed(await start(TIED, { weightPrecision: "float32" }))];
      expect(worst(half.first, single.first)).toBeGreaterThan(1e-6);
      expect(worst(half.first, single.first)).toBeLessThan(1e-2);
      const { parameters } = baseLayout(await readModelConfig(TIED));
      const halved = parameters.filter(({ shape }) => shape.length === 2).reduce((sum, { size }) => sum + size, 0);
      expect(single.bytes - half.bytes).toBe(2 * halved);
    });

    test("training every parameter starts from float32 weights and gives the same bits as an engine in float32", async () => {
      const [half, single] = [await computed(await start(TIED), {}), await computed(await start(TIED, { weightPrecision: "float32" }), {})];
      expect(half).toEqual(single);
    });

    test("all nodes run on the device, also for requests with tokens drawn on the processor", async () => {
      const fallbacks: object[] = [];
      const engine = await start(TIED, { onFallback: (fallback) => fallbacks.push(fallback) });
      await computed(engine);
      const policy = await engine.loadPolicy({ base: "base" });
      const prompt = Int32Array.from({ length: 40 }, (_, t) => t);
      for await (const { logprob } of engine.sample(policy, prompt, params(1, { topP: 0.9 }))) expect(logprob).toBeLessThan(0);
      expect(fallbacks).toEqual([]);
      expect(engine.devices!()).toEqual([{ name: "webgpu", adapter: expect.any(String), weightPrecision: "float16" }]);
    });

    test("a weight beyond the largest float16 is an error with the name of its tensor", async () => {
      const name = "model.layers.1.self_attn.k_proj.weight";
      const base = await changed(TIED, (values, each) => (each === name ? values.with(3, 7e4) : values));
      const engine = await start(base);
      const expected = {
        code: "E_BASE_MODEL",
        message: expect.stringMatching(new RegExp(`at most 65504.* got 70000 in the tensor "${name}"`)),
      };
      await expect(engine.createModel({ base: "base", seed: 1, lora })).rejects.toMatchObject(expected);
      await expect(engine.loadPolicy({ base: "base" })).rejects.toMatchObject(expected);
    });

    test("with `auto`, models on the processor keep float32 weights", async () => {
      const engine = await start(TIED, { device: "auto" });
      await engine.loadPolicy({ base: "base" });
      expect(engine.devices!()).toEqual([{ name: "cpu", adapter: null, weightPrecision: "float32", rolloutPrecision: "float32" }]);
    });
  },
);

describe("the precision of the weights", () => {
  test.skipIf(missingAdapter !== null || driverWithoutFloat16 === undefined)(
    "float16 on an adapter without shader-f16 is an error at the start that names feature and adapter",
    async () => {
      await expect(createFloat16Engine({ baseModels: {} }, driverWithoutFloat16)).rejects.toMatchObject({
        code: "E_CONFIG",
        param: "weightPrecision",
        message: expect.stringMatching(/shader-f16, and "SwiftShader.*" cannot read a float16\. Use "float32"/s),
      });
    },
  );

  test("float16 with the processor, and any other name, is an error", async () => {
    await expect(createOnnxEngine({ baseModels: {}, weightPrecision: "float16" })).rejects.toMatchObject({
      code: "E_CONFIG",
      param: "weightPrecision",
      message: '`weightPrecision` "float16" is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"',
    });
    await expect(createOnnxEngine({ baseModels: {}, device: "webgpu", weightPrecision: "bf16" as "float16" })).rejects.toMatchObject({
      code: "E_CONFIG",
      message: 'Expected `weightPrecision` to be one of "float32", "float16", "int8", "int4", got "bf16"',
    });
  });
});
