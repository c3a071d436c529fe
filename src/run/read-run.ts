/** Reader of a run directory without its trajectories, for reports and the dashboard. */

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { DataError, NotFoundError } from "../base/errors.ts";
import { isMissingFile } from "../base/util/file-system-error.ts";
import { messageOf } from "../base/util/values.ts";
import type { CheckpointData, ColumnsData, NoticeData, RunEnd, Split } from "./data.ts";
import { CHECKPOINTS_FILE, RUN_CONFIG_FILE, EVENTS_FILE, METRICS_FILE, stepOfName, TRAJECTORIES_FOLDER } from "./files.ts";
import { checkpointRow, eventRow, metricsRow, parseLines, type RunCheckpoint, type EventRow, type MetricsRow } from "./rows.ts";
import { endOf } from "./status.ts";

/** Max number of notices of a run; the newest are kept. */
const MAX_NOTICES = 100;

/** Contents of a run directory without the trajectories. */
export interface RunFiles {
  /** Configuration as written; undefined if there is no `config.json`. */
  readonly config: unknown;
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  /** Checkpoints with their last recorded state, by ascending step. */
  readonly checkpoints: readonly CheckpointData[];
  /** Number of recorded events of each type, by type name. */
  readonly events: readonly (readonly [type: string, count: number])[];
  /** Warnings, failures and skipped steps, newest first. */
  readonly notices: readonly NoticeData[];
  /** Recorded end of the run; null without one. */
  readonly end: RunEnd | null;
  /** First and last time recorded in any file, in milliseconds since 1970; null if no file records a time. */
  readonly span: readonly [firstMs: number, lastMs: number] | null;
  /** Scenario indices of the groups that the filters discarded, by training step; a step without discarded groups has no entry. */
  readonly discarded: ReadonlyMap<number, ReadonlySet<number>>;
  /** Steps with a trajectory file, ascending. */
  readonly trajectories: Readonly<Record<Split, readonly number[]>>;
}

/** Rows of the files of a run directory. */
export interface RunRows {
  readonly metrics: readonly MetricsRow[];
  readonly checkpoints: readonly RunCheckpoint[];
  readonly events: readonly EventRow[];
}

/**
 * Reads a run directory; a missing file counts as empty.
 *
 * @throws NotFoundError `E_NOT_FOUND` if `runDir` contains no files of a run.
 * @throws DataError `E_DATA` with file and line for a line that does not match its schema.
 */
export async function readRun(runDir: string, signal: AbortSignal | undefined): Promise<RunFiles> {
  const names = await namesIn(runDir);
  if (![RUN_CONFIG_FILE, METRICS_FILE, TRAJECTORIES_FOLDER].some((name) => names.includes(name))) {
    throw new NotFoundError(
      `Expected a run directory with \`config.json\`, \`metrics.jsonl\` or \`trajectories/\`; found none of them in ${runDir}. Give the directory that the training run wrote.`,
    );
  }
  const rowsOf = async <T>(name: string, schema: z.ZodType<T>): Promise<T[]> =>
    names.includes(name) ? parseLines(join(runDir, name), schema, signal) : [];
  const metrics = await rowsOf(METRICS_FILE, metricsRow);
  const checkpoints = await rowsOf(CHECKPOINTS_FILE, checkpointRow);
  const events = await rowsOf(EVENTS_FILE, eventRow);
  return {
    config: names.includes(RUN_CONFIG_FILE) ? await readRunConfig(join(runDir, RUN_CONFIG_FILE)) : undefined,
    ...summarizeRows({ metrics, checkpoints, events }),
    trajectories: await readStepNumbers(runDir),
  };
}

/** Summarizes the rows of a run. */
export function summarizeRows({ metrics, checkpoints, events }: RunRows): Omit<RunFiles, "config" | "trajectories"> {
  return {
    metrics: { train: columnsOf(metrics, "train"), eval: columnsOf(metrics, "eval") },
    checkpoints: checkpointsOf(checkpoints),
    events: countsOf(events.map(({ type }) => type)),
    notices: noticesOf(events),
    end: endOf(events),
    discarded: discardedOf(events),
    span: spanOf([...metrics, ...checkpoints, ...events].map(({ time }) => time)),
  };
}

/** Returns the steps of a run directory that have a trajectory file, ascending. */
export async function readStepNumbers(runDir: string): Promise<RunFiles["trajectories"]> {
  return { train: await stepsIn(runDir, "train"), eval: await stepsIn(runDir, "eval") };
}

