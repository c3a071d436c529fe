/** From token sequences to supervised optimizer steps: batches, rates and weights. */

import { ArgumentError } from "../errors.ts";
import type { SftConfig, SftExperimentalConfig } from "../schema/index.ts";
import { uniform } from "../util/rng.ts";
import { tokenWeights, trainedTokens } from "./sequences.ts";
import type { AdamParams, LossSpec, TokenSequence, TrainingRow } from "./types.ts";

/** What `batch_size: "auto"` means. */
const AUTO_BATCH_SIZE = 2;
/** Keeps these draws apart from any other use of the same seed. */
const SHUFFLE_DOMAIN = 0x53_46_54_00;

/** One supervised optimizer step. */
export interface SftBatch {
  /** In the order of the sequences; the plain sum `Σ weights·L` is the mean cross-entropy of the batch's trained tokens. */
  readonly rows: readonly TrainingRow[];
  readonly loss: LossSpec;
  /** Tokens in the rows, and trained ones among them. */
  readonly tokens: number;
  readonly trainedTokens: number;
}

/** One step of an {@link SftPlan}. */
export interface SftStep {
  /** Indices of the examples in this step. */
  readonly examples: readonly number[];
  /** Counted from 0. */
  readonly epoch: number;
  readonly adam: AdamParams;
}

/** All steps of an SFT job, fixed when it is created. */
export interface SftPlan {
  readonly steps: readonly SftStep[];
  readonly batchSize: number;
}

/**
 * Rows of one step. Every trained token weighs `1 / (trained tokens of the batch)`, so long answers count by their length.
 *
 * @throws ArgumentError `E_ARGUMENT` when nothing in the batch is trained.
 */
export function buildSftBatch(sequences: readonly TokenSequence[]): SftBatch {
  const trained = sequences.reduce((sum, sequence) => sum + trainedTokens(sequence), 0);
  if (trained === 0) {
    throw new ArgumentError("The batch would train nothing: none of its sequences has a token that the assistant says.", {
      param: "training_data_url",
    });
  }
  return {
    rows: sequences.map((sequence) => ({ tokens: sequence.tokens, weights: tokenWeights(sequence, 1 / trained) })),
    loss: { kind: "cross-entropy" },
    tokens: sequences.reduce((sum, sequence) => sum + sequence.tokens.length, 0),
    trainedTokens: trained,
  };
}

/**
 * Which examples each optimizer step takes, and its rate. Every epoch takes every example once; its last batch may be
 * smaller. With a `shuffle_seed` each epoch has its own order, a function of seed and epoch alone.
 *
 * @param exampleCount - Examples in the data, at least 1.
 * @param config - As the schema accepts it; null and absent mean the default. Batch size 2, rate 5e-5.
 * @param experimental - One epoch, file order, gradient norm clipped at 1, no weight decay, β 0.9 and 0.99.
 * @throws ArgumentError `E_ARGUMENT` without examples, or when a list of rates has not one per step.
 */
export function planSft(exampleCount: number, config?: SftConfig | null, experimental?: SftExperimentalConfig | null): SftPlan {
  if (exampleCount < 1) throw new ArgumentError("Expected at least one example to train on, got none.", { param: "training_data_url" });
  const batchSize = typeof config?.batch_size === "number" ? config.batch_size : AUTO_BATCH_SIZE;
  const epochs = experimental?.epochs ?? 1;
  const count = epochs * Math.ceil(exampleCount / batchSize);
  const rates = config?.learning_rate ?? 5e-5;
  if (Array.isArray(rates) && rates.length !== count) {
    throw new ArgumentError(
      `Expected one learning rate per batch, ${count} in all (${exampleCount} examples in batches of ${batchSize}, ${epochs} epochs), got ${rates.length}.`,
      { param: "config.learning_rate" },
    );
  }
  const adam = {
    beta1: experimental?.adam_beta1 ?? 0.9,
    beta2: experimental?.adam_beta2 ?? 0.99,
    epsilon: 1e-8,
    weightDecay: experimental?.weight_decay ?? 0,
    maxGradNorm: experimental?.max_grad_norm ?? 1,
  };
  const seed = experimental?.shuffle_seed;
  const steps: SftStep[] = [];
  for (let epoch = 0; epoch < epochs; epoch++) {
    const order = seed === null || seed === undefined ? identity(exampleCount) : shuffledIndices(exampleCount, BigInt(seed), epoch);
    for (let start = 0; start < exampleCount; start += batchSize) {
      const learningRate = Array.isArray(rates) ? (rates[steps.length] as number) : rates;
      steps.push({ examples: order.slice(start, start + batchSize), epoch, adam: { learningRate, ...adam } });
    }
  }
  return { steps, batchSize };
}

/**
 * A permutation of `0 … count − 1`, a function of seed and epoch alone.
 *
 * @source Fisher and Yates, in Durstenfeld's form (Algorithm 235, CACM 1964).
 */
export function shuffledIndices(count: number, seed: bigint, epoch: number): number[] {
  const result = identity(count);
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor(uniform(seed, epoch, last, SHUFFLE_DOMAIN) * (last + 1));
    [result[last], result[other]] = [result[other] as number, result[last] as number];
  }
  return result;
}

function identity(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
