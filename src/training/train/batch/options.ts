/** Options of `trainRl` that select its training data, and their validation. */
import type { AnyEnvironment, Environment } from "../../../library/environment/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
import { refuse } from "../../../base/util/values.ts";

/** Environment of a run on several environments, with its share of the groups. */
export interface WeightedEnvironment {
  /** Environment with scenarios of any type. Names must be unique within a run. */
  readonly environment: AnyEnvironment;
  /** Share of the sampled groups, relative to the sum of all weights; finite and above 0. @default 1 */
  readonly weight?: number | undefined;
}

/** Sampling of further groups in a step, for groups that the filters discard. */
export interface RefillOptions {
  /** Max groups that a step samples, including discarded groups; at least `scenariosPerStep`. */
  readonly maxGroups: number;
}

/** Conditions under which groups and trajectories of a step are not trained. All are functions of the stored groups. */
export interface FilterOptions {
  /**
   * Whether groups with equal rewards, or with fewer than two trajectories, are discarded: their advantages are 0.
   *
   * @default true with `refill`, else false
   */
  readonly constant?: boolean | undefined;
  /** Min sampled tokens of a trajectory over all its turns, at least 0; a shorter trajectory is removed from its group. @default 0 */
  readonly minCompletionTokens?: number | undefined;
  /** Max sampled tokens of a trajectory over all its turns; a longer trajectory is removed from its group. @default no limit */
  readonly maxCompletionTokens?: number | undefined;
  /**
   * Max age of a group in steps: the number of earlier steps that were not yet trained when its rollouts started. Groups older than
   * `maxStepsOffPolicy` are left out in any case, but only when the step is trained, so that no group replaces them.
   *
   * @default no limit
   */
  readonly maxAge?: number | undefined;
}

/**
 * Sampling of scenarios by running pass rate. With pass rate `p` of a scenario's key and `t` = `target`, the sampling weight of a scenario
 * is
 *
 * ```
 * (p / t)^(2t) · ((1 − p) / (1 − t))^(2(1 − t)) + floor
 * ```
 *
 * which is `4p(1 − p) + floor` for the default target. `p` is the weighted mean of the pass rates of the key's groups of earlier steps and
 * of `target` with weight 0.25; the weight of a group is `decay^(n)` after `n` further steps. A key without groups has `p` = `target`.
 */
export interface CurriculumOptions<S> {
  /**
   * Number of scenarios to sample from if the environment's `train` is a function: the scenarios with indices 0 to `pool` − 1. Required for
   * a function. For a list, the curriculum samples from the whole list.
   */
  readonly pool?: number | undefined;
  /**
   * Returns the key of a scenario; scenarios with equal keys share a pass rate.
   *
   * @default the scenario's id, see `scenarioIdOf`
   */
  readonly key?: ((scenario: S, environment: string) => string) | undefined;
  /**
   * Name of the trajectory metric whose mean over a group is the pass rate of the group, clipped to [0, 1].
   *
   * @default the reward divided by the environment's maximum reward, the sum of its positive weights
   */
  readonly metric?: string | undefined;
  /** Pass rate with the maximum weight, in (0, 1). @default 0.5 */
  readonly target?: number | undefined;
  /** Weight added to every scenario, above 0, so that solved and unsolved scenarios are sampled again. @default 0.05 */
  readonly floor?: number | undefined;
  /** Factor per step by which the weight of an older group decreases, in (0, 1]. @default 0.95 */
  readonly decay?: number | undefined;
}

/** Options of `trainRl` that select its training data. */
export interface BatchOptions<S> {
  /**
   * Task to train on, or a list of tasks with weights. With several environments, every group has the metadata `environment`, rows of
   * metrics have `env/<name>/…`, and each environment has its own order of scenarios. Groups are assigned to environments in a fixed order
   * in which each environment has its share at all times. Jobs normalize advantages per environment (`advantageScope: "environment"`)
   * unless `train` sets another scope or `lossReduction: "constant"`.
   */
  readonly environment: Environment<S> | readonly WeightedEnvironment[];
  /**
   * Samples further groups until the step has `scenariosPerStep` groups that the filters keep, or `maxGroups` groups were sampled. Each
   * round samples exactly the missing number and waits for all of them, so that the batch does not depend on timing. If fewer groups
   * are kept, but at least one, the step trains on them. @default one round of `scenariosPerStep` groups
   */
  readonly refill?: RefillOptions | undefined;
  /** Groups and trajectories to leave out. @default none; constant groups with `refill` */
  readonly filters?: FilterOptions | undefined;
  /** Samples scenarios by pass rate instead of in order. @default in order */
  readonly curriculum?: CurriculumOptions<S> | undefined;
  /**
   * Max new attempts, with other seeds, for a rollout that failed after its retries; see `GatherOptions.replacements` of
   * `whetstone/rollout`. @default 0
   */
  readonly replacements?: number | undefined;
  /**
   * Whether a training rollout that times out is scored instead of failing. Its trajectory ends with the last completed turn and has the
   * metric `timed_out` 1; other trajectories have 0. See `environmentRollout`. @default false
   */
  readonly scoreTimeouts?: boolean | undefined;
}

