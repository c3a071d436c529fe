/** Evaluation of one checkpoint inside of a run: rollouts of the `eval` scenarios, and their metrics. */
import type { TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { Environment } from "../../library/environment/index.ts";
import type { Metrics } from "../../run/events.ts";
import { environmentMetrics, rolloutMetrics } from "./metrics.ts";
import { hasWorkers, type RunOptions } from "./options.ts";
import { playGroups } from "./rollouts.ts";
import { deletePlans } from "./stored-rollouts.ts";
import type { RunDirectory } from "../../run/run-directory.ts";

/** Input of {@link evaluateCheckpoint}. */
export interface Measurement {
  readonly directory: RunDirectory;
  /** Options of the run. */
  readonly options: RunOptions;
  /** Environments to play, at least one. */
  readonly environments: readonly Environment<unknown>[];
  readonly seed: number;
  /** Completed steps of the run; in `evaluateCheckpoints`, the step of the checkpoint. */
  readonly step: number;
  readonly checkpointStep: number;
  readonly signal: AbortSignal;
}

/** Max failed rollouts of an evaluation, as a fraction of all its rollouts. */
const MAX_EXCEPTIONS = 0.05;

/** Plays the environments' `eval` scenarios with one checkpoint and records the metrics, named `eval/…` (timings `time/eval/…`). */
export async function evaluateCheckpoint(measurement: Measurement): Promise<void> {
  const { directory, options, environments, seed, step, checkpointStep, signal } = measurement;
  const { evaluation = {}, model, concurrency = 64, timeoutMs, chatTemplateKwargs } = options;
  const { samples = 1, temperature = samples === 1 ? 0 : 1 } = evaluation;
  const startedMs = performance.now();
  const scenarios = environments.flatMap((environment) => environment.scenarios.eval.map((scenario) => ({ environment, scenario })));
  await directory.record({ type: "evaluation-start", step, checkpointStep });
  const groups = await playGroups({
    directory,
    model,
    split: "eval",
    step,
    scenarios: new Map(scenarios.entries()),
    isLabeled: environments.length > 1,
    checkpointStep,
    policyVersion: step,
    gather: {
      groupSize: samples,
      maxExceptions: MAX_EXCEPTIONS,
      retries: 2,
      concurrency,
      timeoutMs,
      temperature,
      chatTemplateKwargs,
      seed,
    },
    workers: options.workers,
    signal,
  });
  if (hasWorkers(options)) await deletePlans(model, groups);
  const seconds = (performance.now() - startedMs) / 1000;
  const metrics = { ...evaluationMetrics(groups), "time/eval/total_seconds": seconds };
  await directory.record({ type: "evaluation-end", step, checkpointStep, metrics });
}

/** Returns the metrics of the groups under the names of an evaluation. */
function evaluationMetrics(groups: readonly TrajectoryGroup[]): Metrics {
  const metrics = Object.entries({ ...rolloutMetrics(groups), ...environmentMetrics(groups) });
  const evaluationName = (name: string) => (name.startsWith("time/") ? name.replace("time/", "time/eval/") : `eval/${name}`);
  return Object.fromEntries(metrics.map(([name, value]) => [evaluationName(name), value]));
}
