import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { learningRate, type RateSchedule } from "../../src/learner/index.ts";

const vectors = (
  JSON.parse(readFileSync(new URL("fixtures/rl-vectors.json", import.meta.url), "utf8")) as { lr_schedule: Record<string, number[]> }
).lr_schedule;

/** `linear_total10_warm2_peak1e-4_min0` → its parts; missing parts are 0, a missing peak is 1. */
function scheduleOf(name: string): RateSchedule & { readonly total: number } {
  const [kind, ...parts] = name.split("_");
  const values = new Map(parts.map((part) => /^([a-z]+)(.*)$/.exec(part)?.slice(1) as [string, string]));
  const number = (key: string, otherwise: number) => Number(values.get(key) ?? otherwise);
  return {
    kind: kind as RateSchedule["kind"],
    total: number("total", 1),
    warmupSteps: number("warm", 0),
    peak: number("peak", 1),
    minimum: number("min", 0),
  };
}

const ratesOf = (total: number, schedule: RateSchedule) => Array.from({ length: total }, (_, step) => learningRate(step, total, schedule));

it.each(Object.entries(vectors))("%s has the rates of the reference client", (name, expected) => {
  const { total, ...schedule } = scheduleOf(name);
  const rates = ratesOf(total, schedule);
  expect(rates).toHaveLength(expected.length);
  rates.forEach((rate, step) => expect(Math.abs(rate - expected[step]!)).toBeLessThanOrEqual(1e-12 * Math.abs(schedule.peak)));
});

it("warms up over all steps if there are fewer than the warm-up steps", () => {
  expect(ratesOf(2, { kind: "cosine", peak: 1, minimum: 0, warmupSteps: 4 })).toEqual([0.25, 0.5]);
  expect(ratesOf(3, { kind: "linear", peak: 1, minimum: 0, warmupSteps: 2 })).toEqual([0.5, 1, 1]);
});
