/** Conversion of trajectory groups to the training rows of one optimizer step. */

import { ArgumentError, DataError } from "../base/errors.ts";
import type { RlConfig, TrajectoryGroup } from "../base/schema/index.ts";
import type { ChatTokenizer } from "../text/tokenizer/index.ts";
import { hasMixedAdvantages, TOKEN_VALUE_PROBLEMS } from "../base/trajectory/token-values.ts";
import { NO_SAMPLED_TURN } from "../base/trajectory/turn.ts";
import { runSteps, type Steps } from "../base/util/steps.ts";
import type { NormalizedEntry } from "./advantages.ts";
import {
  advantagesOf,
  hasTokenAdvantages,
  hasZeroAdvantage,
  type KeptTrajectory,
  normalizeParts,
  partsOf,
  tokenAdvantages,
} from "./parts.ts";
import { mean, populationDeviation } from "./moments.ts";
import type { PolicyObjective } from "./policy-objective.ts";
import { checkRlConfig, type KlReference, type ResolvedRlConfig } from "./rl-config.ts";
import { NO_COUNTS, type Reading, readTrajectory, type ReadTrajectory, type TrajectoryReading } from "./read-trajectory.ts";
import { fitsContext, lossWeights, countTrained } from "./sequences.ts";
import type { SequenceLimits, TurnSpan } from "./types.ts";
import type { AdamParams, LossSpec, Row } from "../base/training-rows.ts";

/** Origin of a training row: its trajectory and turns. */
export interface RowSource {
  /** Index of the group. */
  readonly group: number;
  /** Index of the trajectory within the group. */
  readonly trajectory: number;
  /** Turns of the row. `turn` counts the trajectory's choices: first in the main history, then in each additional history. */
  readonly turns: readonly TurnSpan[];
}

/** Input of one optimizer step of policy optimization. */
export interface RlBatch {
  /**
   * Training rows in the order of groups, trajectories, histories and turns. Weights include the division by the number of trained tokens,
   * so that the plain sum `Σ weights·L` over all rows is the batch's loss.
   */
  readonly rows: readonly Row[];
  /** Origin of each row, in the order of `rows`. */
  readonly sources: readonly RowSource[];
  /** Loss for an engine that computes the whole loss itself. Not used for training if there is an `objective`. */
  readonly loss: LossSpec;
  /** Objective to train instead of `loss`, computed from a first forward pass by `policyObjective`. Null if `loss` is sufficient. */
  readonly objective: PolicyObjective | null;
  /** Reference policy of the KL penalty in `objective`; null without a KL penalty. */
  readonly reference: KlReference | null;
  readonly adam: AdamParams;
  /**
   * Metrics of the batch: `reward/mean` (all trajectories), `reward/std` (population deviation, averaged over groups of at least two
   * trajectories), `advantage/zero_groups` (groups in which every advantage is 0), `data/groups`, `data/trajectories`,
   * `data/trainable_trajectories`, `data/sequences`, `data/sequences_per_rollout` (mean over the trajectories with rows),
   * `data/merged_turns`, `data/drifted_turns`, `data/dropped_sequences` (longer than the context), `tokens/trained`, `tokens/total`,
   * `tokens/dropped` (trained tokens of dropped sequences). With `mask_truncated`, also `data/truncated_trajectories` (trajectories with a
   * turn that ended at the token limit). If choices were rendered, also `data/rendered_turns` and `data/rendered_drift` (rendered turns
   * with known sampled tokens that differ from the template's rendering).
   */
  readonly metrics: Readonly<Record<string, number>>;
  /** Bytes of rendered histories that the vocabulary has no token for. */
  readonly missingBytes: number;
  /** Number of trajectories with such bytes. */
  readonly trajectoriesWithMissingBytes: number;
}

/** Options of {@link buildRlBatch}. */
export interface RlBatchOptions {
  /** Tokenizer that renders choices without token ids. @default none: choices without token ids are rejected */
  readonly tokenizer?: ChatTokenizer | undefined;
}

