/** Rows that grow beyond the memory: they are suspended and continue later, with the same tokens. */
import { expect, test } from "vitest";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import type { HostTrained } from "../../../../src/engine/onnx/sample/host-weights.ts";
import { KvCache } from "../../../../src/engine/onnx/sample/kv-cache.ts";
import type { SamplerPlace, SamplingPlace } from "../../../../src/engine/onnx/sample/place.ts";
import type { SampledToken, SamplingParams } from "../../../../src/engine/port.ts";
import { Harness, numbers, params } from "./harness.ts";

/** Step of row lengths, in tokens. */
const STEP = 16;
const paddedTokens = (rows: number, length: number) => rows * Math.ceil(length / STEP) * STEP;

/** Decoding step: number of rows, and tokens of the longest row after the step. */
interface Step {
  readonly rows: number;
  readonly length: number;
}

/** Places a sampler on the processor, with memory for the keys and values of `tokens` tokens, padding included. */
function limitedPlace(tokens: number): { place: SamplerPlace<HostTrained>; steps: Step[]; prefilled: number[] } {
  class LimitedCache extends KvCache {
    override roomFor(rows: number, length = 0): number {
      return Math.max(1, Math.min(rows, Math.floor(tokens / paddedTokens(1, length))));
    }
  }
  const { place, weights } = onHost(1);
  const [steps, prefilled]: [Step[], number[]] = [[], []];
  const limited: SamplingPlace = {
    ...place,
    newBatchKeys: (config) => new LimitedCache(config),
    run(input) {
      const lengths = input.pasts.filter((length) => length > 0);
      if (input.kind === "decode") steps.push({ rows: lengths.length, length: Math.max(...lengths) + 1 });
      else prefilled.push(input.tokens.length);
      return place.run(input);
    },
  };
  return { place: { place: limited, weights }, steps, prefilled };
}

const promptOf = (length: number, index: number) => Int32Array.from({ length }, (_, t) => (index * 37 + t * 17 + ((index * t) % 7)) % 500);

/** Requests with each rule that makes the next token depend on earlier tokens. */
const REQUESTS: readonly (readonly [Int32Array, Partial<SamplingParams>])[] = [
  [promptOf(20, 1), { maxTokens: 90 }],
  [promptOf(33, 2), { maxTokens: 60, topP: 0.9 }],
  [promptOf(7, 3), { maxTokens: 80, frequencyPenalty: 0.5, presencePenalty: 0.5 }],
  [promptOf(20, 4), { maxTokens: 70, temperature: 0 }],
  [promptOf(40, 5), { maxTokens: 50, promptLogprobs: 1 }],
  [promptOf(20, 6), { maxTokens: 100, topLogprobs: 5 }],
];

const runAll = (harness: Harness): Promise<SampledToken[][]> =>
  Promise.all(REQUESTS.map(([prompt, more], index) => harness.run(prompt, params(index, more))));

test("with too little memory for all rows, every request gets the tokens and log-probabilities of unlimited memory", async () => {
  const expected = await runAll(await Harness.start());
  for (const prefixCacheBytes of [0, 2 ** 28]) {
    const { place, steps } = limitedPlace(256);
    const actual = await runAll(await Harness.start({ prefixCacheBytes }, place));
    expect(actual.map(numbers)).toEqual(expected.map(numbers));
    expect(actual.map((tokens) => tokens.map(({ prompt, cachedTokens }) => [prompt, cachedTokens]))).toEqual(
      expected.map((tokens) => tokens.map(({ prompt, cachedTokens }) => [prompt, cachedTokens])),
    );
    expect(Math.max(...steps.map(({ rows }) => rows))).toBeGreaterThan(1);
    for (const { rows, length } of steps) expect(paddedTokens(rows, length)).toBeLessThanOrEqual(256);
  }
});

test("the least urgent rows are suspended, and continue before later requests", async () => {
  const { place, prefilled } = limitedPlace(192);
  const harness = await Harness.start({ prefixCacheBytes: 0 }, place);
  const ended: string[] = [];
  const run = (name: string, index: number, more: Partial<SamplingParams>) =>
    harness.run(promptOf(20, index), params(index, more)).then(() => ended.push(name));
  await Promise.all([
    run("first", 1, { maxTokens: 100 }),
    run("second", 2, { maxTokens: 100 }),
    run("urgent", 3, { maxTokens: 100, priority: -1n }),
    run("late", 4, { maxTokens: 100 }),
  ]);
  expect(ended).toEqual(["urgent", "first", "second", "late"]);
  // Three prompts of 20 tokens at first, then the rows that were suspended, with their sampled tokens.
  expect(prefilled.length).toBeGreaterThan(3);
  expect(prefilled.reduce((sum, tokens) => sum + tokens, 0)).toBeGreaterThan(4 * 32 + 96);
});

test("a row that alone exceeds the memory runs alone", async () => {
  const { place, steps } = limitedPlace(32);
  const harness = await Harness.start({}, place);
  const [first, second] = await Promise.all([1, 2].map((seed) => harness.run(promptOf(40, seed), params(seed))));
  const unlimited = await Harness.start();
  expect(numbers(first!)).toEqual(numbers(await unlimited.run(promptOf(40, 1), params(1))));
  expect(numbers(second!)).toEqual(numbers(await unlimited.run(promptOf(40, 2), params(2))));
  expect(steps.every(({ rows }) => rows === 1)).toBe(true);
});

test("a suspended request can be canceled, and its policy released", async () => {
  const { place } = limitedPlace(192);
  const harness = await Harness.start({}, place);
  const running = harness.add(promptOf(20, 1), params(1, { maxTokens: 120 }));
  const suspended = harness.add(promptOf(20, 2), params(2, { maxTokens: 120 }));
  harness.onToken = ({ request }) => {
    if (request === running.id && harness.tokens.get(running.id)!.length === 90) harness.sampler.cancel(suspended.id);
  };
  harness.sampler.releasePolicy("p");
  await running.done;
  const { length } = harness.tokens.get(suspended.id)!;
  expect(length).toBeGreaterThan(1);
  expect(length).toBeLessThan(90);
  await new Promise(setImmediate);
  expect(harness.tokens.get(suspended.id)).toHaveLength(length);
});

test("rows of the client with the most rows are suspended first, also rows with a high priority", async () => {
  const { place } = limitedPlace(128);
  const harness = await Harness.start({ prefixCacheBytes: 0 }, place);
  const gained: number[] = [];
  const many = Array.from({ length: 5 }, (_, index) =>
    harness.run(promptOf(20, index), params(index, { maxTokens: 60, priority: -1n }), "p", { client: "many", id: index }),
  );
  const one = harness.add(promptOf(20, 9), params(9, { maxTokens: 60 }), "p", { client: "one", id: 9 });
  harness.onToken = ({ request, token }) => {
    if (request === one.id && token.finish) gained.push(...[0, 1, 2, 3, 4].map((id) => harness.tokens.get(id)!.length));
  };
  await Promise.all([...many, one.done]);
  // The only row of its client is never suspended, so the requests of the other one have at most as many tokens at its end.
  expect(Math.min(...gained)).toBeLessThan(60);
  expect(gained.filter((count) => count === 60).length).toBeLessThanOrEqual(2);
});