/** Returns the environments of a run with their weights. */
export function weightedEnvironments<S>(
  environment: BatchOptions<S>["environment"],
): readonly { readonly environment: Environment<unknown>; readonly weight: number }[] {
  const list: readonly WeightedEnvironment[] = isList(environment) ? environment : [{ environment }];
  // An environment receives only its own scenarios, so that the type of a scenario does not matter to the run.
  return list.map(({ environment: each, weight = 1 }) => ({ environment: each as Environment<unknown>, weight }));
}

/** Whether a run has a list of environments; `Array.isArray` alone does not narrow a read-only list. */
function isList<S>(environment: BatchOptions<S>["environment"]): environment is readonly WeightedEnvironment[] {
  return Array.isArray(environment);
}

/** Options that {@link checkBatchOptions} checks, with the options of the run that limit their values. */
type CheckedOptions<S> = BatchOptions<S> & { readonly scenariosPerStep?: number | undefined; readonly timeoutMs?: number | undefined };

/**
 * Checks the options that select training data.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value outside its bounds.
 */
export function checkBatchOptions<S>(options: CheckedOptions<S>): void {
  const { refill, scenariosPerStep = 16, scoreTimeouts, timeoutMs } = options;
  checkEnvironments(options.environment);
  if (refill !== undefined && !isInteger(refill.maxGroups, scenariosPerStep)) {
    refuse("refill.maxGroups", `an integer of at least \`scenariosPerStep\` (${scenariosPerStep})`, refill.maxGroups);
  }
  checkFilters(options.filters);
  if (options.curriculum !== undefined) checkCurriculum(options.curriculum, options.environment);
  if (scoreTimeouts === true && timeoutMs === undefined) {
    throw new ArgumentError("`scoreTimeouts` has an effect only with a timeout; pass `timeoutMs` too", { param: "scoreTimeouts" });
  }
}

/** @throws ArgumentError `E_ARGUMENT` without an environment, for an invalid weight, or for a repeated name. */
function checkEnvironments<S>(environment: BatchOptions<S>["environment"]): void {
  const list = weightedEnvironments(environment);
  if (list.length === 0) refuse("environment", "an environment, or a list of at least one", "an empty list");
  const names = new Set<string>();
  for (const [index, each] of list.entries()) {
    const name = (each.environment as Partial<Environment<unknown>> | undefined)?.name;
    if (typeof name !== "string")
      refuse(`environment[${index}].environment`, "an environment, as `defineEnvironment` returns it", typeof each.environment);
    if (!(each.weight > 0 && each.weight < Infinity)) refuse(`environment[${index}].weight`, "a finite number above 0", each.weight);
    if (names.has(name)) refuse("environment", "environments with different names", `${name} twice`);
    names.add(name);
  }
}

/** @throws ArgumentError `E_ARGUMENT` for a number out of range. */
function checkFilters(filters: FilterOptions = {}): void {
  const { minCompletionTokens = 0, maxCompletionTokens = Number.MAX_SAFE_INTEGER, maxAge = 0 } = filters;
  if (!isInteger(minCompletionTokens, 0)) refuse("filters.minCompletionTokens", "an integer of at least 0", minCompletionTokens);
  if (!isInteger(maxCompletionTokens, Math.max(1, minCompletionTokens))) {
    refuse("filters.maxCompletionTokens", "an integer of at least 1 and of at least `minCompletionTokens`", maxCompletionTokens);
  }
  if (!isInteger(maxAge, 0)) refuse("filters.maxAge", "an integer of at least 0", maxAge);
}

/** @throws ArgumentError `E_ARGUMENT` for a number out of range, and a `pool` that is missing or has no effect. */
function checkCurriculum<S>(curriculum: CurriculumOptions<S>, environment: BatchOptions<S>["environment"]): void {
  const { pool, target = 0.5, floor = 0.05, decay = 1 } = curriculum;
  const hasFunction = weightedEnvironments(environment).some((each) => typeof each.environment.scenarios.train === "function");
  if (hasFunction && !isInteger(pool, 1)) {
    refuse("curriculum.pool", "an integer of at least 1, because `scenarios.train` is a function", pool);
  }
  if (!hasFunction && pool !== undefined) refuse("curriculum.pool", "absent, because `scenarios.train` is a list", pool);
  if (!(target > 0 && target < 1)) refuse("curriculum.target", "above 0 and below 1", target);
  if (!(floor > 0 && floor < Infinity)) refuse("curriculum.floor", "a finite number above 0", floor);
  if (!(decay > 0 && decay <= 1)) refuse("curriculum.decay", "above 0 and at most 1", decay);
}

/** Whether a value is an integer of at least `min`. */
function isInteger(value: unknown, min: number): boolean {
  return Number.isSafeInteger(value) && (value as number) >= min;
}