/**
 * Builds the rows of one optimizer step: turns merged on exact prefixes, group-relative advantages, equal total weight for
 * every trajectory (by default), normalized over the whole batch. Pure: the same input gives the same bytes.
 *
 * Each history becomes separate sequences; all sequences of a trajectory share its advantage, unless `turn_rewards` is set. A trajectory
 * with advantage 0, because its reward equals the group's mean, has no row. Weights are computed after overlong sequences are dropped.
 * Choices with `token_advantages` supply the advantages of their tokens; `token_weights` multiply the weights, and tokens with weight 0 are
 * not trained.
 *
 * @param groups - Groups in wire form, as accepted by the schema. Not modified.
 * @param config - Configuration as accepted by the schema; null and absent mean the defaults, see `checkRlConfig`.
 * @param limits - Context length and vocabulary size of the model.
 * @throws UnsupportedError `E_UNSUPPORTED`, {@link ArgumentError} `E_ARGUMENT` for the configuration; see `checkRlConfig`.
 * @throws ArgumentError `E_ARGUMENT` with the location, for a choice without token ids (and no tokenizer) or without log-probabilities
 *   (unless allowed), and for a group without any choice; with param `trajectory_groups` and the reasons, for a batch that would train
 *   nothing.
 * @throws DataError `E_DATA` for inconsistent token ids and log-probabilities, inconsistent token advantages or weights, a token id outside
 *   the vocabulary, or a non-finite reward.
 * @example
 * ```ts
 * const wire = groups.map((group) => group.toJSON());
 * const { rows, loss, adam } = buildRlBatch(wire, { learning_rate: 1e-3 }, { contextLength: 1024 });
 * const trained = await engine.createModel({ base: "base", seed: 0 });
 * await engine.forwardBackward(trained, rows, loss);
 * await engine.optimStep(trained, adam);
 * ```
 */
export function buildRlBatch(
  groups: readonly TrajectoryGroup[],
  config: RlConfig | null | undefined,
  limits: SequenceLimits,
  options: RlBatchOptions = {},
): RlBatch {
  return runSteps(rlBatchSteps(groups, config, limits, options));
}

/** Computes {@link buildRlBatch} and yields after each trajectory, so that a caller can run other work on the same thread. */
export function* rlBatchSteps(
  groups: readonly TrajectoryGroup[],
  config: RlConfig | null | undefined,
  limits: SequenceLimits,
  options: RlBatchOptions = {},
): Steps<RlBatch> {
  const { settings, kept, normalized, trainedTokens, metrics, counted } = yield* readBatch(groups, config, { limits, ...options });
  const rows: Row[] = [];
  const sources: RowSource[] = [];
  let totalTokens = 0;
  for (const [index, entry] of kept.entries()) {
    const parts = normalized[index] as readonly NormalizedEntry[];
    // All parts of a trajectory have the same weight.
    const { weight } = parts[0] as NormalizedEntry;
    for (const [sequenceIndex, sequence] of entry.sequences.entries()) {
      totalTokens += sequence.tokens.length;
      sources.push({ group: entry.group, trajectory: entry.trajectory, turns: sequence.turns });
      rows.push({
        tokens: sequence.tokens,
        weights: lossWeights(sequence, weight / trainedTokens),
        advantages: tokenAdvantages(sequence, sequenceIndex, { parts: entry.parts, normalized: parts }),
        logprobs: new Float32Array(sequence.logprobs),
      });
    }
    yield;
  }
  const counts = { "data/sequences": rows.length, "data/sequences_per_rollout": rows.length / kept.length, "tokens/total": totalTokens };
  const { loss, objective, reference, adam } = settings;
  return { rows, sources, loss, objective, reference, adam, metrics: { ...metrics, ...counts }, ...counted };
}

/** Checked batch without rows. */
interface ReadBatch {
  readonly settings: ResolvedRlConfig;
  /** Trajectories to train on. */
  readonly kept: readonly KeptTrajectory[];
  /** Weight and advantage of each part of each kept trajectory. */
  readonly normalized: readonly (readonly NormalizedEntry[])[];
  /** Trained tokens of all kept trajectories. */
  readonly trainedTokens: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly counted: Pick<RlBatch, "missingBytes" | "trajectoriesWithMissingBytes">;
}

/** Initial value of the counters of a batch, to be copied. */
const NO_BATCH_COUNTS = {
  ...NO_COUNTS,
  /** Sequences longer than the context. */
  droppedSequences: 0,
  /** Trained tokens of dropped sequences. */
  droppedTokens: 0,
  /** Groups in which every advantage is 0. */
  zeroGroups: 0,
  /** Zero groups whose choices supply token advantages. */
  zeroTokenGroups: 0,
  /** Trajectories with a turn that ended at the token limit. */
  truncated: 0,
  /** Trajectories in which `token_weights` of 0 exclude every token. */
  weightless: 0,
};

