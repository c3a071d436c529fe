/** Rollouts as data: building, grouping, statistics, preflight. */
export { trajectory, TrajectoryBuilder } from "./builder.ts";
export type { FinishOptions, TrajectoryOptions } from "./builder.ts";
export { TrajectoryGroup, trajectoryGroups } from "./group.ts";
export type { TrajectoryGroupInit, TrajectoryGroups } from "./group.ts";
export { HistoryBuilder } from "./history.ts";
export type { HistoryOptions } from "./history.ts";
export type { Policy } from "./policy.ts";
export { assertTrainable, preflight, PreflightError } from "./preflight.ts";
export type { Finding, FindingCode } from "./preflight.ts";
export type { SampledTurn, SampleOptions } from "./sample.ts";
export { samplingOf } from "./sampling.ts";
export type { SamplingKeys } from "./sampling.ts";
export { summarize } from "./statistics.ts";
export type { GroupStatistics, StatisticsInput, Summary } from "./statistics.ts";
export { Trajectory } from "./trajectory.ts";
export type { Scalar, TrajectoryChanges, TrajectoryHistory } from "./trajectory.ts";
