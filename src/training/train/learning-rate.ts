/** Default learning rate of a run, by size of the model and kind of training, and the detection of a rate that is far too low. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { defaultRate } from "../../base/util/default-rates.ts";
import { RUN_CONFIG_FILE } from "../../run/files.ts";
import type { Model } from "../../library/client/index.ts";
import type { Metrics } from "../../run/events.ts";
import type { CompletedStep } from "../../run/resume-state.ts";

/** Kinds of training, as in messages. */
const KINDS = { rl: "reinforcement learning", sft: "supervised training", preference: "preference training" } as const;
/** Kind of training of a run. */
export type TrainingKind = keyof typeof KINDS;

/** Default learning rate, and its explanation for the terminal. */
export interface DefaultRate {
  readonly rate: number;
  readonly reason: string;
}

/**
 * Reads the rate of a run that has started before, whether it was a default or given by the caller. Null if the run uses the service's
 * default; undefined if the directory holds no run.
 */
async function recordedRate(runDir: string): Promise<number | null | undefined> {
  const text = await readFile(join(runDir, RUN_CONFIG_FILE), "utf8").catch(() => null);
  if (text === null) return undefined;
  const { default_learning_rate: chosenDefault, train } = JSON.parse(text) as {
    readonly default_learning_rate?: number | null;
    readonly train?: { readonly learning_rate?: unknown } | string | null;
  };
  const givenRate = typeof train === "object" ? train?.learning_rate : undefined;
  return chosenDefault ?? (typeof givenRate === "number" ? givenRate : null);
}

/**
 * Returns the default learning rate of a run. A resumed run keeps its rate.
 *
 * @param kind - Kind of training.
 * @returns null if the service does not report the size of the model, and for a run that has started with the service's default.
 */
export async function defaultLearningRate(
  model: Model,
  { kind, runDir, signal }: { readonly kind: TrainingKind; readonly runDir: string; readonly signal: AbortSignal | undefined },
): Promise<DefaultRate | null> {
  const recorded = await recordedRate(runDir);
  if (recorded === null) return null;
  if (recorded !== undefined) return { rate: recorded, reason: "as at the start of the run" };
  return chosenRate(model, kind, signal);
}

/** Returns the default rate for a model by its size; null if the service does not report the size. */
export async function chosenRate(model: Model, kind: TrainingKind, signal: AbortSignal | undefined): Promise<DefaultRate | null> {
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

/** Adds the default rate to the settings of a run's jobs. */
export function withRate<T extends { readonly learningRate?: unknown }>(
  train: T | ((step: number) => T) | undefined,
  learningRate: number,
): T | ((step: number) => T) {
  const add = (settings: T | undefined) => ({ ...settings, learningRate: settings?.learningRate ?? learningRate }) as T;
  return typeof train === "function" ? (step) => add(train(step)) : add(train);
}

/** Returns the line that reports a default rate. */
export function rateNote({ rate, reason }: DefaultRate): string {
  return `learning rate ${rate}, ${reason}`;
}

/** Steps over which {@link isStalled} looks at the reward. */
export const STALL_STEPS = 10;
/** Fraction of the standard deviation of rewards that the mean must move by. */
const MIN_MOVE = 0.1;
/** Fraction of the default rate below which updates count as tiny. */
export const TINY_RATE = 0.1;

/** Whether the mean reward has not moved over the last ten steps: the means of both halves differ by less than 0.1 standard deviations. */
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
