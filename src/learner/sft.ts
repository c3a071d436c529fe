/** Supervised optimizer steps from token sequences: batches and weights. */

import { ArgumentError } from "../base/errors.ts";
import type { SftConfig, SftExperimentalConfig } from "../base/schema/index.ts";
import { fillTrained, countTrained } from "./sequences.ts";
import { planSteps, type TrainingPlan } from "./plan.ts";
import { checkSftConfig } from "./sft-config.ts";
import type { TokenSequence } from "./types.ts";
import type { LossSpec, Row } from "../base/training-rows.ts";

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
  const totalWeight = sequences.reduce((sum, sequence) => sum + countTrained(sequence) * (sequence.weight ?? 1), 0);
  return {
    rows: sequences.map((sequence) => ({ tokens: sequence.tokens, weights: fillTrained(sequence, (sequence.weight ?? 1) / totalWeight) })),
    loss: { kind: "cross-entropy" },
    tokens: sequences.reduce((sum, sequence) => sum + sequence.tokens.length, 0),
    trainedTokens: trained,
  };
}

/**
 * Plans the steps of an SFT job, see {@link planSteps}.
 *
 * @param exampleCount - Number of examples in the data, at least 1; at least 2 with a `validation_split`.
 * @param config - Configuration as accepted by the schema; null and absent mean the default, see `checkSftConfig`.
 * @param experimental - Experimental configuration as accepted by the schema; null and absent mean the default.
 * @throws ArgumentError `E_ARGUMENT` as `planSteps` and `checkSftConfig`; UnsupportedError `E_UNSUPPORTED` as `checkSftConfig`.
 */
export function planSft(exampleCount: number, config?: SftConfig | null, experimental?: SftExperimentalConfig | null): TrainingPlan {
  return planSteps(exampleCount, checkSftConfig(config, experimental));
}
