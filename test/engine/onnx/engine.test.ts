import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  createOnnxEngine,
  type Engine,
  type PolicyVersion,
  type Row,
  type SampledToken,
  type SamplingParams,
} from "../../../src/engine/index.ts";
import { builtProgram } from "../../support/built-program.ts";

const base = join(import.meta.dirname, "../../oracle/llama/model");
const VOCABULARY = 48;
let engine: Engine;
let scratch: string;

beforeAll(async () => {
  engine = await createOnnxEngine({ baseModels: { oracle: base }, allowedRoots: [join(base, "..")], samplers: 2 });
  scratch = await mkdtemp(join(tmpdir(), "whetstone-engine-"));
});
afterAll(async () => {
  await engine.close();
  await rm(scratch, { recursive: true, force: true });
});

const params = (seed: number, more: Partial<SamplingParams> = {}): SamplingParams => ({
  maxTokens: 16,
  temperature: 1,
  topP: 1,
  topK: 0,
  seed: BigInt(seed),
  stopTokenIds: [],
  topLogprobs: 0,
  ...more,
});
const promptOf = (index: number) => Int32Array.from({ length: 3 + ((index * 5) % 20) }, (_, t) => (index * 11 + t * 7) % VOCABULARY);

async function sampleAll(policy: PolicyVersion, prompt: Int32Array, options: SamplingParams): Promise<SampledToken[]> {
  const tokens: SampledToken[] = [];
  for await (const token of engine.sample(policy, prompt, options)) tokens.push(token);
  return tokens;
}

/** Returns the tokens without the counts of cached tokens. */
const sampled = (tokens: readonly SampledToken[]) => tokens.map((token) => ({ ...token, cachedTokens: undefined }));

const rowOf = (prompt: Int32Array, tokens: readonly SampledToken[]): Row => {
  const all = Int32Array.from([...prompt, ...tokens.map((token) => token.id)]);
  return { tokens: all, weights: new Float32Array(all.length).fill(1, prompt.length) };
};

/** A little training, so that policies differ. */
async function trained(
  seed: number,
  lora?: { rank: number },
): Promise<{ model: Awaited<ReturnType<Engine["createModel"]>>; policy: PolicyVersion }> {
  const model = await engine.createModel({ base: "oracle", seed, lora });
  const rows = Array.from({ length: 6 }, (_, i): Row => {
    const tokens = Int32Array.from({ length: 8 + i }, (__, t) => (seed * 17 + i * 3 + t * 5) % VOCABULARY);
    return { tokens, weights: new Float32Array(tokens.length).fill(0.05, 1) };
  });
  for (let step = 0; step < 4; step++) {
    await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
    await engine.optimStep(model, { learningRate: 2e-2 });
  }
  return { model, policy: await engine.publish(model) };
}

