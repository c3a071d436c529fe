/** Metrics of a row of `metrics.jsonl`, computed from groups and jobs. */
import { summarize, trajectoryGroups, type TrajectoryGroup } from "../../base/trajectory/index.ts";
import { DISCARD_REASONS, REMOVAL_REASONS, type ReasonCounts, type TrainedGroups } from "./batch/filters.ts";
import type { BatchOptions } from "./batch/options.ts";
import type { Metrics } from "../../run/events.ts";
import { getOrInsert } from "../../base/util/values.ts";

/** Names of metrics that differ between runs of the same work. Their prefix becomes `time/`, so that all other metrics are comparable. */
const TIMED = /(^|_)(duration|seconds|tokens_per_second)$/;
/** Names of a job's engine metrics, which depend on the machine. */
const ENGINE_METRIC = /^engine\//;

/**
 * Computes the metrics of groups for a row of `metrics.jsonl`: rewards, failures, tokens, each trajectory metric's mean as `metric/<name>`,
 * and each group metric's mean as `group/<name>`. Non-finite numbers are omitted.
 */
export function rolloutMetrics(groups: readonly TrajectoryGroup[]): Metrics {
  const { stats } = trajectoryGroups(groups);
  const { reward, tokens } = stats;
  const means = Object.entries(stats.metrics).map(([name, summary]) => [timedName(name) ?? `metric/${name}`, summary.mean] as const);
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
    ...Object.fromEntries(means),
    ...groupMeans(groups),
  });
}

/** Computes the mean of each metric of the groups, over the groups with that metric; booleans are 0 and 1. */
function groupMeans(groups: readonly TrajectoryGroup[]): Metrics {
  const valuesByName = new Map<string, number[]>();
  for (const { metrics } of groups) {
    for (const [name, value] of Object.entries(metrics)) {
      // The rollout runner counts in `rollout/…`; `batchMetrics` sums these counts instead of averaging them.
      if (!name.startsWith("rollout/")) getOrInsert(valuesByName, name, () => []).push(Number(value));
    }
  }
  const means = [...valuesByName].map(([name, values]) => [timedName(name) ?? `group/${name}`, summarize(values).mean] as const);
  return Object.fromEntries(means);
}

/**
 * Computes the metrics of each environment of a run on several, without timings, as `env/<name>/…`; empty for groups without the metadata
 * `environment`.
 */
export function environmentMetrics(groups: readonly TrajectoryGroup[]): Metrics {
  const groupsByName = new Map<string, TrajectoryGroup[]>();
  for (const group of groups) {
    const name = group.metadata["environment"];
    if (typeof name === "string") getOrInsert(groupsByName, name, () => []).push(group);
  }
  const environments: Record<string, number> = {};
  for (const [name, groupsOfEnvironment] of groupsByName) {
    for (const [metric, value] of Object.entries(rolloutMetrics(groupsOfEnvironment))) {
      if (!metric.startsWith("time/")) environments[`env/${name}/${metric}`] = value;
    }
  }
  return environments;
}

/** Computes the metrics of a selection: `batch/…` with filters or refill, `rollout/replaced` with replacements. */
export function batchMetrics(
  { sampled, kept, discarded, removed }: TrainedGroups & { readonly sampled: readonly TrajectoryGroup[] },
  { refill, filters, replacements = 0 }: Pick<BatchOptions<never>, "refill" | "filters" | "replacements">,
): Metrics {
  const counts = (prefix: string, byReason: ReasonCounts, reasons: readonly string[]) =>
    Object.fromEntries(reasons.map((reason) => [`batch/${prefix}_${reason}`, byReason[reason] ?? 0]));
  const replaced = sampled.reduce((sum, { metrics }) => sum + Number(metrics["rollout/replaced"] ?? 0), 0);
  const replacementMetrics: Metrics = replacements === 0 ? {} : { "rollout/replaced": replaced };
  if (refill === undefined && filters === undefined) return replacementMetrics;
  return {
    ...replacementMetrics,
    "batch/sampled_groups": sampled.length,
    "batch/kept_groups": kept.length,
    ...counts("discarded", discarded, DISCARD_REASONS),
    ...counts("removed", removed, REMOVAL_REASONS),
  };
}

/** Converts a job's metrics for a row of `metrics.jsonl`: prefixes timings with `time/` and omits metrics that the row already has. */
export function jobMetrics(metrics: Metrics): Metrics {
  const { ["reward/mean"]: _mean, ["reward/std"]: _std, gradient_step: _gradientStep, step: _step, ...furtherMetrics } = metrics;
  const rowName = (name: string) => (ENGINE_METRIC.test(name) ? `time/${name}` : (timedName(name) ?? name));
  return finite(Object.fromEntries(Object.entries(furtherMetrics).map(([name, value]) => [rowName(name), value])));
}

/** Returns the name of a timing with the prefix `time/`; null for any other metric. */
function timedName(name: string): string | null {
  return TIMED.test(name) ? `time/${name}` : null;
}

/** Returns the metrics without non-finite numbers. */
function finite(metrics: Readonly<Record<string, number>>): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => Number.isFinite(value)));
}
