/** The sampler on the shipped model: its results, their order, and bits of a row that depend on no other row. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Program } from "../../../../src/engine/onnx/runtime/program.ts";
import { SampleBatch } from "../../../../src/engine/onnx/sample/batch.ts";
import { BLOCK_TOKENS } from "../../../../src/engine/onnx/sample/prefix-cache.ts";
import { PrefillLimiter } from "../../../../src/engine/onnx/sample/prefill-limiter.ts";
import type { Request } from "../../../../src/engine/onnx/sample/request.ts";
import { mayStart } from "../../../../src/engine/onnx/sample/admission.ts";
import { PrefillTask } from "../../../../src/engine/onnx/sample/prefill.ts";
import type { SampledToken } from "../../../../src/engine/port.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { base, Harness, numbers, params } from "./harness.ts";

/** A run of a graph: rows and new tokens of each. */
interface Run {
  readonly rows: number;
  readonly time: number;
}
const runs: Run[] = [];
let onRun: (run: Run) => void = () => {};

beforeEach(() => {
  runs.length = 0;
  onRun = () => {};
  const run = Program.prototype.run;
  vi.spyOn(Program.prototype, "run").mockImplementation(async function (this: Program, ...args: Parameters<typeof run>) {
    const [rows, time] = args[0]["tokens"]!.dims as [number, number];
    runs.push({ rows, time });
    onRun({ rows, time });
    return run.apply(this, args);
  });
});
afterEach(() => void vi.restoreAllMocks());

/** Prompts of one `family` begin alike; they differ from token `shared` on, or in their length. */
const promptOf = (length: number, family: number, index = 0, shared = 40) =>
  Int32Array.from({ length }, (_, t) => (family * 37 + t * 17 + ((family * t) % 7) + (t >= shared ? index * 5 : 0)) % 500);
const promptRuns = () => runs.filter(({ time }) => time > 1);
const computedTokens = () => promptRuns().reduce((sum, { rows, time }) => sum + rows * time, 0);

