import { expect, test } from "vitest";
import { runSteps, runStepsInSlices, type Steps } from "../../src/base/util/steps.ts";

function* sum(values: readonly number[], onStep: (value: number) => void = () => undefined): Steps<number> {
  let total = 0;
  for (const value of values) {
    onStep(value);
    total += value;
    yield;
  }
  return total;
}

test("runs steps at once and in slices with the same result", async () => {
  expect(runSteps(sum([1, 2, 3]))).toBe(6);
  expect(await runStepsInSlices(sum([1, 2, 3]))).toBe(6);
});

test("yields to the event loop between slices only", async () => {
  const order: string[] = [];
  setImmediate(() => order.push("other"));
  await runStepsInSlices(
    sum([1, 2, 3], (value) => order.push(`step ${value}`)),
    { sliceMs: 0 },
  );
  expect(order).toEqual(["step 1", "other", "step 2", "step 3"]);
});

test("rejects with the signal's reason between two slices if aborted", async () => {
  const controller = new AbortController();
  const reason = new Error("enough");
  const seen: number[] = [];
  const work = runStepsInSlices(
    sum([1, 2, 3], (value) => {
      seen.push(value);
      if (value === 2) controller.abort(reason);
    }),
    { sliceMs: 0, signal: controller.signal },
  );
  await expect(work).rejects.toBe(reason);
  expect(seen).toEqual([1, 2]);
});

test("passes on the error of a step", async () => {
  const fail = (): never => {
    throw new RangeError("no");
  };
  await expect(runStepsInSlices(sum([1], fail))).rejects.toThrow(RangeError);
  expect(() => runSteps(sum([1], fail))).toThrow(RangeError);
});
