/**
 * Runs every recipe as in its README and expects results slightly below the measured ones: `npm run test:recipes`. Minutes each; output goes
 * to the terminal's standard error only when it fails.
 */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runRecipe } from "../run-recipe.ts";

const HOUR_MS = 3_600_000;

describe.sequential("complete recipe runs", () => {
  test.each([
    { name: "arithmetic", exact: 0.65, gain: 0.15 },
    { name: "guess-number", exact: 0.7, gain: 0.2 },
    { name: "tool-lookup", exact: 0.9, gain: 0.3 },
  ])(
    "$name reaches $exact, and RL adds at least $gain",
    async ({ name, exact, gain }) => {
      const { result } = await runRecipe(name, [], { timeoutMs: HOUR_MS });
      expect(result.exact.rl).toBeGreaterThanOrEqual(exact);
      expect(result.exact.rl - result.exact.sft).toBeGreaterThanOrEqual(gain);
      expect(result.reward.rl).toBeGreaterThan(result.reward.sft);
    },
    HOUR_MS,
  );

  test(
    "relative-judge reaches 0.7 with the judge, and its control does not improve",
    async () => {
      const { result } = await runRecipe("relative-judge", [], { timeoutMs: HOUR_MS });
      expect(result.exact.rl).toBeGreaterThanOrEqual(0.7);
      const control = await runRecipe("relative-judge", ["--shuffle-scores"], { timeoutMs: HOUR_MS });
      expect(control.result.exact.base).toBe(result.exact.base);
      expect(control.result.exact.rl).toBeLessThanOrEqual(control.result.exact.base);
    },
    HOUR_MS,
  );

  const directory = process.env["WHETSTONE_REAL_MODEL"];
  test.skipIf(directory === undefined)(
    "instructions gains 0.3 on a real model, intervals apart, and RL on shuffled rewards adds nothing",
    async () => {
      const args = ["--base", join(directory!, "hf")];
      const { result } = await runRecipe("instructions", args, { timeoutMs: HOUR_MS });
      expect(result.exact.rl - result.exact.base).toBeGreaterThanOrEqual(0.3);
      expect(result.exactInterval.rl.low).toBeGreaterThan(result.exactInterval.base.high);
      const control = await runRecipe("instructions", [...args, "--shuffle-rewards"], { timeoutMs: HOUR_MS });
      expect(control.result.exact.sft).toBe(result.exact.sft);
      expect(control.result.exact.rl).toBeLessThanOrEqual(control.result.exactInterval.sft.high);
    },
    2 * HOUR_MS,
  );
});