describe("the prefix cache", () => {
  test("a later request computes only tokens after the shared prefix, bit-identical to a cold cache", async () => {
    const cold = await Harness.start({ prefixCacheBytes: 0 });
    const warm = await Harness.start();
    for (const [index, length] of [100, 97, 113, 64, 41, 33, 17].entries()) {
      const prompt = promptOf(length, 1, index);
      const expected = await cold.run(prompt, params(index));
      await warm.run(promptOf(120, 1, 50), params(1000));
      runs.length = 0;
      const actual = await warm.run(prompt, params(index));
      expect(numbers(actual)).toEqual(numbers(expected));
      const shared = Math.min(2, Math.floor((length - 1) / 16)) * 16;
      expect(actual[0]!.cachedTokens).toBe(shared);
      expect(computedTokens()).toBe(Math.ceil(length / 16) * 16 - shared);
      expect(expected[0]!.cachedTokens).toBe(0);
    }
  });

  test("choices of one prompt and concurrent requests compute a common prefix once", async () => {
    const harness = await Harness.start();
    const prompts = Array.from({ length: 6 }, (_, i) => promptOf(100, 2, i, 80));
    const outputs = await Promise.all(
      prompts.flatMap((prompt, i) => [0, 1, 2, 3].map((choice) => harness.run(prompt, params(10 * i + choice)))),
    );
    // One prompt in full, five blocks of which the others share.
    expect(computedTokens()).toBe(112 + 5 * 32);
    const alone = await Harness.start({ prefixCacheBytes: 0 });
    expect(numbers(await alone.run(prompts[5]!, params(53)))).toEqual(numbers(outputs[23]!));
  });

  test("prompts with a short common prefix run in one batch, in one piece even without time budget", async () => {
    const harness = await Harness.start();
    await harness.run(promptOf(60, 2, 9, 20), params(1));
    const prompts = Array.from({ length: 4 }, (_, i) => promptOf(60, 2, i, 20));
    // While another row runs, prompts have the time that they have.
    const outputs = new Promise<SampledToken[][]>((resolve) => {
      harness.onToken = () => {
        harness.onToken = () => {};
        runs.length = 0;
        vi.spyOn(PrefillLimiter.prototype, "promptTokensIn").mockReturnValueOnce(256).mockReturnValue(1);
        resolve(Promise.all(prompts.map((prompt, i) => harness.run(prompt, params(i)))));
      };
    });
    const other = harness.run(promptOf(20, 8), params(2, { maxTokens: 40 }));
    const [sampled] = await Promise.all([outputs, other]);
    vi.mocked(PrefillLimiter.prototype.promptTokensIn).mockRestore();
    expect(promptRuns().filter(({ rows }) => rows > 1)).toEqual([{ rows: 4, time: 48 }]);
    const alone = await Harness.start({ prefixCacheBytes: 0 });
    for (const [i, prompt] of prompts.entries()) expect(numbers(await alone.run(prompt, params(i)))).toEqual(numbers(sampled[i]!));
  });

  test("requests with another salt or other weights share no prefix", async () => {
    const harness = await Harness.start();
    await harness.sampler.loadPolicy("q", base, undefined);
    const prompt = promptOf(60, 3);
    await harness.run(prompt, params(1));
    for (const [options, policy] of [
      [params(1, { cacheSalt: "a" }), "p"],
      [params(1, { cacheSalt: "b" }), "p"],
      [params(1), "q"],
    ] as const) {
      runs.length = 0;
      expect((await harness.run(prompt, options, policy))[0]!.cachedTokens).toBe(0);
      expect(computedTokens()).toBe(64);
    }
    expect((await harness.run(prompt, params(1, { cacheSalt: "a" })))[0]!.cachedTokens).toBe(48);
  });

  test("prompt log-probabilities are computed in full and bit-identical in any chunks", async () => {
    const whole = await Harness.start({ prefixCacheBytes: 0 });
    const pieces = await Harness.start({ maxPrefillTokens: 32 });
    const prompt = promptOf(90, 4);
    await pieces.run(prompt, params(1));
    const [a, b] = [await whole.run(prompt, params(1, { promptLogprobs: 1 })), await pieces.run(prompt, params(1, { promptLogprobs: 1 }))];
    expect(b[0]!.prompt).toHaveLength(89);
    expect(b[0]!.prompt).toEqual(a[0]!.prompt);
    expect(numbers(b)).toEqual(numbers(a));
    expect(b[0]!.cachedTokens).toBe(0);
  });
});

describe("chunked prefill", () => {
  test("output is bit-identical for any chunk size", async () => {
    const prompt = promptOf(200, 5);
    const expected = numbers(await (await Harness.start()).run(prompt, params(3)));
    for (const maxPrefillTokens of [16, 48, 128]) {
      const harness = await Harness.start({ maxPrefillTokens });
      expect(numbers(await harness.run(prompt, params(3)))).toEqual(expected);
    }
  });

  test("running rows continue between the chunks of a long prompt", async () => {
    const harness = await Harness.start();
    // No time at all: a block between two tokens.
    vi.spyOn(PrefillLimiter.prototype, "budgetMs").mockReturnValue(0);
    const streams = Array.from({ length: 4 }, (_, i) => harness.add(promptOf(20, 10 + i), params(i, { maxTokens: 200 })));
    let isAdded = false;
    let long: Promise<SampledToken[]> | undefined;
    harness.onToken = () => {
      if (isAdded || !streams.every(({ id }) => harness.tokens.get(id)!.length > 20)) return;
      isAdded = true;
      runs.length = 0;
      long = harness.run(promptOf(900, 6), params(9, { maxTokens: 1 }));
    };
    await Promise.all(streams.map(({ done }) => done));
    await long;
    const pieces = runs.flatMap(({ time }, index) => (time > 1 ? [index] : []));
    expect(pieces).toHaveLength(Math.ceil(900 / BLOCK_TOKENS));
    expect(pieces.slice(1).map((index, before) => index - pieces[before]!)).toEqual(Array(pieces.length - 1).fill(2));
  });
});

