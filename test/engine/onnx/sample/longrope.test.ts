/** Sequences on both sides of the original context of "longrope", each with its own rotary table. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOnnxEngine } from "../../../../src/engine/index.ts";
import type { Engine, PolicyVersion, SampledToken } from "../../../../src/engine/port.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";

const fixture = (name: string) => join(import.meta.dirname, "../../../oracle/families", name, "model");
/** Original context lengths of the two models; both have a context of 48 tokens and a vocabulary of 32. */
const ORIGINAL = { "phi3-longrope": 40, "phi3-longrope-long": 10 } as const;
const CONTEXT = 48;

const signal = new AbortController().signal;
const tokensOf = (length: number) => Int32Array.from({ length }, (_, at) => (at * 7 + 3) % 32);
let engine: Engine;
beforeAll(async () => {
  engine = await createOnnxEngine({
    baseModels: { "phi3-longrope": fixture("phi3-longrope"), "phi3-longrope-long": fixture("phi3-longrope-long") },
  });
});
afterAll(() => engine.close());

async function sample(policy: PolicyVersion, prompt: Int32Array, maxTokens = 100): Promise<SampledToken[]> {
  const params = { maxTokens, temperature: 0, topP: 1, topK: 0, seed: 0n, stopTokenIds: [], topLogprobs: 0 };
  const sampled: SampledToken[] = [];
  for await (const token of engine.sample(policy, prompt, params, { signal })) sampled.push(token);
  return sampled;
}

/** Log-probabilities of the tokens after the prompt, by a forward pass of the trainer over the whole row. */
async function trained(trainer: Trainer, id: string, prompt: Int32Array, sampled: readonly SampledToken[]): Promise<number[]> {
  const tokens = Int32Array.from([...prompt, ...sampled.map((token) => token.id)]);
  const [row] = await trainer.forward(id, [{ tokens, weights: Float32Array.from(tokens, (_, t) => Number(t > 0)) }], signal);
  return [...row!.subarray(prompt.length)];
}

test.each([
  { prompt: 6, sampled: 4 },
  { prompt: 10, sampled: 1 },
  { prompt: 11, sampled: CONTEXT - 11 },
])(
  "a prompt of $prompt tokens ends after $sampled more, and sampling and training agree on each",
  async ({ prompt: length, sampled: count }) => {
    const name = "phi3-longrope-long";
    const policy = await engine.loadPolicy({ base: name });
    const trainer = new Trainer({ threads: 1 });
    const id = await trainer.createModel({ id: name, directory: fixture(name) }, { seed: 0 });
    const prompt = tokensOf(length);
    const sampled = await sample(policy, prompt);
    expect(sampled).toHaveLength(count);
    expect(sampled.at(-1)!.finish).toBe("length");
    const logprobs = await trained(trainer, id, prompt, sampled);
    sampled.forEach(({ logprob }, at) => expect(logprob).toBeCloseTo(logprobs[at]!, 5));
  },
);

test("prompts on different sides of the original context share no cached keys", async () => {
  const name = "phi3-longrope";
  const policy = await engine.loadPolicy({ base: name });
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel({ id: name, directory: fixture(name) }, { seed: 0 });
  const cached: (number | undefined)[] = [];
  for (const length of [ORIGINAL[name] - 2, ORIGINAL[name] + 2, ORIGINAL[name] - 1, ORIGINAL[name] + 1]) {
    const prompt = tokensOf(length);
    const sampled = await sample(policy, prompt, 1);
    cached.push(sampled[0]!.cachedTokens);
    const [expected] = await trained(trainer, id, prompt, sampled);
    expect(sampled[0]!.logprob).toBeCloseTo(expected!, 5);
  }
  expect(cached).toEqual([0, 0, 32, 32]);
});

test("rows on different sides of the original context share no prefix in training", async () => {
  const name = "phi3-longrope-long";
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel({ id: name, directory: fixture(name) }, { seed: 0 });
  // The last token is not an input: a row of 11 tokens has a sequence of 10.
  const rows = [10, 11, 12, 20, 30].map((length) => {
    const tokens = tokensOf(length);
    return { tokens, weights: Float32Array.from(tokens, (_, t) => Number(t > 0)) };
  });
  const together = await trainer.forward(id, rows, signal);
  for (const [at, row] of rows.entries()) {
    const [alone] = await trainer.forward(id, [row], signal);
    together[at]!.forEach((logprob, t) => expect(logprob).toBeCloseTo(alone![t]!, 5));
  }
  const [short, long] = [together[1]!, together[2]!];
  expect(short[9]).not.toBeCloseTo(long[9]!, 3);
});
