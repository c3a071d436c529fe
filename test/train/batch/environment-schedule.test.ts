import { fc, test } from "@fast-check/vitest";
import { expect, it } from "vitest";
import { EnvironmentSchedule } from "../../../src/training/train/batch/environment-schedule.ts";

it("assigns groups in proportion to the weights, in a fixed order", () => {
  const schedule = new EnvironmentSchedule([3, 1]);
  const assigned = Array.from({ length: 8 }, (_, n) => schedule.at(n));
  expect(assigned.map(({ environment }) => environment)).toEqual([0, 0, 1, 0, 0, 0, 1, 0]);
  expect(assigned.map(({ index }) => index)).toEqual([0, 1, 0, 2, 3, 4, 1, 5]);
});

test.prop([fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 5 }), fc.nat(200)])(
  "gives each environment its share up to one group per environment, and numbers its groups without gaps",
  (weights, count) => {
    const schedule = new EnvironmentSchedule(weights);
    // Out of order: a resumed run asks for the groups of a later step first.
    const last = schedule.at(count);
    const assigned = Array.from({ length: count + 1 }, (_, n) => schedule.at(n));
    expect(assigned.at(-1)).toEqual(last);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    for (const [environment, weight] of weights.entries()) {
      const own = assigned.filter((each) => each.environment === environment);
      expect(own.map(({ index }) => index)).toEqual(own.map((_, index) => index));
      expect(Math.abs(own.length - (weight / sum) * (count + 1))).toBeLessThan(weights.length === 1 ? 1e-9 : weights.length - 1);
    }
  },
);
