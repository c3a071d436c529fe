/** Samples with weights of one precision: `quantized-engine.ts <file with QuantizedInput as JSON>`. */
import { createOnnxEngine, type PolicyVersion, type Row } from "../../src/engine/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import type { QuantizedInput, QuantizedResult } from "./quantized.bench.ts";
import { variantInput } from "./support.ts";

/** Text of which the base model's log-probability is computed. */
const TEXT =
  "The water cycle describes how water moves on, above and below the surface of the Earth. The sun heats the ocean, water evaporates and rises into the air, where it cools and forms clouds. Rain and snow fall from the clouds, and rivers carry the water back to the sea.";

const input = variantInput<QuantizedInput>();
const { directory, precisions, batches, prompt: promptLength, tokens: count, threads } = input;
const engine = await createOnnxEngine({
  baseModels: { base: directory },
  ...precisions,
  samplers: 1,
  samplerThreads: threads,
  trainerThreads: threads,
  prefixCacheBytes: 0,
});
const text = Int32Array.from((await loadTokenizer(directory)).encode(TEXT));
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};
let nextSeed = 0;

async function one(
  policy: PolicyVersion,
  row: number,
  maxTokens: number,
): Promise<{ prompt: Int32Array; ids: number[]; logprobs: number[] }> {
  const prompt = Int32Array.from({ length: promptLength }, (_, t) => text[(row * 7 + t) % text.length]!);
  const params = { maxTokens, temperature: 1, topP: 1, topK: 0, seed: BigInt(nextSeed++), stopTokenIds: [], topLogprobs: 0 };
  const [ids, logprobs]: [number[], number[]] = [[], []];
  for await (const token of engine.sample(policy, prompt, params)) {
    ids.push(token.id);
    logprobs.push(token.logprob);
  }
  return { prompt, ids, logprobs };
}

/** Samples a batch and returns its rows and the processor time. */
async function batch(policy: PolicyVersion, size: number, maxTokens: number) {
  const startMs = cpuMs();
  const rows = await Promise.all(Array.from({ length: size }, (_, row) => one(policy, row, maxTokens)));
  return { rows, ms: cpuMs() - startMs };
}

const model = await engine.createModel({ base: "base", seed: 1, lora: { rank: input.rank } });
// Before a step, an adapter has no effect.
const whole = (all: Int32Array, start: number): Row => ({ tokens: all, weights: new Float32Array(all.length).fill(1, start) });
const [base] = await engine.forward(model, [whole(text, 1)]);
await engine.forwardBackward(model, [whole(text, 1)], { kind: "cross-entropy" });
await engine.optimStep(model, { learningRate: 1e-4 });
const policy = await engine.publish(model);
const stepMs: number[] = [];
let promptMs = 0;
for (const size of batches) {
  await batch(policy, size, 2);
  // One token takes no step; the difference is the time of the steps.
  const short = await batch(policy, size, 1);
  const long = await batch(policy, size, count);
  stepMs.push((long.ms - short.ms) / (count - 1));
  promptMs = short.ms;
}
const { rows } = await batch(policy, 8, count);
const trained = await engine.forward(
  model,
  rows.map(({ prompt, ids }) => whole(Int32Array.of(...prompt, ...ids), prompt.length)),
);
const differences = rows.flatMap(({ prompt, logprobs }, index) =>
  logprobs.map((logprob, t) => Math.abs(logprob - trained[index]![prompt.length + t]!)),
);
await engine.close();
console.log(
  JSON.stringify({
    stepMs,
    promptMs,
    peakMb: process.resourceUsage().maxRSS / 1e3,
    worst: Math.max(...differences),
    mean: differences.reduce((sum, each) => sum + each, 0) / differences.length,
    textLogprob: base!.subarray(1).reduce((sum, each) => sum + each, 0) / (text.length - 1),
  } satisfies QuantizedResult),
);
