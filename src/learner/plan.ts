/** Plan of a job over a dataset: the examples and the learning rate of each optimizer step, and the held-out examples. */

import { ArgumentError } from "../base/errors.ts";
import { uniform } from "../base/util/rng.ts";
import type { AdamParams } from "../base/training-rows.ts";
import type { StepSettings } from "./step-settings.ts";

/** RNG domain of the order of examples: `SFT` in ASCII, and 0. Domains separate draws with the same seed from each other. */
const SHUFFLE_DOMAIN = 0x53_46_54_00;
/** RNG domain of the held-out examples. */
const HOLD_OUT_DOMAIN = 0x53_46_54_01;
/** Max optimizer steps of a job; limited because a job records an event for each step. */
export const MAX_STEPS = 1_000_000;

/** Optimizer step of an {@link TrainingPlan}. */
export interface TrainingStep {
  /** Indices of the step's examples. */
  readonly examples: readonly number[];
  /** Index of the epoch, from 0. */
  readonly epoch: number;
  readonly adam: AdamParams;
  /** Whether the held-out examples are evaluated after the step. */
  readonly validates: boolean;
}

/** All steps of a job over a dataset, fixed when the plan is created. */
export interface TrainingPlan {
  readonly stepCount: number;
  /** Generates the steps lazily and in order, starting at index `from`. @default from 0 */
  readonly steps: (from?: number) => Iterable<TrainingStep>;
  readonly batchSize: number;
  /** Indices of the held-out examples, ascending; empty without a `validation_split`. */
  readonly heldOut: readonly number[];
}

/**
 * Plans the examples and the learning rate of each optimizer step. Every epoch uses each example that is not held out once; the last batch
 * of an epoch may be smaller. With a `shuffle_seed` each epoch has a separate order, a function of seed and epoch only. The examples held
 * out by a `validation_split` are drawn with the same seed (0 without `shuffle_seed`): the given fraction of the examples, rounded, at
 * least one and never all.
 *
 * @param exampleCount - Number of examples in the data, at least 1; at least 2 with a `validation_split`.
 * @param settings - Settings of the job, with all defaults filled in.
 * @throws ArgumentError `E_ARGUMENT` without examples, if a list of learning rates does not have one per step, and for more than
 *   1,000,000 steps.
 */
export function planSteps(exampleCount: number, settings: StepSettings): TrainingPlan {
  const { batchSize, epochs, shuffleSeed } = settings;
  if (exampleCount < 1) throw new ArgumentError("Expected at least one example to train on, got none.", { param: "training_data_url" });
  const heldOut = heldOutIndices(exampleCount, settings);
  const heldOutSet = new Set(heldOut);
  const trainedIndices = identity(exampleCount).filter((index) => !heldOutSet.has(index));
  const stepsPerEpoch = Math.ceil(trainedIndices.length / batchSize);
  const stepCount = epochs * stepsPerEpoch;
  if (stepCount > MAX_STEPS) {
    throw new ArgumentError(
      `Expected at most ${MAX_STEPS} optimizer steps, got ${stepCount}: ${epochs} epochs of ${stepsPerEpoch} batches. Raise \`batch_size\`, or train fewer epochs.`,
      { param: `${settings.path}.epochs` },
    );
  }
  const rateOfStep = settings.rates(stepCount);
  const validates = (step: number) => (step + 1) % (settings.validationEvery ?? stepsPerEpoch) === 0 || step === stepCount - 1;
  function* steps(from = 0): Generator<TrainingStep> {
    for (let epoch = Math.floor(from / stepsPerEpoch); epoch < epochs; epoch++) {
      const order =
        shuffleSeed === null ? identity(trainedIndices.length) : shuffledIndices(trainedIndices.length, BigInt(shuffleSeed), epoch);
      for (let step = Math.max(from, epoch * stepsPerEpoch); step < (epoch + 1) * stepsPerEpoch; step++) {
        const start = (step % stepsPerEpoch) * batchSize;
        const examples = order.slice(start, start + batchSize).map((position) => trainedIndices[position] as number);
        yield { examples, epoch, adam: { learningRate: rateOfStep(step), ...settings.adam }, validates: validates(step) };
      }
    }
  }
  return { stepCount, steps, batchSize, heldOut };
}

/** Draws the examples that a `validation_split` holds out; empty without one. */
function heldOutIndices(count: number, { validationSplit, shuffleSeed, path }: StepSettings): number[] {
  if (validationSplit === null) return [];
  if (count < 2) {
    throw new ArgumentError("Expected at least two examples for `validation_split`, one to train and one to measure, got one.", {
      param: `${path}.validation_split`,
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

/** Returns a permutation that depends only on its arguments. */
function permutation(count: number, seed: bigint, epoch: number, domain: number): number[] {
  const result = identity(count);
  for (let lastIndex = count - 1; lastIndex > 0; lastIndex--) {
    const swapIndex = Math.floor(uniform(seed, epoch, lastIndex, domain) * (lastIndex + 1));
    [result[lastIndex], result[swapIndex]] = [result[swapIndex] as number, result[lastIndex] as number];
  }
  return result;
}

/** Returns `0 … count − 1`. */
function identity(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
