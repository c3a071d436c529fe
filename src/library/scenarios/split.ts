/** Split of scenarios into a training and an evaluation set. */
import { refuse } from "../../base/util/values.ts";
import { hashFraction } from "../dataset/keys.ts";
import type { ToolScenario } from "./scenario.ts";

/** Options of {@link splitScenarios}. */
export interface SplitScenariosOptions {
  /** Expected fraction of scenarios in the evaluation set, in (0, 1). */
  readonly eval: number;
  /** Random seed, an integer. @default 0 */
  readonly seed?: number | undefined;
}

/** Training and evaluation set without a common scenario. */
export interface ScenarioSplit<S> {
  /** Scenarios outside the evaluation set, in order. */
  readonly train: S[];
  /** Scenarios of the evaluation set, in order. */
  readonly eval: S[];
}

/**
 * Splits scenarios by a hash of their id and the seed. The assignment of a scenario depends neither on the order nor on other scenarios, so
 * that a scenario stays in its set when scenarios are added. The sizes vary around the fraction: a small list may have an empty set.
 *
 * @param scenarios - Scenarios with ids.
 * @param options - Fraction of the evaluation set, and seed.
 * @returns The two sets; the objects of the list, not copies.
 * @throws ArgumentError `E_ARGUMENT` for a fraction outside (0, 1), or a seed that is not an integer.
 * @example
 * ```ts
 * import { readScenarios } from "whetstone/scenarios";
 *
 * const { train, eval: held } = splitScenarios(await readScenarios("scenarios.jsonl"), { eval: 0.2, seed: 7 });
 * ```
 */
export function splitScenarios<S extends Pick<ToolScenario, "id">>(
  scenarios: Iterable<S>,
  { eval: fraction, seed = 0 }: SplitScenariosOptions,
): ScenarioSplit<S> {
  if (typeof fraction !== "number" || !(fraction > 0 && fraction < 1)) refuse("eval", "a fraction between 0 and 1", fraction);
  if (!Number.isSafeInteger(seed)) refuse("seed", "an integer", seed);
  const split: ScenarioSplit<S> = { train: [], eval: [] };
  for (const scenario of scenarios) {
    const isHeldOut = hashFraction("scenarios", String(seed), scenario.id) < fraction;
    if (isHeldOut) split.eval.push(scenario);
    else split.train.push(scenario);
  }
  return split;
}
