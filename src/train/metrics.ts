import { trajectoryGroups, type TrajectoryGroup } from "../trajectory/index.ts";
import type { Metrics } from "./events.ts";

/** Names that differ from one run of the same work to the next: they go under `time/`, so that everything else can be compared. */
const TIMED = /(^|_)(duration|seconds|tokens_per_second)$/;
/** What a job says of the engine itself depends on the machine. */
const OF_THE_ENGINE = /^engine\//;

/** What a row says about groups: rewards, failures, tokens, and each trajectory metric's mean as `metric/<name>`. Numbers that are not finite are left out. */
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

/** A job's metrics as a row has them: timings under `time/`, what the row says already left out. */
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
