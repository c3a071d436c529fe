/** Memory and speed of a device with weights of one precision: `precision-engine.ts <file with PrecisionInput as JSON>`. */
import type { Row } from "../../src/engine/index.ts";
import { DeviceBases } from "../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../src/engine/onnx/sample/device-place.ts";
import type { SampledEvent } from "../../src/engine/onnx/sample/request.ts";
import { Sampler } from "../../src/engine/onnx/sample/sampler.ts";
import { DeviceTrainer } from "../../src/engine/onnx/train/device-trainer.ts";
import type { PrecisionInput, PrecisionResult } from "./precision.bench.ts";
import { median, variantInput } from "./support.ts";

const input = variantInput<PrecisionInput>();
const POSITIONS = 2048;
const ADAM = { learningRate: 1e-3, weightDecay: 0.01, maxGradNorm: 1 };
const { signal } = new AbortController();
const base = { id: "bench", directory: input.directory };
const memory = new DeviceMemory(webgpu());
const bases = new DeviceBases(memory, () => POSITIONS, input.precision);
const trainer = new DeviceTrainer(memory, bases);
const tokenAt = (row: number, t: number) => (row * 31 + t * 17 + ((row * t) % 7)) % 500;
const residentMb = () => process.memoryUsage().rss / 1e6;

const requests = new Map<number, { tokens: { id: number; logprob: number }[]; resolve: () => void; reject: (error: unknown) => void }>();
const onEvents = (events: readonly SampledEvent[]) => {
  for (const { request, token } of events) {
    const { tokens, resolve } = requests.get(request)!;
    tokens.push(token);
    if (token.finish !== undefined) resolve();
  }
};
const onError = (failed: readonly number[], error: unknown) => failed.forEach((request) => requests.get(request)!.reject(error));
const sampler = new Sampler({ threads: 1, maxRows: input.batch, prefixCacheBytes: 0 }, onEvents, onError, onDevice(memory, bases));
let next = 0;

/** Samples one request after the prompt of a row. */
async function sample(policy: string, row: number, maxTokens: number) {
  const request = next++;
  const tokens: { id: number; logprob: number }[] = [];
  await new Promise<void>((resolve, reject) => {
    requests.set(request, { tokens, resolve, reject });
    const prompt = Int32Array.from({ length: input.prompt }, (_, t) => tokenAt(row, t));
    const params = { maxTokens, temperature: 1, topP: 1, topK: 0, seed: BigInt(row), stopTokenIds: [], topLogprobs: 0 };
    sampler.add(request, policy, prompt, params);
  });
  return tokens;
}

async function trainStep(id: string): Promise<void> {
  const { rows: count, tokens: length } = input;
  const weight = 1 / (count * (length - 1));
  const rows = Array.from({ length: count }, (_, row): Row => {
    const tokens = Int32Array.from({ length }, (__, t) => tokenAt(row, t));
    return { tokens, weights: new Float32Array(length).fill(weight, 1) };
  });
  await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
  await trainer.optimStep(id, ADAM);
}

async function measured(step: () => Promise<unknown>) {
  const loadedMb = residentMb();
  const tensorsMb = memory.bytes / 1e6;
  const times: number[] = [];
  for (let at = 0; at <= input.steps; at++) {
    const startMs = performance.now();
    await step();
    times.push(performance.now() - startMs);
  }
  return { loadedMb, tensorsMb, stepMs: median(times.slice(1)), peakMb: (process.resourceUsage().maxRSS * 1024) / 1e6 };
}

/** Returns the trainer's log-probabilities of given tokens, and the largest difference from the sampler for tokens that a policy samples. */
async function compared(policy: string, id: string): Promise<Pick<PrecisionResult, "logprobs" | "difference">> {
  const sampled = await sample(policy, 0, input.sampled);
  const rowOf = (idAt: (i: number) => number): Row => {
    const tokens = Int32Array.from({ length: input.prompt + sampled.length }, (_, t) =>
      t < input.prompt ? tokenAt(0, t) : idAt(t - input.prompt),
    );
    return { tokens, weights: new Float32Array(tokens.length).fill(1, input.prompt) };
  };
  const rows = [rowOf((i) => sampled[i]!.id), rowOf((i) => tokenAt(1, i))];
  const [own, given] = (await trainer.forward(id, rows, signal)).map((logprobs) => Array.from(logprobs.subarray(input.prompt)));
  return { logprobs: given!, difference: Math.max(...sampled.map(({ logprob }, i) => Math.abs(logprob - own![i]!))) };
}

async function result(): Promise<PrecisionResult> {
  // The driver is loaded before the weights.
  (await memory.upload(new Float32Array(1), [1])).release();
  const startMb = residentMb();
  const lora = { rank: input.rank ?? 1 };
  if (input.rank === null) {
    await sampler.addPolicy("policy", base, null);
    const step = () => Promise.all(Array.from({ length: input.batch }, (_, row) => sample("policy", row, input.sampled)));
    const numbers = await measured(step);
    return { startMb, ...numbers, ...(await compared("policy", await trainer.createModel(base, { seed: 1, lora }))) };
  }
  const id = await trainer.createModel(base, { seed: 1, lora });
  const numbers = await measured(() => trainStep(id));
  await sampler.addPolicy("policy", base, trainer.weights(id));
  return { startMb, ...numbers, ...(await compared("policy", id)) };
}

console.log(JSON.stringify(await result()));
// Sessions of the device keep the process alive.
process.exit(0);