/** Counters of a batch. */
type BatchCounts = typeof NO_BATCH_COUNTS;

/** Reads and checks all trajectories, selects the trajectories to train on, and normalizes their advantages over the batch. */
function* readBatch(groups: readonly TrajectoryGroup[], config: RlConfig | null | undefined, reading: Reading): Steps<ReadBatch> {
  const { limits } = reading;
  const settings = checkRlConfig(config);
  const counts: BatchCounts = { ...NO_BATCH_COUNTS };
  const kept: KeptTrajectory[] = [];
  const rewards: number[] = [];
  const deviations: number[] = [];

  for (const [groupIndex, group] of groups.entries()) {
    const where = `trajectory_groups.${groupIndex}`;
    const read = yield* readGroup(group, where, { ...reading, allowsUnknownLogprobs: settings.allowsUnknownLogprobs, counts });
    checkTokenAdvantages(read, settings, where);
    const groupRewards = read.map(({ reward }) => reward);
    for (const reward of groupRewards) rewards.push(reward);
    if (groupRewards.length > 1) deviations.push(populationDeviation(groupRewards));
    const { environment } = group.metadata;
    const origin = { group: groupIndex, environment: typeof environment === "string" ? environment : null };
    for (const trajectory of selectTrained(read, origin, { settings, limits, counts })) kept.push(trajectory);
  }

  const normalized = normalizeParts(kept, settings, rewards.length);
  const trainedTokens = kept.reduce((sum, entry) => sum + entry.tokens, 0);
  if (normalized.flat().every(hasZeroAdvantage)) {
    const truncated = settings.masksTruncated ? counts.truncated : 0;
    const { contextLength } = limits;
    const batch = { groups: groups.length, trajectories: rewards.length, contextLength, isBalancedAway: kept.length > 0 };
    throw nothingToTrainError({ ...counts, truncated }, batch);
  }
  const sizes = { groups: groups.length, trainable: kept.length, trainedTokens };
  const metrics = batchMetrics({ rewards, deviations }, sizes, counts, settings.masksTruncated);
  const { missingBytes, trajectoriesWithMissingBytes } = counts;
  return { settings, kept, normalized, trainedTokens, metrics, counted: { missingBytes, trajectoriesWithMissingBytes } };
}

/**
 * Returns the metrics of a batch.
 *
 * @param deviations - Deviation of the rewards of each group with several trajectories.
 * @param masksTruncated - Whether truncated trajectories are not trained.
 */
function batchMetrics(
  { rewards, deviations }: { readonly rewards: readonly number[]; readonly deviations: readonly number[] },
  { groups, trainable, trainedTokens }: { readonly groups: number; readonly trainable: number; readonly trainedTokens: number },
  counts: BatchCounts,
  masksTruncated: boolean,
): Record<string, number> {
  return {
    "reward/mean": mean(rewards),
    "reward/std": mean(deviations),
    "advantage/zero_groups": counts.zeroGroups,
    "data/groups": groups,
    "data/trajectories": rewards.length,
    "data/trainable_trajectories": trainable,
    "data/merged_turns": counts.merged,
    "data/drifted_turns": counts.drifted,
    "data/dropped_sequences": counts.droppedSequences,
    "tokens/trained": trainedTokens,
    "tokens/dropped": counts.droppedTokens,
    ...(masksTruncated ? { "data/truncated_trajectories": counts.truncated } : {}),
    ...(counts.rendered === 0 ? {} : { "data/rendered_turns": counts.rendered, "data/rendered_drift": counts.renderedDrift }),
  };
}

/** Reads the trajectories of a group, and yields after each. @throws ArgumentError `E_ARGUMENT` for a group without any choice. */
function* readGroup({ trajectories }: TrajectoryGroup, where: string, reading: TrajectoryReading): Steps<ReadTrajectory[]> {
  const read: ReadTrajectory[] = [];
  for (const [index, trajectory] of trajectories.entries()) {
    read.push(readTrajectory(trajectory, `${where}.trajectories.${index}`, reading));
    yield;
  }
  if (read.length > 0 && read.every(({ sequences }) => sequences.length === 0)) {
    throw new ArgumentError(`${where}: ${NO_SAMPLED_TURN}`, { param: where });
  }
  return read;
}

/**
 * Selects the trajectories of a group to train on: with an advantage other than 0, and a trained token within the context. Updates
 * `counts`.
 */
