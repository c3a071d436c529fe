import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { policyObjective, type PolicyObjective } from "../../src/learner/index.ts";

/** Losses and gradients computed by PyTorch; see `policy-loss.py`. */
interface Expected {
  readonly lengths: readonly number[];
  readonly new: readonly number[];
  readonly old: readonly (number | null)[];
  readonly reference: readonly number[];
  readonly advantages: readonly number[];
  readonly weights: readonly number[];
  readonly cases: readonly {
    readonly objective: PolicyObjective;
    readonly loss: number;
    readonly kl: number | null;
    readonly derivatives: readonly number[];
  }[];
}
const expected = JSON.parse(gunzipSync(readFileSync(join(import.meta.dirname, "policy-loss.json.gz"))).toString()) as Expected;

function perRow<T>(values: readonly T[]): T[][] {
  let start = 0;
  return expected.lengths.map((length) => values.slice(start, (start += length)));
}

/** Returns the rows, each after a token that is not trained. */
function rows() {
  const column = (values: readonly number[]) => perRow(values).map((row) => [0, ...row]);
  const [weights, advantages, fresh, reference] = [expected.weights, expected.advantages, expected.new, expected.reference].map(column);
  const old = column(expected.old.map((value) => value ?? Number.NaN));
  return expected.lengths.map((_, i) => ({
    weights: weights![i]!,
    advantages: advantages![i]!,
    newLogprobs: fresh![i]!,
    sampledLogprobs: old[i]!,
    referenceLogprobs: reference![i]!,
  }));
}

describe("policy losses in PyTorch", () => {
  test("the settings are covered: alone, and together in at least 200 ways", () => {
    expect(expected.cases.length).toBeGreaterThanOrEqual(200);
    for (const level of ["token", "sequence", "average", "geometric_average"]) {
      for (const kind of ["cispo", "ppo"]) {
        expect(expected.cases.some(({ objective }) => objective.level === level && objective.kind === kind)).toBe(true);
      }
    }
  });

  test.each(expected.cases.map((item, index) => [index, JSON.stringify(item.objective), item] as const))(
    "case %i: %s",
    (_index, _name, { objective, loss, kl, derivatives }) => {
      const result = policyObjective(rows(), objective);
      expect(Math.abs(result.loss - loss)).toBeLessThanOrEqual(1e-12 * Math.max(1, Math.abs(loss)));
      if (kl === null) expect(result.kl).toBeNull();
      else expect(result.kl).toBeCloseTo(kl, 12);
      const ours = result.derivatives.map((row) => [...row.slice(1)]).flat();
      expect(result.derivatives.every((row) => row[0] === 0)).toBe(true);
      const scale = Math.max(...derivatives.map(Math.abs));
      ours.forEach((value, t) => expect(Math.abs(value - derivatives[t]!)).toBeLessThanOrEqual(1e-12 * scale));
    },
  );
});
