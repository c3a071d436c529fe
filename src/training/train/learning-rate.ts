/** Default learning rate of a run, by size of the model and kind of training, and the detection of a rate that is far too low. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { defaultRate } from "../../base/util/default-rates.ts";
import { RUN_CONFIG_FILE } from "../../run/files.ts";
import type { Model } from "../../library/client/index.ts";
import type { Metrics } from "../../run/events.ts";
import type { CompletedStep } from "../../run/resume-state.ts";

/** Names of the kinds of training in messages. */
const KINDS = { rl: "reinforcement learning", sft: "supervised training", preference: "preference training" } as const;
/** Kind of training of a run. */
export type TrainingKind = keyof typeof KINDS;

/** Default learning rate, and its explanation for the terminal. */
export interface DefaultRate {
  readonly rate: number;
  readonly reason: string;
}

/** Settings of a job, as far as they matter here. */
interface JobSettings {
  readonly learningRate?: unknown;
}

/** Options of a run that determine its learning rate. */
interface RateOptions {
  readonly model: Model;
  readonly runDir: string;
  readonly signal?: AbortSignal | undefined;
  readonly train?: JobSettings | ((step: number) => JobSettings) | undefined;
}

/**
 * Adds the default learning rate to the options of a run. Options with a rate for every job are unchanged. A resumed run keeps its rate.
 *
 * @returns Options of the run, and the default rate in them. The rate is null if none was added: the options have a rate, the service does
 *   not report the size of the model, or the run has started with the service's default.
 */
export async function withDefaultRate<Options extends RateOptions>(
  options: Options,
  kind: TrainingKind,
): Promise<{ readonly options: Options; readonly defaultRate: DefaultRate | null }> {
  const { model, runDir, signal, train } = options;
  const hasRate = typeof train === "object" && (train.learningRate ?? null) !== null;
  if (hasRate) return { options, defaultRate: null };
  const recorded = await recordedRate(runDir);
  const defaultRate = recorded === null ? await defaultRateOf(model, kind, signal) : resumedRate(recorded);
  if (defaultRate === null) return { options, defaultRate: null };
  const add = (settings: JobSettings | undefined) => ({ ...settings, learningRate: settings?.learningRate ?? defaultRate.rate });
  const ratedTrain = typeof train === "function" ? (step: number) => add(train(step)) : add(train);
  return { options: { ...options, train: ratedTrain }, defaultRate };
}

/** Returns the default rate of a resumed run; null if the run uses the service's default. */
function resumedRate({ rate }: RecordedRate): DefaultRate | null {
  return rate === null ? null : { rate, reason: "as at the start of the run" };
}

/** Learning rate with which a run was started. */
interface RecordedRate {
  /** Default or given rate; null if the run uses the service's default. */
  readonly rate: number | null;
}

/** Reads the rate of a run that has started before; null if the directory holds no run. */
async function recordedRate(runDir: string): Promise<RecordedRate | null> {
  const text = await readFile(join(runDir, RUN_CONFIG_FILE), "utf8").catch(() => null);
  if (text === null) return null;
  const { default_learning_rate: addedRate, train } = JSON.parse(text) as {
    readonly default_learning_rate?: number | null;
    readonly train?: { readonly learning_rate?: unknown } | string | null;
  };
  const givenRate = typeof train === "object" ? train?.learning_rate : undefined;
  return { rate: addedRate ?? (typeof givenRate === "number" ? givenRate : null) };
}

/** Returns the default rate for a model by its size; null if the service does not report the size. */
export async function defaultRateOf(model: Model, kind: TrainingKind, signal: AbortSignal | undefined): Promise<DefaultRate | null> {
  const served = await model.service.models.list({ signal });
  const parameters = served.find(({ id }) => id === model.baseModel)?.parameters ?? null;
  return parameters === null ? null : rateFor(parameters, kind, model.lora !== null);
}

/** Returns the rate for a number of parameters of the base model. */
export function rateFor(parameters: number, kind: TrainingKind, isAdapter: boolean): DefaultRate {
  const rate = defaultRate(parameters, kind, isAdapter);
  const size = parameters >= 1e9 ? `${(parameters / 1e9).toFixed(1)} B` : `${(parameters / 1e6).toFixed(1)} M`;
  return { rate, reason: `default for ${KINDS[kind]} of ${isAdapter ? "an adapter on" : "all"} ${size} parameters` };
}

/** Returns the lines that report a default rate: one, or none without a rate. */
export function rateNotes(defaultRate: DefaultRate | null): string[] {
  return defaultRate === null ? [] : [`learning rate ${defaultRate.rate}, ${defaultRate.reason}`];
}

/** Number of steps that {@link isStalled} compares. */
export const STALL_STEPS = 10;
/** Min change of the mean reward, as a fraction of the standard deviation of rewards, for a reward that counts as moving. */
const MIN_MOVE = 0.1;
/** Fraction of the default rate below which updates count as tiny. */
export const TINY_RATE = 0.1;

/** Whether the mean reward has not moved over the last ten steps: the means of their two halves differ by less than 0.1 deviations. */
export function isStalled(steps: readonly CompletedStep[]): boolean {
  const recent = steps.slice(-STALL_STEPS).map(({ metrics }) => metrics);
  if (recent.length < STALL_STEPS) return false;
  const half = STALL_STEPS / 2;
  const change = Math.abs(mean(recent.slice(half), "reward/mean") - mean(recent.slice(0, half), "reward/mean"));
  return change < MIN_MOVE * mean(recent, "reward/std");
}

/** Returns the mean of a metric; NaN if a row lacks it. */
function mean(rows: readonly Metrics[], name: string): number {
  return rows.reduce((sum, metrics) => sum + (metrics[name] ?? Number.NaN), 0) / rows.length;
}
