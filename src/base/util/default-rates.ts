/** Default learning rates by size of the model and kind of training. */

/**
 * Default rates for base models of at most `maxParameters` parameters: `all` to train all weights, `adapter` to train a LoRA adapter.
 * docs/explanation/training.md has the sources.
 */
const RATES = [
  { maxParameters: 16e6, all: { rl: 3e-4, sft: 1e-3, preference: 1e-5 }, adapter: { rl: 3e-3, sft: 1e-3, preference: 3e-5 } },
  { maxParameters: 1e9, all: { rl: 5e-5, sft: 1e-4, preference: 5e-6 }, adapter: { rl: 5e-4, sft: 1e-3, preference: 3e-5 } },
  {
    maxParameters: Number.POSITIVE_INFINITY,
    all: { rl: 5e-6, sft: 5e-5, preference: 1e-6 },
    adapter: { rl: 5e-5, sft: 5e-4, preference: 1e-5 },
  },
] as const;

/** Returns the default rate of a model; an unknown number of parameters (NaN) counts as large. */
export function defaultRate(parameters: number, kind: "rl" | "sft" | "preference", isAdapter: boolean): number {
  // NaN is not at most any number, and gets the last row.
  const row = RATES.find(({ maxParameters }) => parameters <= maxParameters) ?? RATES[2];
  return row[isAdapter ? "adapter" : "all"][kind];
}
