import { afterAll, beforeAll, expect, it } from "vitest";
import { createOnnxEngine } from "../../../src/engine/index.ts";
import type { BaseModelInfo, Engine, ModelHandle, SamplingParams } from "../../../src/engine/port.ts";
import type { TokenSequence } from "../../../src/learner/index.ts";
import type { JobScope } from "../../../src/service/jobs/run-job.ts";
import { tokenAccuracy } from "../../../src/service/jobs/token-accuracy.ts";
import { shippedDirectory } from "../../../src/service/models/shipped-base.ts";

const GREEDY: SamplingParams = { maxTokens: 1, temperature: 0, topP: 1, topK: 0, seed: 0n, stopTokenIds: [], topLogprobs: 0 };

let engine: Engine;
let handle: ModelHandle;
let base: BaseModelInfo;
beforeAll(async () => {
  engine = await createOnnxEngine({ baseModels: { tiny: shippedDirectory() } });
  base = await engine.describeBase("tiny");
  handle = await engine.createModel({ base: "tiny", seed: 0 });
});
afterAll(() => engine.close());

/** Fraction of the trained tokens that greedy sampling continues their prefix with, one request per token. */
async function byGreedySampling(sequences: readonly TokenSequence[], maxTokens = Infinity): Promise<number> {
  const policy = await engine.publish(handle);
  let [correct, total] = [0, 0];
  for (const { tokens, mask } of sequences)
    for (let position = 1; position < Math.min(tokens.length, maxTokens); position++) {
      if (mask[position] !== 1) continue;
      total++;
      for await (const { id } of engine.sample(policy, tokens.subarray(0, position), GREEDY)) if (id === tokens[position]) correct++;
    }
  await engine.release(policy);
  return correct / total;
}

/** Sequences that the model continues itself, with some other tokens among them. */
async function sequences(count: number): Promise<TokenSequence[]> {
  const policy = await engine.publish(handle);
  const made = Array.from({ length: count }, async (_, index) => {
    const prompt = Int32Array.from([497, 104 + index, 101, 108, 500, 498]);
    const tokens = [...prompt];
    for await (const { id } of engine.sample(policy, prompt, { ...GREEDY, maxTokens: 12 + index })) tokens.push(id);
    const changed = tokens.map((id, position) => (position % 5 === 4 ? (id + 1) % base.vocabularySize : id));
    return { tokens: Int32Array.from(changed), mask: Uint8Array.from(changed, (__, position) => (position >= 5 - index ? 1 : 0)) };
  });
  const all = await Promise.all(made);
  await engine.release(policy);
  return all;
}

function scope(more: Partial<JobScope> = {}): JobScope {
  return { context: { engine }, handle, base, signal: new AbortController().signal, job: { id: "job" }, ...more } as unknown as JobScope;
}

it("equals the fraction of tokens that greedy sampling would choose", async () => {
  const some = await sequences(5);
  const accuracy = await tokenAccuracy(scope(), some);
  expect(accuracy).toBe(await byGreedySampling(some));
  expect(accuracy).toBeGreaterThan(0);
  expect(accuracy).toBeLessThan(1);
});

it("leaves out the tokens for which the context has no room", async () => {
  const some = await sequences(3);
  expect(await tokenAccuracy(scope({ base: { ...base, contextLength: 11 } }), some)).toBe(await byGreedySampling(some, 10));
});

it("is unknown without trained tokens", async () => {
  const [one] = await sequences(1);
  expect(await tokenAccuracy(scope(), [{ ...one!, mask: new Uint8Array(one!.tokens.length) }])).toBeNull();
});