describe("sampling", () => {
  test("cached decoding has the log-probabilities of the full forward pass", async () => {
    const { model, policy } = await trained(1);
    const prompts = Array.from({ length: 12 }, (_, i) => promptOf(i));
    const outputs = await Promise.all(prompts.map((prompt, i) => sampleAll(policy, prompt, params(i, { maxTokens: 30 }))));
    const full = await engine.forward(
      model,
      prompts.map((prompt, i) => rowOf(prompt, outputs[i]!)),
    );
    outputs.forEach((tokens, i) => {
      tokens.forEach((token, k) => expect(Math.abs(token.logprob - full[i]![prompts[i]!.length + k]!)).toBeLessThan(1e-5));
    });
  });

  test("tokens and log-probabilities are bit-identical alone and in any batch", async () => {
    const { policy } = await trained(2);
    const alone = await sampleAll(policy, promptOf(4), params(99, { maxTokens: 40, topLogprobs: 3 }));
    for (const company of [1, 7, 40]) {
      const [together] = await Promise.all([
        sampleAll(policy, promptOf(4), params(99, { maxTokens: 40, topLogprobs: 3 })),
        ...Array.from({ length: company }, (_, i) => sampleAll(policy, promptOf(i + 5), params(i, { maxTokens: 3 + ((i * 7) % 38) }))),
      ]);
      expect(sampled(together!)).toEqual(sampled(alone));
    }
    // Sampler threads take turns: neighbours are on different ones.
    const many = await Promise.all(
      Array.from({ length: 6 }, () => sampleAll(policy, promptOf(4), params(99, { maxTokens: 40, topLogprobs: 3 }))),
    );
    for (const each of many) expect(sampled(each)).toEqual(sampled(alone));
  });

  test("several adapters and the base are sampled in one batch, bit-identical to sampling alone", async () => {
    const policies = [
      (await trained(3, { rank: 2 })).policy,
      (await trained(4, { rank: 4 })).policy,
      (await trained(5, { rank: 4 })).policy,
      await engine.loadPolicy({ base: "oracle" }),
    ];
    const alone: SampledToken[][] = [];
    for (const policy of policies) alone.push(await sampleAll(policy, promptOf(3), params(7)));
    expect(new Set(alone.map((tokens) => tokens[0]!.logprob)).size).toBe(4);
    const together = await Promise.all(policies.map((policy) => sampleAll(policy, promptOf(3), params(7))));
    expect(together.map(sampled)).toEqual(alone.map(sampled));
  });

  test("an adapter is sampled with the trainer's log-probabilities", async () => {
    const { model, policy } = await trained(6, { rank: 3 });
    const tokens = await sampleAll(policy, promptOf(2), params(1));
    const [full] = await engine.forward(model, [rowOf(promptOf(2), tokens)]);
    tokens.forEach((token, k) => expect(Math.abs(token.logprob - full![promptOf(2).length + k]!)).toBeLessThan(1e-5));
  });

  test("the same seed gives the same tokens, another seed others, temperature 0 the most likely", async () => {
    const policy = await engine.loadPolicy({ base: "oracle" });
    const [a, b, c] = await Promise.all([42, 42, 43].map((seed) => sampleAll(policy, promptOf(1), params(seed))));
    expect(b).toEqual(a);
    expect(c!.map((token) => token.id)).not.toEqual(a!.map((token) => token.id));
    const greedy = await sampleAll(policy, promptOf(1), params(5, { temperature: 0, topLogprobs: 1 }));
    for (const token of greedy) expect(token.top[0]!.id).toBe(token.id);
  });

  test("drawn tokens follow the reported distribution", async () => {
    const policy = await engine.loadPolicy({ base: "oracle" });
    const draws = await Promise.all(
      Array.from({ length: 4000 }, (_, i) => sampleAll(policy, promptOf(6), params(i, { maxTokens: 1, topLogprobs: 5 }))),
    );
    for (const { id, logprob } of draws[0]![0]!.top) {
      const p = Math.exp(logprob);
      const share = draws.filter((tokens) => tokens[0]!.id === id).length / draws.length;
      // Five standard deviations of a binomial share.
      expect(Math.abs(share - p)).toBeLessThan(5 * Math.sqrt((p * (1 - p)) / draws.length));
    }
  });

  test("ends at a stop id, at the token limit and at the end of the context", async () => {
    const policy = await engine.loadPolicy({ base: "oracle" });
    const free = await sampleAll(policy, promptOf(1), params(42));
    expect(free).toHaveLength(16);
    expect(free.at(-1)!.finish).toBe("length");
    const stop = free[5]!.id;
    const stopped = await sampleAll(policy, promptOf(1), params(42, { stopTokenIds: [stop] }));
    expect(stopped.at(-1)).toMatchObject({ id: stop, finish: "stop" });
    expect(stopped.length).toBe(free.findIndex((token) => token.id === stop) + 1);
    const full = await sampleAll(policy, new Int32Array(60).fill(3), params(1, { maxTokens: 100 }));
    expect(full.length + 60).toBe(64);
    expect(full.at(-1)!.finish).toBe("length");
  });

  test("an abort rejects with the signal's own reason, and a released policy is not found", async () => {
    const policy = await engine.loadPolicy({ base: "oracle" });
    const controller = new AbortController();
    const reason = new Error("enough");
    const running = (async () => {
      for await (const token of engine.sample(policy, promptOf(1), params(1, { maxTokens: 50 }), { signal: controller.signal }))
        if (token) controller.abort(reason);
    })();
    await expect(running).rejects.toBe(reason);
    for await (const token of engine.sample(policy, promptOf(1), params(1))) {
      expect(token.id).toBeGreaterThanOrEqual(0);
      break;
    }
    await engine.release(policy);
    await expect(sampleAll(policy, promptOf(1), params(1))).rejects.toMatchObject({ code: "E_NOT_FOUND" });
  });

  test("rejects an invalid request with the expected and received value", async () => {
    const policy = await engine.loadPolicy({ base: "oracle" });
    await expect(sampleAll(policy, Int32Array.of(VOCABULARY), params(1))).rejects.toThrow(/token ids in \[0, 48\), got `48`/);
    await expect(sampleAll(policy, new Int32Array(64), params(1))).rejects.toThrow(/1 to 63 tokens/);
    await expect(sampleAll(policy, promptOf(1), params(1, { topP: 0 }))).rejects.toMatchObject({ code: "E_ARGUMENT", param: "topP" });
  });
});

