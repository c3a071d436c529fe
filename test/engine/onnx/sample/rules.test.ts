/** Effect of a request's sampling rules on its samples, and their isolation from other requests. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOnnxEngine, type Engine, type PolicyVersion, type SampledToken, type SamplingParams } from "../../../../src/engine/index.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { Sampler } from "../../../../src/engine/onnx/sample/sampler.ts";

const base = join(import.meta.dirname, "../../../oracle/llama/model");
const PROMPT = Int32Array.from({ length: 9 }, (_, t) => (t * 7) % 48);
let engine: Engine;
let policy: PolicyVersion;

beforeAll(async () => {
  engine = await createOnnxEngine({ baseModels: { oracle: base } });
  policy = await engine.loadPolicy({ base: "oracle" });
});
afterAll(() => engine.close());

async function sample(more: Partial<SamplingParams> = {}): Promise<SampledToken[]> {
  const tokens: SampledToken[] = [];
  const params = { maxTokens: 20, temperature: 1, topP: 1, topK: 0, seed: 3n, stopTokenIds: [], topLogprobs: 0, ...more };
  for await (const token of engine.sample(policy, PROMPT, params)) tokens.push(token);
  return tokens;
}
const ids = (tokens: readonly SampledToken[]): number[] => tokens.map((token) => token.id);

describe("rules", () => {
  test("41, 43: allowed tokens and a bias change the sample; log-probabilities stay of the raw logits (46)", async () => {
    const [free] = await sample({ topLogprobs: 3, maxTokens: 1 });
    const [biased] = await sample({ logitBias: new Map([[7, 100]]), topLogprobs: 3, maxTokens: 1, temperature: 0 });
    expect(biased!.id).toBe(7);
    expect(biased!.top).toEqual(free!.top);
    expect(new Set(ids(await sample({ logitBias: new Map([[7, 100]]) })))).toEqual(new Set([7]));
    const allowed = ids(await sample({ allowedTokenIds: [4, 11] }));
    expect(new Set(allowed)).toEqual(new Set([4, 11]));
  });

  test("42: a banned sequence never appears, its first token does", async () => {
    const free = ids(await sample({ temperature: 0 }));
    const [first, second] = free;
    const banned = ids(await sample({ temperature: 0, bannedSequences: [[first!, second!]] }));
    expect(banned[0]).toBe(first);
    expect(banned.some((id, at) => id === first && banned[at + 1] === second)).toBe(false);
    expect(ids(await sample({ temperature: 0, bannedSequences: [[first!]] }))).not.toContain(first);
  });

  test("52: an output does not end before its minimum number of tokens", async () => {
    const free = ids(await sample());
    const stopTokenIds = free.slice(0, 3);
    expect(await sample({ stopTokenIds })).toHaveLength(1);
    const late = await sample({ stopTokenIds, lateTokenIds: stopTokenIds, minTokens: 6 });
    expect(late.length).toBeGreaterThan(6);
    for (const id of ids(late.slice(0, 6))) expect(stopTokenIds).not.toContain(id);
  });

  test("38 to 40: strong penalties prevent repetition in a greedy output", async () => {
    const distinct = async (more: Partial<SamplingParams>) => new Set(ids(await sample({ temperature: 0, ...more }))).size;
    const free = await distinct({ logitBias: new Map([[7, 2]]) });
    expect(free).toBeLessThan(20);
    expect(await distinct({ presencePenalty: 1000, logitBias: new Map([[7, 2]]) })).toBe(20);
    expect(await distinct({ frequencyPenalty: 1000 })).toBe(20);
    expect(await distinct({ frequencyPenalty: -1000 })).toBe(1);
    const seen = ids(await sample({ temperature: 0, repetitionPenalty: 1e6, maxTokens: 1 }));
    const [greedy] = ids(await sample({ temperature: 0, maxTokens: 1, bannedSequences: [...PROMPT].map((id) => [id]) }));
    // Nothing of the prompt while there is a positive logit outside it.
    expect(seen).toEqual([greedy]);
  });

  test("a request's rules do not change a bit of other requests", async () => {
    const alone = await sample({ topLogprobs: 3 });
    const ruled: Partial<SamplingParams> = { repetitionPenalty: 1.3, frequencyPenalty: 0.2, minP: 0.05, temperature: 0.8, topLogprobs: 3 };
    const ruledAlone = await sample(ruled);
    const [plain, again] = await Promise.all([
      sample({ topLogprobs: 3 }),
      sample(ruled),
      ...Array.from({ length: 6 }, (_, i) => sample({ seed: BigInt(i), ...(i % 2 ? ruled : {}) })),
    ]);
    expect(plain).toEqual(alone);
    expect(again).toEqual(ruledAlone);
  });

  test("9: prompt tokens have the trainer's log-probabilities and their ranks", async () => {
    const model = await engine.createModel({ base: "oracle", seed: 0 });
    const [full] = await engine.forward(model, [{ tokens: PROMPT, weights: new Float32Array(PROMPT.length).fill(1, 1) }]);
    const alone = await sample();
    const [first, ...rest] = await sample({ promptLogprobs: 20 });
    const prompt = first!.prompt!;
    expect(prompt.map(({ id }) => id)).toEqual([...PROMPT.subarray(1)]);
    for (const [at, { logprob, rank, top, id }] of prompt.entries()) {
      expect(Math.abs(logprob - full![at + 1]!)).toBeLessThan(1e-5);
      expect(top).toHaveLength(20);
      expect(top.filter((other) => other.logprob > logprob).length).toBe(Math.min(rank - 1, 20));
      if (rank <= 20) expect(top[rank - 1]!.id).toBe(id);
    }
    expect(rest.some((token) => token.prompt !== undefined)).toBe(false);
    // Requests with and without log-probabilities get the same tokens.
    const beside = await Promise.all([sample({ promptLogprobs: 0 }), sample()]);
    expect(beside.map(ids)).toEqual([ids(alone), ids(alone)]);
    expect(beside[0][0]!.prompt![0]).toMatchObject({ top: [] });
    expect(beside[1]).toEqual(alone);
    expect(beside[1][0]).not.toHaveProperty("prompt");
  });

  test("92: with one row, the lowest priority value runs first, then the earliest request", async () => {
    const priorities = [5n, undefined, 0n, -(2n ** 62n), 2n ** 62n];
    const ended: number[] = [];
    await new Promise<void>((resolve, reject) => {
      const sampler = new Sampler(
        { threads: 1, maxRows: 1 },
        (events) => {
          for (const { request, token } of events) if (token.finish !== undefined) ended.push(request);
          if (ended.length === priorities.length) resolve();
        },
        (_, error) => reject(error as Error),
        onHost(1),
      );
      const params = { maxTokens: 3, temperature: 1, topP: 1, topK: 0, seed: 1n, stopTokenIds: [], topLogprobs: 0 };
      // All are there before the first runs.
      void sampler.loadPolicy("only", { id: "oracle", directory: base }, undefined).then(() => {
        for (const [id, priority] of priorities.entries()) sampler.add(id, "only", PROMPT, { ...params, priority });
      }, reject);
    });
    expect(ended).toEqual([3, 1, 2, 0, 4]);
  });

  test("fails only the request with rules that leave no token", async () => {
    const [failed, other] = await Promise.allSettled([sample({ allowedTokenIds: [3], bannedSequences: [[3, 3]] }), sample()]);
    expect(failed).toMatchObject({ status: "rejected", reason: { code: "E_UNSUPPORTED" } });
    expect(other.status === "fulfilled" && other.value.length).toBe(20);
    expect(await sample()).toHaveLength(20);
  });

  test.each<[string, Partial<SamplingParams>]>([
    ["minP", { minP: 1.1 }],
    ["allowedTokenIds", { allowedTokenIds: [] }],
    ["allowedTokenIds", { allowedTokenIds: [48] }],
    ["logitBias", { logitBias: new Map([[48, 1]]) }],
    ["logitBias", { logitBias: new Map([[1, Number.NaN]]) }],
    ["bannedSequences", { bannedSequences: [[]] }],
    ["repetitionPenalty", { repetitionPenalty: 0 }],
    ["promptLogprobs", { promptLogprobs: 2 ** 20 + 1 }],
  ])("rejects %s out of bounds by name", async (param, more) => {
    await expect(sample(more)).rejects.toMatchObject({ code: "E_ARGUMENT", param });
  });
});
