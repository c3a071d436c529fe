/** Supervised optimizer steps from token sequences: batches, learning rates and weights. */

import { ArgumentError } from "../base/errors.ts";
import type { SftConfig, SftExperimentalConfig } from "../base/schema/index.ts";
import { uniform } from "../base/util/rng.ts";
import { fillTrained, countTrained } from "./sequences.ts";
import { checkSftConfig, type SftSettings } from "./sft-config.ts";
import type { TokenSequence } from "./types.ts";
import type { AdamParams, LossSpec, Row } from "../base/training-rows.ts";

/** RNG domains, which separate the draws from any other use of the same seed: `SFT` in ASCII, and a number. */
const SHUFFLE_DOMAIN = 0x53_46_54_00;
const HOLD_OUT_DOMAIN = 0x53_46_54_01;
/** Max optimizer steps of a job; limited because a job records an event for each step. */
const MAX_STEPS = 1_000_000;

/** Input of one supervised optimizer step. */
export interface SftBatch {
  /** Rows in the order of the sequences. The plain sum `Σ weights·L` is the weighted mean cross-entropy of the batch's trained tokens. */
  readonly rows: readonly Row[];
  readonly loss: LossSpec;
  /** Number of tokens in all rows. */
  readonly tokens: number;
  /** Number of trained tokens in all rows. */
  readonly trainedTokens: number;
}

/** Optimizer step of an {@link SftPlan}. */
export interface SftStep {
  /** Indices of the step's examples. */
  readonly examples: readonly number[];
  /** Index of the epoch, from 0. */
  readonly epoch: number;
  readonly adam: AdamParams;
  /** Whether the held-out examples are evaluated after the step. */
  readonly validates: boolean;
}

/** All steps of an SFT job, fixed when the plan is created. */
export interface SftPlan {
  readonly stepCount: number;
  /** Generates the steps lazily and in order, starting at index `from`. @default from 0 */
  readonly steps: (from?: number) => Iterable<SftStep>;
  readonly batchSize: number;
  /** Indices of the held-out examples, ascending; empty without a `validation_split`. */
  readonly heldOut: readonly number[];
}

/**
 * Builds the rows of one step. The loss is the weighted mean `Σ v·L / Σ v` over the batch's trained tokens, with `v` the weight of a
 * token's example. With equal weights every trained token has the weight `1 / (trained tokens of the batch)`, so that an answer counts in
 * proportion to its length.
 *
 * @param sequences - Sequences of the step's examples. Not modified.
 * @throws ArgumentError `E_ARGUMENT` if the batch has no trained token.
 */
export function buildSftBatch(sequences: readonly TokenSequence[]): SftBatch {
  const trained = sequences.reduce((sum, sequence) => sum + countTrained(sequence), 0);
  if (trained === 0) {
    throw new ArgumentError("The batch would train nothing: none of its sequences has a token that the assistant says.", {
      param: "training_data_url",
    });
  }
  const total = sequences.reduce((sum, sequence) => sum + countTrained(sequence) * (sequence.weight ?? 1), 0);
  return {
    rows: sequences.map((sequence) => ({ tokens: sequence.tokens, weights: fillTrained(sequence, (sequence.weight ?? 1) / total) })),
    loss: { kind: "cross-entropy" },
    tokens: sequences.reduce((sum, sequence) => sum + sequence.tokens.length, 0),
    trainedTokens: trained,
  };
}

/**
 * Plans the examples and the learning rate of each optimizer step. Every epoch uses each example that is not held out once; the last batch
 * of an epoch may be smaller. With a `shuffle_seed` each epoch has a separate order, a function of seed and epoch only. The examples held
 * out by a `validation_split` are drawn with the same seed (0 without `shuffle_seed`): the given fraction of the examples, rounded, at
 * least one and never all.
 *
 * @param exampleCount - Number of examples in the data, at least 1; at least 2 with a `validation_split`.
 * @param config - Configuration as accepted by the schema; null and absent mean the default, see `checkSftConfig`.
 * @param experimental - Experimental configuration as accepted by the schema; null and absent mean the default.
 * @throws ArgumentError `E_ARGUMENT` without examples, if a list of learning rates does not have one per step, and for more than
 *   1,000,000 steps; otherwise as `checkSftConfig`.
 */
export function planSft(exampleCount: number, config?: SftConfig | null, experimental?: SftExperimentalConfig | null): SftPlan {
  const settings = checkSftConfig(config, experimental);
  const { batchSize, epochs, shuffleSeed } = settings;
  if (exampleCount < 1) throw new ArgumentError("Expected at least one example to train on, got none.", { param: "training_data_url" });
  const heldOut = heldOutIndices(exampleCount, settings);
  const heldOutSet = new Set(heldOut);
  const trained = identity(exampleCount).filter((index) => !heldOutSet.has(index));
  const perEpoch = Math.ceil(trained.length / batchSize);
  const stepCount = epochs * perEpoch;
  if (stepCount > MAX_STEPS) {
    throw new ArgumentError(
      `Expected at most ${MAX_STEPS} optimizer steps, got ${stepCount}: ${epochs} epochs of ${perEpoch} batches. Raise \`batch_size\`, or train fewer epochs.`,
      { param: "experimental_config.epochs" },
    );
  }
  const rate = settings.rates(stepCount);
  const validates = (step: number) => (step + 1) % (settings.validationEvery ?? perEpoch) === 0 || step === stepCount - 1;
  function* steps(from = 0): Generator<SftStep> {
    for (let epoch = Math.floor(from / perEpoch); epoch < epochs; epoch++) {
      const order = shuffleSeed === null ? identity(trained.length) : shuffledIndices(trained.length, BigInt(shuffleSeed), epoch);
      for (let step = Math.max(from, epoch * perEpoch); step < (epoch + 1) * perEpoch; step++) {
        const start = (step % perEpoch) * batchSize;
        const examples = order.slice(start, start + batchSize).map((position) => trained[position] as number);
        yield { examples, epoch, adam: { learningRate: rate(step), ...settings.adam }, validates: validates(step) };
      }
    }
  }
  return { stepCount, steps, batchSize, heldOut };
}

function heldOutIndices(count: number, { validationSplit, shuffleSeed }: SftSettings): number[] {
  if (validationSplit === null) return [];
  if (count < 2) {
    throw new ArgumentError("Expected at least two examples for `validation_split`, one to train and one to measure, got one.", {
      param: "experimental_config.validation_split",
    });
  }
  const size = Math.min(Math.max(Math.round(count * validationSplit), 1), count - 1);
  return permutation(count, BigInt(shuffleSeed ?? 0), 0, HOLD_OUT_DOMAIN)
    .slice(0, size)
    .sort((a, b) => a - b);
}

/**
 * Returns a permutation of `0 … count − 1` that depends only on seed and epoch.
 *
 * @param count - Number of indices.
 * @param seed - Shuffle seed.
 * @param epoch - Index of the epoch, from 0.
 * @source Fisher and Yates, in Durstenfeld's form (Algorithm 235, CACM 1964).
 */
export function shuffledIndices(count: number, seed: bigint, epoch: number): number[] {
  return permutation(count, seed, epoch, SHUFFLE_DOMAIN);
}

function permutation(count: number, seed: bigint, epoch: number, domain: number): number[] {
  const result = identity(count);
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor(uniform(seed, epoch, last, domain) * (last + 1));
    [result[last], result[other]] = [result[other] as number, result[last] as number];
  }
  return result;
}

function identity(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