test("64 requests with one signal cause no warning of the process", async () => {
  const warnings: string[] = [];
  const onWarning = ({ name }: Error) => void warnings.push(name);
  process.on("warning", onWarning);
  const { signal } = new AbortController();
  const policy = await engine.loadPolicy({ base: "oracle" });
  const lengths = Array.from({ length: 64 }, async (_, seed) => {
    let length = 0;
    for await (const token of engine.sample(policy, promptOf(seed), params(seed, { maxTokens: 2 }), { signal }))
      length += token.id >= 0 ? 1 : 0;
    return length;
  });
  expect(await Promise.all(lengths)).toEqual(lengths.map(() => 2));
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});

describe("training", () => {
  test("gradients accumulate over calls, and an aborted call does not change them", async () => {
    const rows = Array.from({ length: 5 }, (_, i): Row => ({
      tokens: promptOf(i + 2),
      weights: new Float32Array(promptOf(i + 2).length).fill(0.1, 1),
    }));
    const loss = { kind: "cross-entropy" } as const;
    const whole = await engine.createModel({ base: "oracle", seed: 0 });
    await engine.forwardBackward(whole, rows, loss);
    const parts = await engine.createModel({ base: "oracle", seed: 0 });
    for (const row of rows) await engine.forwardBackward(parts, [row], loss);
    await expect(engine.forwardBackward(parts, rows, loss, { signal: AbortSignal.abort() })).rejects.toMatchObject({ name: "AbortError" });
    // A plain gradient step: the log-probabilities after it show the whole gradient, not only its norm.
    const step = { learningRate: 1e5, epsilon: 1e6, beta1: 0, beta2: 0 };
    const before = await engine.forward(whole, rows);
    const [a, b] = [await engine.optimStep(whole, step), await engine.optimStep(parts, step)];
    expect(Math.abs(a.gradNorm - b.gradNorm) / a.gradNorm).toBeLessThan(1e-5);
    const [after, other] = [await engine.forward(whole, rows), await engine.forward(parts, rows)];
    const furthest = (from: readonly Float32Array[]) =>
      Math.max(...after.flatMap((row, i) => [...row.map((x, t) => Math.abs(x - from[i]![t]!))]));
    expect(furthest(before)).toBeGreaterThan(1e-3);
    expect(furthest(other)).toBeLessThan(1e-5);
  });

  test("training from a saved state is bit-identical to training without interruption", async () => {
    const rows = [{ tokens: promptOf(3), weights: new Float32Array(promptOf(3).length).fill(0.1, 1) }];
    const step = async (model: Awaited<ReturnType<Engine["createModel"]>>) => {
      await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      return engine.optimStep(model, { learningRate: 0.01, weightDecay: 0.1, maxGradNorm: 1 });
    };
    const { model } = await trained(8);
    const path = join(scratch, "state");
    await mkdir(path);
    await engine.saveState(model, path);
    expect((await readdir(path)).toSorted()).toEqual(["model.safetensors", "optimizer.safetensors", "state.json"]);
    const resumed = await engine.createModel({ base: "oracle", seed: 5, from: path });
    for (let i = 0; i < 3; i++) expect(await step(resumed)).toEqual(await step(model));
    const [a, b] = await Promise.all([model, resumed].map((handle) => engine.forward(handle, rows)));
    expect(b).toEqual(a);
  });

  test("adapters are trained, saved in PEFT's layout and loaded again", async () => {
    const { model, policy } = await trained(9, { rank: 2 });
    const path = join(scratch, "adapter");
    await mkdir(path);
    await engine.saveState(model, path);
    expect((await readdir(path)).toSorted()).toEqual([
      "adapter_config.json",
      "adapter_model.safetensors",
      "optimizer.safetensors",
      "state.json",
    ]);
    const loaded = await engine.loadPolicy({ base: "oracle", state: path });
    expect(await sampleAll(loaded, promptOf(2), params(3))).toEqual(await sampleAll(policy, promptOf(2), params(3)));
    await expect(engine.createModel({ base: "oracle", seed: 0, from: path })).rejects.toMatchObject({ code: "E_DATA" });
  });

  test("weights after ten steps are bit-identical with 1 and 4 threads in separate processes", async () => {
    const program = await builtProgram(new URL("ten-steps.ts", import.meta.url));
    const hashes: string[] = [];
    for (const threads of [1, 4]) {
      const { stdout } = await promisify(execFile)(process.execPath, [program, String(threads)]);
      hashes.push(stdout.trim());
    }
    expect(hashes[0]).toMatch(/^[0-9a-f]{64}$/);
    expect(new Set(hashes).size).toBe(1);
  }, 180_000);

  test("rejects invalid rows with the row's index", async () => {
    const { model } = await trained(10);
    const bad = (row: Row) => engine.forwardBackward(model, [row], { kind: "cispo", epsilon: 1, epsilonHigh: 4 });
    const weights = Float32Array.of(0, 1);
    await expect(bad({ tokens: Int32Array.of(1, 2), weights })).rejects.toThrow(/Row 0: expected 2 advantages/);
    const more = { weights, advantages: Float32Array.of(0, 1), logprobs: Float32Array.of(0, -1) };
    await expect(bad({ ...more, tokens: Int32Array.of(1, 99) })).rejects.toThrow(/Row 0: .*99/);
    await expect(bad({ ...more, tokens: Int32Array.of(1, 2), weights: Float32Array.of(1, 1) })).rejects.toThrow(
      /Row 0: .*weight 0 for the first token/,
    );
  });
});

