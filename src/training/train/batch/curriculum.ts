/** Curriculum of a run: running pass rates of the scenarios, the sampling weights that follow from them, and the weighted draws. */
import { highestReward } from "../../../library/environment/highest-reward.ts";
import { scenarioIdOf, type Environment } from "../../../library/environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import type { TrajectoryGroup } from "../../../base/trajectory/index.ts";
import { uniform } from "../../../base/util/rng.ts";
import type { PassRatesOfStep } from "../../../run/resume-state.ts";
import type { CurriculumOptions } from "./options.ts";

/** RNG domain of the draws of a curriculum; other draws with the same seed use other domains. */
const DRAW_DOMAIN = 0x3c1d07a5;
/**
 * Weight of the prior `target` in a running pass rate; the newest group has weight 1. A group has several rollouts, and therefore outweighs
 * the prior.
 */
const PRIOR_WEIGHT = 0.25;

/** Running pass rate of each key of one environment. */
export type PassRateTable = ReadonlyMap<string, number>;

/**
 * Computes the running pass rates before a step, from the groups of the earlier steps:
 *
 * ```
 * p = (Σ decay^(step − 1 − s) · rate + 0.25 · target) / (Σ decay^(step − 1 − s) + 0.25)
 * ```
 *
 * over the groups of the key, with `s` the step of a group. A key without groups is absent; its pass rate is `target`.
 *
 * @param steps - Pass rates of the groups by step.
 * @param targetStep - Step whose pass rates are computed; itself and later steps are left out of `steps`.
 * @param environment - Name of the environment in a run on several; undefined in a run on one.
 */
export function passRateTable(
  steps: Iterable<PassRatesOfStep>,
  targetStep: number,
  { decay = 0.95, target = 0.5 }: Pick<CurriculumOptions<never>, "decay" | "target">,
  environment?: string,
): PassRateTable {
  /** Weighted sum of the pass rates, and sum of the weights, by key. */
  const sums = new Map<string, { rates: number; weights: number }>();
  for (const { step, passRates } of steps) {
    if (step >= targetStep) continue;
    const weight = decay ** (targetStep - 1 - step);
    for (const each of passRates) {
      if (each.environment !== environment) continue;
      const { rates, weights } = sums.get(each.key) ?? { rates: 0, weights: 0 };
      sums.set(each.key, { rates: rates + weight * each.rate, weights: weights + weight });
    }
  }
  const meanOf = ({ rates, weights }: { rates: number; weights: number }) => (rates + PRIOR_WEIGHT * target) / (weights + PRIOR_WEIGHT);
  return new Map([...sums].map(([key, sum]) => [key, meanOf(sum)]));
}

/** Returns the sampling weight of a scenario with pass rate `rate`; `1 + floor` at the target, `floor` at 0 and 1. */
export function samplingWeight(rate: number, { target = 0.5, floor = 0.05 }: Pick<CurriculumOptions<never>, "target" | "floor">): number {
  const solved = (rate / target) ** (2 * target);
  const unsolved = ((1 - rate) / (1 - target)) ** (2 * (1 - target));
  return solved * unsolved + floor;
}

/** Seed and environment of a sequence of draws: together with the number of a draw, they determine its random number. */
export interface DrawCoordinates {
  /** Seed of the run. */
  readonly seed: number;
  /** Position of the environment in the run's list. */
  readonly environment: number;
}

/**
 * Draws positions of scenarios within one step, in proportion to their weights and without replacement. After every position was drawn
 * once, all can be drawn again.
 */
export class WeightedDraws {
  readonly #weights: readonly number[];
  readonly #coordinates: DrawCoordinates;
  /** Positions drawn since all could last be drawn. */
  readonly #drawn = new Set<number>();

  /** @param weights - One weight per position, above 0. */
  constructor(weights: readonly number[], coordinates: DrawCoordinates) {
    this.#weights = weights;
    this.#coordinates = coordinates;
  }

  /** Returns the position drawn as number `index` of the environment's draws, counted over the whole run. */
  draw(index: number): number {
    const { seed, environment } = this.#coordinates;
    if (this.#drawn.size === this.#weights.length) this.#drawn.clear();
    const remainingWeights = this.#weights.map((weight, position) => (this.#drawn.has(position) ? 0 : weight));
    const total = remainingWeights.reduce((sum, weight) => sum + weight, 0);
    /** Distance of the random point to the end of the weights considered so far. */
    let distance = uniform(BigInt(seed), index >>> 0, Math.floor(index / 2 ** 32), environment, DRAW_DOMAIN) * total;
    // Rounding can put the point after the last weight: the last position that is not drawn yet is then chosen.
    let chosen = 0;
    for (const [position, weight] of remainingWeights.entries()) {
      if (weight === 0) continue;
      chosen = position;
      distance -= weight;
      if (distance < 0) break;
    }
    this.#drawn.add(chosen);
    return chosen;
  }
}

/** Returns the key of a scenario. @throws ConfigError `E_CONFIG` if the option `key` does not return a text. */
export function scenarioKey<S>({ key }: CurriculumOptions<S>, environment: Environment<S>, scenario: S): string {
  if (key === undefined) return scenarioIdOf(environment, scenario);
  const value: unknown = key(scenario, environment.name);
  if (typeof value === "string") return value;
  const got = `\`${String(value)}\` for a scenario of \`${environment.name}\``;
  throw new ConfigError(`Expected \`curriculum.key\` to return a text, got ${got}`, { param: "curriculum.key" });
}

/**
 * Returns the pass rate of a group: the mean of the metric, or of the reward relative to the environment's maximum reward, clipped to
 * [0, 1]. Null for a group without trajectories.
 *
 * @throws ConfigError `E_CONFIG` if no trajectory of the group has the metric.
 */
export function groupPassRate<S>(group: TrajectoryGroup, environment: Environment<S>, metric: string | undefined): number | null {
  if (group.trajectories.length === 0) return null;
  const relativeRewards = () => group.rewards.map((reward) => reward / highestReward(environment));
  const metricValues = (name: string) =>
    group.trajectories.flatMap(({ metrics }) => (metrics[name] === undefined ? [] : Number(metrics[name])));
  const values = metric === undefined ? relativeRewards() : metricValues(metric);
  if (values.length === 0) {
    const known = Object.keys(group.trajectories[0]?.metrics ?? {});
    throw new ConfigError(
      `Expected the trajectories of environment \`${environment.name}\` to have the metric \`${metric}\` (\`curriculum.metric\`), got ${known.join(", ")}`,
      { param: "curriculum.metric" },
    );
  }
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.min(1, Math.max(0, mean));
}
