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
  await directory.record({ type: "evaluation-start", step, checkpointStep });
  const groups = await playGroups({
    directory,
    model,
    split: "eval",
    step,
    scenarios: new Map(
      environments.flatMap((environment) => environment.scenarios.eval.map((scenario) => ({ environment, scenario }))).entries(),
    ),
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
  const metrics: Metrics = Object.fromEntries(
    Object.entries({ ...rolloutMetrics(groups), ...environmentMetrics(groups) }).map(([name, value]) => [
      name.startsWith("time/") ? `time/eval/${name.slice(5)}` : `eval/${name}`,
      value,
    ]),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  await directory.record({ type: "evaluation-end", step, checkpointStep, metrics: { ...metrics, "time/eval/total_seconds": seconds } });
}