test("a base model outside the allowed roots or without a configuration is not found", async () => {
  await expect(engine.describeBase("/etc")).rejects.toMatchObject({ code: "E_NOT_FOUND" });
  await expect(engine.describeBase(`${base}/../../../..`)).rejects.toMatchObject({ code: "E_NOT_FOUND" });
  await expect(engine.describeBase("nothing")).rejects.toThrow(/Expected one of: oracle/);
  expect(await engine.describeBase(base)).toMatchObject({ vocabularySize: VOCABULARY, contextLength: 64 });
});

test("rejects thread counts below 1 and more than 4 trainer threads", async () => {
  const messageOf = (options: object) =>
    createOnnxEngine({ baseModels: {}, ...options }).then(
      () => "started",
      (error: Error) => error.message,
    );
  expect(await messageOf({ samplerThreads: 0 })).toContain("Expected `samplerThreads` to be a whole number from 1, got 0");
  expect(await messageOf({ trainerThreads: 5 })).toContain("Expected `trainerThreads` to be at most 4, got 5");
});

test("rejects base models without an existing directory before it starts any thread", async () => {
  const start = (path: string) => createOnnxEngine({ baseModels: { mine: path } });
  const expected = { code: "E_CONFIG", param: "baseModels" };
  await expect(start(join(base, "missing"))).rejects.toMatchObject({
    ...expected,
    message: `Expected the base model "mine" to be a directory in Hugging Face layout or a GGUF file, got ${join(base, "missing")}, which does not exist`,
  });
  await expect(start(join(base, "config.json"))).rejects.toMatchObject({
    ...expected,
    message: expect.stringContaining("which is a file of another format") as string,
  });
});
