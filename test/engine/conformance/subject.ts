/** Interface of the conformance suite to an engine, and helpers of its tests. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type {
  CallOptions,
  Engine,
  LoraSpec,
  LossSpec,
  ModelHandle,
  PolicyVersion,
  Row,
  SampledToken,
  SamplingParams,
} from "../../../src/engine/port.ts";
import type { ErrorCode } from "../../../src/base/errors.ts";

/** The base of every subject: a small random Llama with values computed by transformers, see `test/oracle/llama.py`. */
export const BASE = "oracle";
export const BASE_DIRECTORY = join(import.meta.dirname, "../../oracle/llama/model");
export const VOCABULARY = 48;
export const CONTEXT = 64;

/** Sampling rules that an engine may reject, by parameter. */
export const SAMPLING_RULES = [
  "allowedTokenIds",
  "bannedSequences",
  "minTokens",
  "logitBias",
  "minP",
  "frequencyPenalty",
  "presencePenalty",
  "repetitionPenalty",
  "topLogprobs",
  "promptLogprobs",
] as const satisfies readonly (keyof SamplingParams)[];
export type SamplingRule = (typeof SAMPLING_RULES)[number];

/** The rules of an engine that carries out all of them, and of one on a server of the Tinker protocol. */
export const ALL_RULES: ReadonlySet<SamplingRule> = new Set(SAMPLING_RULES);
export const NO_RULES: ReadonlySet<SamplingRule> = new Set();

/** An engine under test, with what sets it apart. */
export interface Subject {
  readonly engine: Engine;
  /** The adapter of models that are trained where full-parameter training is refused, or `trainsAdapters` is set. */
  readonly lora: LoraSpec;
  /** Whether the tests train adapters. @default where full-parameter training is refused */
  readonly trainsAdapters?: boolean;
  /** The rules of sampling that it carries out; the others it refuses. */
  readonly rules: ReadonlySet<SamplingRule>;
  /** Largest difference from the log-probabilities that transformers computes. @default 2e-5 */
  readonly tolerance?: number;
  /** Draws of the test that compares shares with probabilities. */
  readonly draws: number;
  close(): Promise<void>;
}

/** Every loss, with settings under which some ratios are clipped and some are not. */
export const LOSSES: readonly LossSpec[] = [
  { kind: "cross-entropy" },
  { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.3 },
  { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.3 },
];

/** Settings under which an optimizer step is a plain gradient step of size `rate`: Adam divides by `√v + ε`, and here ε is all of it. */
export const plainStep = (rate: number) => ({ learningRate: rate * 1e6, epsilon: 1e6, beta1: 0, beta2: 0 });

/** A token sequence that depends on `index` alone. */
export function tokensOf(index: number, length = 6 + (index % 5)): Int32Array {
  return Int32Array.from({ length }, (_, t) => (index * 11 + t * 7 + ((t * t) % 5)) % VOCABULARY);
}

/** Rows of unequal length and weight, some tokens untrained. */
export function rowsOf(count: number, seed = 0): Row[] {
  return Array.from({ length: count }, (_, i): Row => {
    const tokens = tokensOf(seed * 7 + i);
    const trained = (t: number) => t >= 2 && (t + i) % 4 !== 0;
    const each = (value: (t: number) => number) => Float32Array.from(tokens, (_token, t) => value(t));
    return {
      tokens,
      weights: each((t) => (trained(t) ? 0.02 * (1 + ((t + i) % 3)) : 0)),
      advantages: each((t) => (trained(t) ? ((t * 3 + i) % 5) - 1.7 : 0)),
      logprobs: each(() => NaN),
    };
  });
}

/** Returns the rows with old log-probabilities for ratios around 1: some inside every clip, some outside. */
export async function sampledRows(engine: Engine, model: ModelHandle, rows: readonly Row[]): Promise<Row[]> {
  const now = await engine.forward(model, rows);
  const shift = (t: number) => [0.05, -0.1, 0.6, -0.7][t % 4]!;
  return rows.map((row, i) => ({ ...row, logprobs: row.weights.map((weight, t) => (weight === 0 ? NaN : now[i]![t]! - shift(t))) }));
}