describe("groups of requests", () => {
  const group = (id: number) => ({ client: "", id });

  /** Samples three prompts of one group, adds a request when the second prompt piece runs, and returns the lengths of the pieces from there on. */
  async function piecesWith(add: (harness: Harness) => Promise<unknown>): Promise<number[]> {
    const harness = await Harness.start({ maxPrefillTokens: 64 });
    await harness.sampler.loadPolicy("q", base, undefined);
    vi.spyOn(PrefillLimiter.prototype, "promptTokensIn").mockReturnValue(64);
    const many = [0, 1, 2].map((index) => harness.run(promptOf(300, 50 + index), params(index, { maxTokens: 1 }), "p", group(1)));
    let added: Promise<unknown> | undefined;
    onRun = () => {
      if (promptRuns().length === 2) added ??= add(harness);
    };
    await Promise.all(many);
    await added;
    return promptRuns()
      .slice(2)
      .map(({ time }) => time);
  }

  test.each(["p", "q"])("a short prompt on policy %s is computed after the current piece of another group's prompts", async (policy) => {
    const pieces = await piecesWith((harness) => harness.run(promptOf(10, 60), params(9, { maxTokens: 1 }), policy, group(2)));
    expect(pieces[0]).toBe(16);
  });

  test("a short prompt of the same group waits for its prompts", async () => {
    const pieces = await piecesWith((harness) => harness.run(promptOf(10, 60), params(9, { maxTokens: 1 }), "p", group(1)));
    expect(pieces.at(-1)).toBe(16);
  });

  test("at most four long prompts of one priority are started, or one of each client, and prompts with a prefix that is being computed wait for it", () => {
    const policy = {} as Request["policy"];
    const request = (length: number, more: Partial<Request> = {}) =>
      ({ policy, prompt: promptOf(length, 90), params: params(1), group: group(1), ...more }) as Request;
    const task = (length: number, priority = 0n, isSame = false) =>
      ({ tokens: length, requests: [{ params: { priority }, group: group(2) }], willStore: () => isSame }) as unknown as PrefillTask;
    const long = [0, 1, 2, 3].map(() => task(5000));
    expect(mayStart(request(2000), long.slice(1), 64)).toBe(true);
    expect(mayStart(request(2000), long, 64)).toBe(false);
    expect(mayStart(request(2000, { params: params(1, { priority: -1n }) }), long, 64)).toBe(true);
    expect(mayStart(request(2000, { group: { client: "other", id: 3 } }), long, 64)).toBe(true);
    expect(mayStart(request(1024), long, 64)).toBe(true);
    expect(mayStart(request(100), [task(500, 0n, true)], 64)).toBe(false);
    expect(mayStart(request(100), [task(500, 0n, true)], null)).toBe(true);
  });

  test.each([
    { label: "rows of its client that have just started do not count", client: "a", after: 1, expected: 2 },
    { label: "rows with many tokens count", client: "a", after: 20, expected: 0.5 },
    { label: "all rows count if another client has some", client: "b", after: 1, expected: 0.5 },
  ])("of the running rows that waiting prompts are compared with, $label", async ({ client, after, expected }) => {
    const harness = await Harness.start();
    const budget = vi.spyOn(PrefillLimiter.prototype, "budgetMs");
    const streams = Array.from({ length: 4 }, (_, i) =>
      harness.add(promptOf(20, 10 + i), params(i, { maxTokens: 40 }), "p", { client: "a", id: i }),
    );
    let late: Promise<SampledToken[]>[] = [];
    harness.onToken = () => {
      if (late.length > 0 || !streams.every(({ id }) => harness.tokens.get(id)!.length >= after)) return;
      budget.mockClear();
      late = [6, 7].map((seed) => harness.run(promptOf(40, seed), params(seed, { maxTokens: 1 }), "p", { client, id: 9 }));
    };
    await Promise.all(streams.map(({ done }) => done));
    await Promise.all(late);
    expect(budget.mock.calls[0]![0]).toBe(expected);
  });

  test("prompts of a model that has never decoded are prefilled while rows of another model start", async () => {
    const harness = await Harness.start();
    await harness.sampler.loadPolicy("q", base, undefined);
    await harness.run(promptOf(20, 1), params(1, { maxTokens: 1 }), "q");
    const started = harness.add(promptOf(20, 2), params(2, { maxTokens: 40 }));
    let late: Promise<SampledToken[]>[] = [];
    harness.onToken = ({ request }) => {
      if (request === started.id && late.length === 0)
        late = [3, 4, 5].map((seed) => harness.run(promptOf(40, seed), params(seed, { maxTokens: 3 }), "q"));
    };
    await started.done;
    for (const tokens of await Promise.all(late)) expect(tokens).toHaveLength(3);
  });

  test("running rows wait longer for prefill if more prompts wait than rows run, up to 40 ms or 16 steps, and four steps for a client without rows", () => {
    const limiter = new PrefillLimiter();
    limiter.noteDecode(1, 8);
    expect([0.5, 1, 2, 100].map((waiting) => limiter.budgetMs(waiting, false))).toEqual([4, 4, 64, 128]);
    expect(limiter.budgetMs(0, true)).toBe(32);
    const fast = new PrefillLimiter();
    fast.noteDecode(1, 1);
    expect(fast.budgetMs(100, false)).toBe(40);
  });

  test("the number of prompt tokens follows from the fixed time of a run and the time per token, and is at most 16 times a measured one", () => {
    const limiter = new PrefillLimiter();
    expect(limiter.promptTokensIn(40)).toBe(1);
    limiter.notePrefill(16, 4);
    expect([2, 20, 40].map((ms) => limiter.promptTokensIn(ms))).toEqual([8, 80, 160]);
    for (const tokens of [32, 16, 64]) limiter.notePrefill(tokens, 3 + tokens / 16);
    expect([4, 5, 11].map((ms) => limiter.promptTokensIn(ms))).toEqual([16, 32, 128]);
    // Noise: the larger run was faster.
    const noisy = new PrefillLimiter();
    noisy.notePrefill(16, 10);
    noisy.notePrefill(32, 5);
    expect(noisy.promptTokensIn(10)).toBeGreaterThan(16);
  });
});