/** Returns the names of the entries of a directory; empty if there is no such directory. */
async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (isMissingFile(error)) return [];
    throw new DataError(`${directory}: cannot be listed: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Reads a `config.json`.
 *
 * @throws DataError `E_DATA` with the file if it is not JSON.
 */
export async function readRunConfig(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as unknown;
  } catch (error) {
    throw new DataError(`${path}: expected JSON: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the steps of a split that have a trajectory file, ascending. */
async function stepsIn(runDir: string, split: Split): Promise<number[]> {
  const names = await namesIn(join(runDir, TRAJECTORIES_FOLDER, split));
  return names.flatMap((name) => stepOfName(name) ?? []).sort((a, b) => a - b);
}

/** Converts the rows of a split to columns. If a step was written twice, as after a restart, the last row counts. */
export function columnsOf(rows: readonly MetricsRow[], split: Split): ColumnsData {
  const rowsByStep = new Map(rows.filter((row) => row.split === split).map((row) => [row.step, row]));
  const steps = [...rowsByStep.keys()].sort((a, b) => a - b);
  const orderedRows = steps.map((step) => withoutEvalPrefix(rowsByStep.get(step) as Record<string, unknown>));
  const metricsIn = (row: Readonly<Record<string, unknown>>) =>
    Object.keys(row).filter((name) => name !== "step" && isPlottable(row[name]));
  const metricNames = [...new Set(orderedRows.flatMap(metricsIn))].sort();
  const columns = metricNames.map((name) => [name, orderedRows.map((row) => toNumber(row[name]))] as const);
  return { steps, columns: Object.fromEntries(columns) };
}

/** Removes the prefix `eval/` from metric names, so that a metric has the same name in both splits. */
function withoutEvalPrefix(row: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name.replace(/^(time\/)?eval\//, "$1"), value]));
}

/** Whether a value is a metric: a number, or a boolean as 0 or 1. */
function isPlottable(value: unknown): boolean {
  return typeof value === "number" || typeof value === "boolean";
}

/** Returns the number of a metric; null for any other value. */
function toNumber(value: unknown): number | null {
  return isPlottable(value) ? Number(value) : null;
}

/** Merges the rows of each checkpoint: the first row supplies its data, the last row its state. */
function checkpointsOf(rows: readonly RunCheckpoint[]): CheckpointData[] {
  const byStep = new Map<number, CheckpointData>();
  for (const { event, step, id, time, metrics, run_step: runStep } of rows) {
    const known = byStep.get(step);
    const state = event === "created" ? "kept" : event;
    const numbers = Object.entries(metrics).filter((entry): entry is [string, number] => typeof entry[1] === "number");
    const created = { step, id, runStep: runStep ?? null, time, state, metrics: Object.fromEntries(numbers) } as const;
    byStep.set(step, known === undefined ? created : { ...known, state });
  }
  return [...byStep.values()].sort((a, b) => a.step - b.step);
}

/** Returns the events that have a message (warnings, failures, skipped steps), newest first. */
function noticesOf(events: readonly EventRow[]): NoticeData[] {
  return events
    .flatMap(({ type, step, message }) => (typeof message === "string" ? [{ type, step: step ?? null, message }] : []))
    .slice(-MAX_NOTICES)
    .reverse();
}

/** Returns the scenario indices of the discarded groups by training step. */
export function discardedOf(events: readonly EventRow[]): RunFiles["discarded"] {
  const discarded = new Map<number, ReadonlySet<number>>();
  for (const { type, step, discarded_scenarios: scenarios } of events) {
    if (type === "batch-end" && typeof step === "number" && scenarios?.length) discarded.set(step, new Set(scenarios));
  }
  return discarded;
}

/** Counts equal names, and sorts the counts by name. */
function countsOf(names: readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([a], [b]) => a.localeCompare(b, "en"));
}

/** Returns the first and the last of the times in milliseconds since 1970; null without a valid time. */
export function spanOf(times: readonly (string | undefined)[]): readonly [number, number] | null {
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const time of times) {
    const timeMs = time === undefined ? Number.NaN : Date.parse(time);
    if (!Number.isFinite(timeMs)) continue;
    firstMs = Math.min(firstMs, timeMs);
    lastMs = Math.max(lastMs, timeMs);
  }
  return firstMs <= lastMs ? [firstMs, lastMs] : null;
}