function selectTrained(
  read: readonly ReadTrajectory[],
  origin: Pick<KeptTrajectory, "group" | "environment">,
  { settings, limits, counts }: { readonly settings: ResolvedRlConfig; readonly limits: SequenceLimits; readonly counts: BatchCounts },
): KeptTrajectory[] {
  const advantages = advantagesOf(read, settings);
  if (advantages.every((each) => each.every((advantage) => advantage === 0))) {
    counts.zeroGroups++;
    if (hasTokenAdvantages(read)) counts.zeroTokenGroups++;
  }
  const kept: KeptTrajectory[] = [];
  for (const [index, { sequences, isTruncated }] of read.entries()) {
    const trajectoryAdvantages = advantages[index] as Float64Array;
    if (isTruncated) counts.truncated++;
    if (sequences.length > 0 && sequences.every((sequence) => countTrained(sequence) === 0)) counts.weightless++;
    if (trajectoryAdvantages.every((advantage) => advantage === 0) || (isTruncated && settings.masksTruncated)) continue;
    for (const sequence of sequences) {
      if (fitsContext(sequence, limits)) continue;
      counts.droppedSequences++;
      counts.droppedTokens += countTrained(sequence);
    }
    const fitting = sequences.filter((sequence) => fitsContext(sequence, limits) && countTrained(sequence) > 0);
    const tokens = fitting.reduce((sum, sequence) => sum + countTrained(sequence), 0);
    if (tokens === 0) continue;
    const parts = partsOf(fitting, trajectoryAdvantages, settings);
    if (hasTokenAdvantages(read) && parts.every(hasZeroAdvantage)) continue;
    kept.push({ ...origin, trajectory: index, sequences: fitting, tokens, parts });
  }
  return kept;
}

/**
 * Checks that either all choices of a group supply token advantages, or none does.
 *
 * @throws DataError `E_DATA` if only some do; {@link ArgumentError} `E_ARGUMENT` for token advantages in a job with `turn_rewards`.
 */
function checkTokenAdvantages(read: readonly ReadTrajectory[], { turnRewards }: ResolvedRlConfig, where: string): void {
  if (hasMixedAdvantages(read.flatMap(({ choices }) => choices))) {
    throw new DataError(`${where}: ${TOKEN_VALUE_PROBLEMS["mixed-token-advantages"]}`, { param: where });
  }
  if (!turnRewards || !hasTokenAdvantages(read)) return;
  throw new ArgumentError(`${where}: ${TOKEN_VALUE_PROBLEMS["token-advantages-with-turn-rewards"]}`, {
    param: "experimental_config.turn_rewards",
  });
}

/** Creates the error for a batch without a trainable trajectory; the message lists the reasons. */
function nothingToTrainError(
  { sampling, zeroGroups, zeroTokenGroups, truncated, weightless, droppedSequences }: BatchCounts,
  batch: { readonly groups: number; readonly trajectories: number; readonly contextLength: number; readonly isBalancedAway: boolean },
): ArgumentError {
  const { groups, trajectories, contextLength, isBalancedAway } = batch;
  const constantGroups = zeroGroups - zeroTokenGroups;
  const reasons = [
    constantGroups > 0 &&
      `the rewards are all equal in ${constantGroups} of ${groups} groups (use a finer reward, larger groups, or easier scenarios)`,
    zeroTokenGroups > 0 &&
      `no trained token has an advantage other than 0 in ${zeroTokenGroups} of ${groups} groups with \`token_advantages\``,
    truncated > 0 &&
      `${truncated} of ${trajectories} trajectories have a turn that ended at the token limit, and \`mask_truncated\` excludes them (allow longer turns, or leave \`mask_truncated\` out)`,
    weightless > 0 && `${weightless} of ${trajectories} trajectories have \`token_weights\` of 0 for every token`,
    droppedSequences > 0 && `${droppedSequences} sequences are longer than the model's context of ${contextLength} tokens`,
    sampling < trajectories && `${trajectories - sampling} of ${trajectories} trajectories have no sampled turn`,
    isBalancedAway && "`advantage_balance` takes away every advantage that is left",
  ];
  const applicable = trajectories === 0 ? ["there is no trajectory"] : reasons.filter((reason) => reason !== false);
  return new ArgumentError(`The batch would train nothing: ${applicable.join("; ")}.`, { param: "trajectory_groups" });
}