describe("joining and leaving the batch", () => {
  test("a request joins at the next token, and a cancelled one leaves at the next token", async () => {
    const harness = await Harness.start();
    const long = harness.add(promptOf(20, 20), params(1, { maxTokens: 60 }));
    let cancelledAt = -1;
    const other = harness.add(promptOf(20, 21), params(2, { maxTokens: 60 }));
    const late: Promise<SampledToken[]>[] = [];
    let joinedAt = -1;
    harness.onToken = ({ request, token }) => {
      if (request !== long.id && request !== other.id && joinedAt < 0) joinedAt = harness.tokens.get(long.id)!.length;
      if (request !== long.id || token.finish) return;
      const count = harness.tokens.get(long.id)!.length;
      if (count === 10) late.push(harness.run(promptOf(20, 22), params(3, { maxTokens: 3 })));
      if (count !== 30) return;
      harness.sampler.cancel(other.id);
      cancelledAt = harness.tokens.get(other.id)!.length;
      runs.length = 0;
    };
    await long.done;
    const joined = await late[0]!;
    expect(joined).toHaveLength(3);
    // At most one token of the long row between the request and its own first token.
    expect(joinedAt).toBeLessThanOrEqual(11);
    expect(harness.tokens.get(long.id)).toHaveLength(60);
    expect(harness.tokens.get(other.id)!.length - cancelledAt).toBeLessThanOrEqual(1);
    // From the next run on the batch is the long row and one that fills it up.
    expect(runs.every(({ rows }) => rows === 2)).toBe(true);
  });

  test("cancelling frees the row of a waiting, prefilling or running request", async () => {
    const harness = await Harness.start({ maxRows: 1, maxPrefillTokens: 16 });
    const running = harness.add(promptOf(20, 30), params(1, { maxTokens: 900 }));
    const waiting = harness.add(promptOf(20, 31), params(2));
    harness.onToken = ({ request }) => {
      if (request !== running.id || harness.tokens.get(running.id)!.length !== 5) return;
      harness.sampler.cancel(waiting.id);
      harness.sampler.cancel(running.id);
    };
    const prefilling = harness.add(promptOf(500, 32), params(3));
    onRun = ({ time }) => {
      if (time === 16 && promptRuns().length === 10) harness.sampler.cancel(prefilling.id);
    };
    expect(await harness.run(promptOf(20, 33), params(4))).toHaveLength(12);
    expect(harness.tokens.get(waiting.id)).toEqual([]);
    expect(harness.tokens.get(prefilling.id)).toEqual([]);
    expect(harness.tokens.get(running.id)!.length).toBeLessThanOrEqual(6);
  });
});

