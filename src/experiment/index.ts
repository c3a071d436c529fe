/** Runs as data: opening run directories, tables, paired comparisons. */
export { bootstrapMean } from "./bootstrap.ts";
export type { BootstrapEstimate, BootstrapOptions } from "./bootstrap.ts";
export { compare } from "./compare.ts";
export type { CompareOptions } from "./compare.ts";
export { Comparison } from "./comparison.ts";
export type { ComparedRun, Difference } from "./comparison.ts";
export { Displayable } from "./display.ts";
export type { MediaBundle } from "./display.ts";
export { metricsTable } from "./metrics-table.ts";
export type { MetricsTableOptions } from "./metrics-table.ts";
export { openRun, openRuns, Run } from "./run.ts";
export type { ReadRunOptions, RunGroupsOptions, RunState, Subject } from "./run.ts";
export type { CheckpointData, ColumnsData, NoticeData, Split } from "../report/page-data.ts";
export type { ScenarioResult } from "./scenario-result.ts";
export { Table } from "./table.ts";
export type { Cell, Row } from "./table.ts";