/** `Σ weights·L` by the definition of the losses, in float64. */
export function lossOf(loss: LossSpec, rows: readonly Row[], logprobs: readonly Float32Array[]): number {
  let sum = 0;
  for (const [i, row] of rows.entries()) {
    for (const [t, weight] of row.weights.entries()) {
      if (weight === 0) continue;
      const n = logprobs[i]![t]!;
      if (loss.kind === "cross-entropy") {
        sum -= weight * n;
        continue;
      }
      const old = row.logprobs?.[t] ?? NaN;
      const ratio = Number.isNaN(old) ? 1 : Math.exp(n - old);
      const clipped = Math.min(Math.max(ratio, 1 - loss.epsilon), 1 + loss.epsilonHigh);
      const advantage = row.advantages![t]!;
      sum -= weight * (loss.kind === "cispo" ? clipped * advantage * n : Math.min(ratio * advantage, clipped * advantage));
    }
  }
  return sum;
}

/** A model of the kind that the engine trains; it is unloaded with the test. */
export async function newModel(subject: Subject, from?: string): Promise<ModelHandle> {
  const { engine, lora, trainsAdapters = !engine.capabilities().fullParameter } = subject;
  const model = await engine.createModel({ base: BASE, seed: 5, ...(trainsAdapters ? { lora } : {}), from });
  onTestFinished(() => engine.unload(model));
  return model;
}

/** Trains a model with cross-entropy, so that it differs from its base. */
export async function train(engine: Engine, model: ModelHandle, steps = 3, rows = rowsOf(4, 3)): Promise<void> {
  for (let step = 0; step < steps; step++) {
    await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
    await engine.optimStep(model, { learningRate: 2e-2 });
  }
}

export const params = (seed: number, more: Partial<SamplingParams> = {}): SamplingParams => ({
  maxTokens: 8,
  temperature: 1,
  topP: 1,
  topK: 0,
  seed: BigInt(seed),
  stopTokenIds: [],
  topLogprobs: 0,
  ...more,
});

export async function sampleAll(
  engine: Engine,
  policy: PolicyVersion,
  prompt: Int32Array,
  options: SamplingParams,
  call: CallOptions = {},
): Promise<SampledToken[]> {
  const tokens: SampledToken[] = [];
  for await (const token of engine.sample(policy, prompt, options, call)) tokens.push(token);
  return tokens;
}

/** Returns the row of a prompt and its sampled tokens, which have the weight 1. */
export function rowAfter(prompt: Int32Array, ids: readonly number[]): Row {
  const tokens = Int32Array.from([...prompt, ...ids]);
  return { tokens, weights: new Float32Array(tokens.length).fill(1, prompt.length) };
}

/** `log p(id | prompt)` of every id of the vocabulary, by forward passes. */
export async function distribution(engine: Engine, model: ModelHandle, prompt: Int32Array): Promise<number[]> {
  const rows = Array.from({ length: VOCABULARY }, (_, id) => rowAfter(prompt, [id]));
  return (await engine.forward(model, rows)).map((logprobs) => logprobs[prompt.length]!);
}

/** The largest difference of two lists of equal shapes. */
export function largestDifference(a: readonly ArrayLike<number>[], b: readonly ArrayLike<number>[]): number {
  return Math.max(...a.flatMap((row, i) => Array.from(row, (value, t) => Math.abs(value - b[i]![t]!))));
}

export async function scratchDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-conformance-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** The code of the error that `work` ends with; null when it succeeds. */
export async function codeOf(work: Promise<unknown>): Promise<ErrorCode | null> {
  return work.then(
    () => null,
    (error: { code: ErrorCode }) => error.code,
  );
}
