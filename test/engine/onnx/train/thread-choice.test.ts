import { describe, expect, test } from "vitest";
import { ThreadChoice, threadCandidates } from "../../../../src/engine/onnx/train/thread-choice.ts";

/** Runs a choice on a machine where each count takes so many milliseconds for 1000 tokens; the counts it was computed with. */
function decide(choice: ThreadChoice, ms: Readonly<Record<number, number>>, runs = 100): number[] {
  const order: number[] = [];
  for (let run = 0; run < runs && !choice.isSettled; run++) {
    const threads = choice.current;
    const hasCompiled = !order.includes(threads);
    order.push(threads);
    choice.record({ tokens: 1000, ms: ms[threads]! * (hasCompiled ? 5 : 1), hasCompiled });
  }
  return order;
}

describe("candidates", () => {
  test.each([
    [1, [1]],
    [2, [1, 2]],
    [3, [1, 2, 3]],
    [4, [1, 2, 4]],
    [64, [1, 2, 4]],
  ])("of %d processors", (processors, expected) => expect(threadCandidates(processors)).toEqual(expected));
});

describe("a choice of threads", () => {
  test("of one candidate is settled and ignores measurements", () => {
    const choice = new ThreadChoice([3]);
    expect([choice.isSettled, choice.current, choice.best]).toEqual([true, 3, 3]);
    choice.record({ tokens: 1000, ms: 1, hasCompiled: false });
    expect(choice.report).toEqual({ threads: 3, rates: [] });
  });

  test("selects the fastest count and reports the rates, without runs that compiled a program", () => {
    const choice = new ThreadChoice([1, 2, 4]);
    expect(decide(choice, { 1: 400, 2: 200, 4: 500 })).toEqual([4, 4, 4, 2, 2, 2, 1, 1, 1]);
    expect([choice.current, choice.best, choice.isSettled]).toEqual([2, 2, true]);
    expect(choice.report).toEqual({
      threads: 2,
      rates: [
        { threads: 1, tokensPerSecond: 2500 },
        { threads: 2, tokensPerSecond: 5000 },
        { threads: 4, tokensPerSecond: 2000 },
      ],
    });
  });

  test("stops at the first slower count and does not try fewer threads", () => {
    const choice = new ThreadChoice([1, 2, 4]);
    expect(new Set(decide(choice, { 2: 400, 4: 200 }))).toEqual(new Set([4, 2]));
    expect(choice.report.rates.map(({ threads }) => threads)).toEqual([2, 4]);
    expect(choice.current).toBe(4);
  });

  test("selects fewer threads if about as fast, compared with the fastest count", () => {
    const choice = new ThreadChoice([1, 2, 4]);
    decide(choice, { 1: 206, 2: 203, 4: 200 });
    expect(choice.current).toBe(1);
    const sliding = new ThreadChoice([1, 2, 4]);
    decide(sliding, { 1: 212, 2: 205, 4: 200 });
    expect(sliding.current).toBe(2);
  });

  test("compares tokens per second, not time per run", () => {
    const choice = new ThreadChoice([1, 2]);
    for (const [tokens, ms] of [
      [3000, 300],
      [1000, 100],
      [100, 20],
      [4000, 800],
    ] as const)
      choice.record({ tokens, ms, hasCompiled: false });
    expect(choice.report).toMatchObject({ threads: 2, rates: [{ tokensPerSecond: 5000 }, { tokensPerSecond: 10_000 }] });
  });

  test("measures more runs if they are short, up to a maximum", () => {
    const choice = new ThreadChoice([1, 2]);
    expect(decide(choice, { 1: 1, 2: 2 })).toHaveLength(2 * 7);
    expect(choice.current).toBe(1);
  });

  test("skips a candidate if each of its runs compiles a program", () => {
    const choice = new ThreadChoice([1, 2]);
    for (let run = 0; run < 20; run++) choice.record({ tokens: 1000, ms: 1, hasCompiled: true });
    expect([choice.isSettled, choice.current, choice.report.rates]).toEqual([true, 2, []]);
  });

  test("stops at its time limit with the fastest count so far, or the largest if none was measured", () => {
    const slow = new ThreadChoice([1, 2, 4]);
    expect(decide(slow, { 4: 20_000 })).toEqual([4]);
    expect([slow.isSettled, slow.current]).toEqual([true, 4]);
    const half = new ThreadChoice([1, 2, 4]);
    expect(decide(half, { 2: 2000, 4: 2500 })).not.toContain(1);
    expect([half.isSettled, half.current]).toEqual([true, 2]);
  });
});
