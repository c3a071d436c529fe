import { trajectoryGroups, type TrajectoryGroup } from "../trajectory/index.ts";
import type { Metrics } from "./events.ts";

/** Names of metrics that differ between runs of the same work. Their prefix becomes `time/`, so that all other metrics are comparable. */
const TIMED = /(^|_)(duration|seconds|tokens_per_second)$/;
/** Names of a job's engine metrics, which depend on the machine. */
const OF_THE_ENGINE = /^engine\//;

/**
 * Computes the metrics of groups for a row of `metrics.jsonl`: rewards, failures, tokens, and each trajectory metric's mean as
 * `metric/<name>`. Non-finite numbers are omitted.
 */
export function rolloutMetrics(groups: readonly TrajectoryGroup[]): Metrics {
  const { stats } = trajectoryGroups(groups);
  const { reward, tokens } = stats;
  return finite({
    "reward/mean": reward.mean,
    "reward/std": reward.std,
    "reward/min": reward.min,
    "reward/max": reward.max,
    "reward/std_within_groups": stats.rewardStdWithinGroups,
    "rollout/groups": stats.groups,
    "rollout/trainable_groups": stats.trainableGroups,
    "rollout/trajectories": stats.trajectories,
    "rollout/exceptions": stats.exceptions,
    "rollout/completion_tokens": tokens.completion,
    "rollout/completion_tokens_mean": tokens.completionPerTrajectory.mean,
    ...Object.fromEntries(Object.entries(stats.metrics).map(([name, summary]) => [timed(name) ?? `metric/${name}`, summary.mean])),
  });
}

/** Converts a job's metrics for a row of `metrics.jsonl`: prefixes timings with `time/` and omits metrics that the row already has. */
export function jobMetrics(metrics: Metrics): Metrics {
  const { ["reward/mean"]: _mean, ["reward/std"]: _std, gradient_step: _gradientStep, step: _step, ...rest } = metrics;
  return finite(
    Object.fromEntries(
      Object.entries(rest).map(([name, value]) => [timed(name) ?? (OF_THE_ENGINE.test(name) ? `time/${name}` : name), value]),
    ),
  );
}

function timed(name: string): string | null {
  return TIMED.test(name) ? `time/${name}` : null;
}

function finite(metrics: Readonly<Record<string, number>>): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => Number.isFinite(value)));
}
