/** Times sampling through the engine's port: `sample-engine.ts <file with SampleInput as JSON>`. */
import { createOnnxEngine } from "../../src/engine/index.ts";
import type { SampleInput, SampleResult } from "./sample.bench.ts";
import { median, variantInput } from "./support.ts";

const input = variantInput<SampleInput>();
// A small model has one thread inside an operation, a large one a single sampler.
const engine = await createOnnxEngine({
  baseModels: { bench: input.directory },
  samplers: input.threads,
  samplerThreads: input.threads,
  // The batches have the same prompts, and prefill counts.
  prefixCacheBytes: 0,
});
const { rank = null } = input;
const model = await engine.createModel({
  base: "bench",
  seed: 1,
  ...(rank === null ? { fresh: true } : { lora: { rank, alpha: 2 * rank } }),
});
const policy = await engine.publish(model);
let nextSeed = 0;

async function one(row: number): Promise<number> {
  const prompt = Int32Array.from({ length: input.prompt }, (_, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500);
  const params = { maxTokens: input.tokens, temperature: 1, topP: 1, topK: 0, seed: BigInt(nextSeed++), stopTokenIds: [], topLogprobs: 0 };
  let count = 0;
  for await (const token of engine.sample(policy, prompt, params)) if (Number.isFinite(token.logprob)) count++;
  return count;
}
async function batch(size: number): Promise<void> {
  const counts = await Promise.all(Array.from({ length: size }, (_, row) => one(row)));
  if (counts.some((count) => count !== input.tokens)) throw new Error(`Expected ${input.tokens} tokens of each row, got ${counts.join()}`);
}

const results: SampleResult[] = [];
for (const size of input.batches) {
  await batch(size);
  await batch(size);
  const times: number[] = [];
  const cpuBefore = process.cpuUsage();
  for (const endMs = performance.now() + input.seconds * 1000; performance.now() < endMs;) {
    const startMs = performance.now();
    await batch(size);
    times.push(performance.now() - startMs);
  }
  const cpu = process.cpuUsage(cpuBefore);
  results.push({ ms: median(times), cpuMs: (cpu.user + cpu.system) / 1000 / times.length });
}
await engine.close();
console.log(JSON.stringify(results));
