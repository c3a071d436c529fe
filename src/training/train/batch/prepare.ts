/** Preparation of a step: samples groups until enough of them pass the filters. */
import type { TrajectoryGroup } from "../../../base/trajectory/index.ts";
import type { PrepareContext } from "../loop.ts";
import type { TrainRlOptions } from "../options.ts";
import { playGroups, type PlayOptions } from "../rollouts.ts";
import type { RunDirectory } from "../../../run/run-directory.ts";
import { selectGroups, type TrainedGroups } from "./filters.ts";
import { weightedEnvironments } from "./options.ts";
import type { ScenarioSampler } from "./sampler.ts";

/** Sampled groups of a step, the groups that are trained, and the duration of the rollouts. */
export interface PreparedBatch extends TrainedGroups {
  /** All sampled groups, in order of scenario index. */
  readonly sampled: readonly TrajectoryGroup[];
  /** Duration of the preparation in seconds. */
  readonly seconds: number;
}

/** Run of which {@link prepareBatch} prepares a step. */
export interface BatchSource<S> {
  readonly directory: RunDirectory;
  readonly options: TrainRlOptions<S>;
  readonly sampler: ScenarioSampler;
}

/**
 * Samples the groups of a step, in rounds until enough are kept, and records `batch-end`. Groups that are on disk are not sampled again.
 *
 * The groups of a step are a function of the run's settings, its checkpoints, and the recorded batches of earlier steps: a resumed
 * preparation repeats the same rounds.
 *
 * @returns Null if `stopSignal` ended the preparation.
 */
export async function prepareBatch<S>(source: BatchSource<S>, step: number, context: PrepareContext): Promise<PreparedBatch | null> {
  const { directory, options, sampler } = source;
  const { scenariosPerStep = 16, refill } = options;
  const { policyVersion, checkpointStep } = context;
  const filters = { ...options.filters, constant: options.filters?.constant ?? refill !== undefined };
  const startedMs = performance.now();
  await directory.record({ type: "step-start", step, policyVersion, checkpointStep });
  const { prepared } = directory.state;
  const earlierSteps = [...prepared.values()].filter((each) => each.step < step);
  const scenarios = sampler.step(step, earlierSteps);
  const firstIndex = firstScenarioIndex(prepared, step, scenariosPerStep);
  // A step that was prepared before samples as many groups as it recorded: later steps may already use the following scenario indices.
  const maxGroups = prepared.get(step)?.sampled ?? refill?.maxGroups ?? scenariosPerStep;
  let sampled: readonly TrajectoryGroup[] = [];
  let selection = selectGroups([], {}, step);
  for (;;) {
    const count = Math.min(scenariosPerStep - selection.kept.length, maxGroups - scenarios.taken.size);
    if (count <= 0) break;
    scenarios.take(firstIndex + scenarios.taken.size, count);
    sampled = await playScenarios(source, step, scenarios.taken, context);
    // Only `stopSignal` leaves scenarios without a group.
    if (sampled.length < scenarios.taken.size) return null;
    selection = selectGroups(sampled, filters, step);
  }
  if (!prepared.has(step)) {
    const { kept, discarded, discardedScenarios, removed } = selection;
    const passRates = sampler.passRates(sampled, scenarios.taken);
    const counts = { sampled: sampled.length, kept: kept.length };
    await directory.record({ type: "batch-end", step, ...counts, discarded, discardedScenarios, removed, passRates });
  }
  return { ...selection, sampled, seconds: (performance.now() - startedMs) / 1000 };
}

/** Returns the groups of scenarios: all scenarios of the step so far, of which only the new ones are played. */
function playScenarios<S>(
  { directory, options }: BatchSource<S>,
  step: number,
  scenarios: PlayOptions["scenarios"],
  { policyVersion, checkpointStep, signal, stopSignal }: PrepareContext,
): Promise<TrajectoryGroup[]> {
  const { model, groupSize = 8, seed = 0, temperature = 1, concurrency = 64, retries = 0, maxExceptions = 0.05 } = options;
  const { timeoutMs, replacements, chatTemplateKwargs, scoreTimeouts, scoreGroup, workers } = options;
  return playGroups({
    directory,
    model,
    split: "train",
    step,
    scenarios,
    isLabeled: weightedEnvironments(options.environment).length > 1,
    checkpointStep,
    policyVersion,
    gather: { groupSize, concurrency, timeoutMs, maxExceptions, temperature, chatTemplateKwargs, seed, retries, replacements },
    scoreTimeouts,
    scoreGroup,
    workers,
    signal,
    stopSignal,
  });
}

/**
 * Returns the scenario index of a step's first group: the number of groups that all earlier steps sampled. Steps of earlier
 * versions of the package, which recorded no `batch-end`, sampled `scenariosPerStep` groups each.
 */
function firstScenarioIndex(prepared: ReadonlyMap<number, { readonly sampled: number }>, step: number, scenariosPerStep: number): number {
  let groups = 0;
  for (let earlier = 0; earlier < step; earlier++) groups += prepared.get(earlier)?.sampled ?? scenariosPerStep;
  return groups;
}