describe("too little memory", () => {
  const noMemory = () => {
    throw new RangeError("Array buffer allocation failed");
  };

  test("for a prompt's keys and values fails only the requests with that prompt", async () => {
    const harness = await Harness.start();
    const start = vi.spyOn(PrefillTask, "start").mockImplementationOnce(async () => noMemory());
    const choices = [0, 1].map((seed) => harness.run(promptOf(40, 40), params(seed)));
    const other = harness.run(promptOf(60, 41), params(2));
    const failed = { status: "rejected", reason: expect.objectContaining({ message: "Array buffer allocation failed" }) };
    expect(await Promise.allSettled(choices)).toEqual([failed, failed]);
    expect(await other).toHaveLength(12);
    expect(start).toHaveBeenCalledTimes(2);
    expect(await harness.run(promptOf(40, 40), params(1))).toHaveLength(12);
  });

  test("for a row fails its request, not the request that is prefilling", async () => {
    const harness = await Harness.start({ maxPrefillTokens: 16 });
    vi.spyOn(SampleBatch.prototype, "enter").mockImplementationOnce(noMemory);
    let urgent: Promise<unknown> | undefined;
    onRun = () => {
      if (promptRuns().length === 3) urgent = harness.run(promptOf(20, 43), params(1, { priority: -1n })).catch(String);
    };
    expect(await harness.run(promptOf(200, 42), params(2))).toHaveLength(12);
    expect(await urgent).toContain("allocation failed");
  });
});

test("a prompt in pieces reads one stack of adapters, and only its last piece computes distributions", async () => {
  const on = onHost(1);
  const stacks = new Set<unknown>();
  const selected: number[] = [];
  const place: typeof on.place = {
    ...on.place,
    stack: (...args) => {
      const stack = on.place.stack(...args);
      if (stack !== null) stacks.add(stack);
      return stack;
    },
    run: (input) => {
      if (input.kind === "prompt") selected.push(input.last.length);
      return on.place.run(input);
    },
  };
  const harness = new Harness({ maxPrefillTokens: 16 }, { ...on, place });
  const config = await readModelConfig(base.directory);
  const flat = new Float32Array(adapterLayout(config, 4).length).fill(0.01);
  await harness.sampler.addPolicy("adapted", base, { flat, lora: { rank: 4, alpha: 8 } });
  await harness.run(promptOf(100, 3), params(1), "adapted");
  expect(selected).toEqual([0, 0, 0, 0, 0, 0, 2]);
  expect(stacks.size).toBe(1);
});
