/** Prompts with cached prefixes that are continued together: every bit is the same as alone. */
import { afterEach, expect, test, vi } from "vitest";
import { Forward, type ForwardKind } from "../../../../src/engine/onnx/sample/forward.ts";
import { PrefillLimiter } from "../../../../src/engine/onnx/sample/prefill-limiter.ts";
import { Harness, numbers, params } from "./harness.ts";

afterEach(() => vi.restoreAllMocks());

const PROMPTS = 5;
/** Returns a prompt that differs from other prompts from token 40 on. */
const promptOf = (index: number) => Int32Array.from({ length: 60 }, (_, t) => (t < 40 ? (t * 7) % 90 : (t * 11 + 13 * index) % 90));

/** Samples after all prompts, the first of them before the others; returns the tokens and the prefill runs with their number of prompts. */
async function sample(threads: number) {
  const runs: [ForwardKind, number][] = [];
  const { run } = Forward.prototype;
  vi.spyOn(Forward.prototype, "run").mockImplementation(function (this: Forward<never>, input) {
    if (input.kind !== "decode") runs.push([input.kind, input.pasts.length]);
    return run.call(this, input);
  });
  vi.spyOn(PrefillLimiter.prototype, "promptTokensIn").mockReturnValue(1000);
  const harness = await Harness.start({ threads });
  const results = [await harness.run(promptOf(0), params(0))];
  const others = Array.from({ length: PROMPTS - 1 }, (_, index) => harness.run(promptOf(index + 1), params(index + 1)));
  results.push(...(await Promise.all(others)));
  vi.restoreAllMocks();
  return { results: results.map(numbers), runs };
}

test.each([1, 2])("prompts that begin with the same cached blocks run together, with %i threads", async (threads) => {
  const { results, runs } = await sample(threads);
  expect(runs).toEqual([
    ["prompt", 1],
    ["continuation", PROMPTS - 1],
  ]);
  for (let index = 0; index < PROMPTS; index++) {
    const alone = await Harness.start({ prefixCacheBytes: 0 });
    expect(numbers(await alone.run(promptOf(index), params(index)))).toEqual(results[index]);
  }
});
