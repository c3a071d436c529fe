/** Parts of a batch with separate advantages: whole trajectories or single turns. */

import { type BatchEntry, groupAdvantages, normalizeBatch, type NormalizedEntry } from "./advantages.ts";
import type { ReadTrajectory } from "./read-trajectory.ts";
import type { ResolvedRlConfig } from "./rl-config.ts";
import { fillTrained, countTrained } from "./sequences.ts";
import { groupTurnAdvantages, turnReturns } from "./turn-rewards.ts";
import type { SampledSequence } from "./types.ts";

/** Trajectory that is trained. */
export interface KeptTrajectory {
  /** Index of its group in the batch. */
  readonly group: number;
  /** Index of the trajectory in its group. */
  readonly trajectory: number;
  /** Metadata entry `environment` of the group; null without one. */
  readonly environment: string | null;
  /** Sequences that are trained: sequences longer than the context are left out. */
  readonly sequences: readonly SampledSequence[];
  /** Number of trained tokens in all sequences. */
  readonly tokens: number;
  /** Parts with separate advantages: the whole trajectory, each of its turns, or with token advantages each sequence. */
  readonly parts: readonly AdvantagePart[];
}

/** Part of a trajectory with a separate advantage: the whole trajectory, a turn, or a sequence with token advantages. */
export interface AdvantagePart extends Pick<BatchEntry, "advantage" | "advantages" | "tokens"> {
  /** Index of the turn; null = the whole trajectory or sequence. */
  readonly turn: number | null;
}

/**
 * Computes the advantages of one group: per trajectory a single advantage, with `turnRewards` one per turn, and with token advantages one
 * per trained token.
 */
export function advantagesOf(read: readonly ReadTrajectory[], settings: ResolvedRlConfig): Float64Array[] {
  if (hasTokenAdvantages(read))
    return read.map(({ sequences }) => Float64Array.from(sequences.flatMap((each) => [...suppliedAdvantages(each)])));
  if (settings.turnRewards) {
    // A trajectory without a turn still contributes its reward to the baseline of the others.
    const returns = read.map(({ reward, turnRewards }) => (turnRewards.length === 0 ? [reward] : turnReturns(reward, turnRewards)));
    return groupTurnAdvantages(returns, settings.advantages);
  }
  const advantages = groupAdvantages(
    read.map(({ reward }) => reward),
    settings.advantages,
  );
  return Array.from(advantages, (advantage) => Float64Array.of(advantage));
}

/** Whether choices supply the advantages of a group's tokens. */
export function hasTokenAdvantages(read: readonly ReadTrajectory[]): boolean {
  return read.some(({ sequences }) => sequences.some(({ tokenAdvantages }) => tokenAdvantages !== undefined));
}

/** Returns the advantages that the choices supply for the trained tokens of a sequence; 0 for every token if they supply none. */
function suppliedAdvantages({ tokenAdvantages, mask }: SampledSequence): Float64Array {
  return (tokenAdvantages ?? new Float64Array(mask.length)).filter((_, t) => mask[t] === 1);
}

/**
 * Returns the parts of a trajectory: one per sequence with token advantages, one per turn with `turnRewards`, else a single one.
 *
 * @param sequences - Sequences of the trajectory that are trained.
 * @param advantages - Advantages of {@link advantagesOf}, by turn, or a single one.
 */
export function partsOf(sequences: readonly SampledSequence[], advantages: Float64Array, settings: ResolvedRlConfig): AdvantagePart[] {
  if (sequences.some(({ tokenAdvantages }) => tokenAdvantages !== undefined)) {
    return sequences.map((sequence) => {
      const supplied = suppliedAdvantages(sequence);
      return { advantage: 0, advantages: supplied, tokens: supplied.length, turn: null };
    });
  }
  if (settings.turnRewards) {
    return sequences.flatMap(({ mask, turns }) =>
      turns.map(({ turn, start, length }) => {
        const tokens = mask.subarray(start, start + length).reduce((sum, bit) => sum + bit, 0);
        return { advantage: advantages[turn] as number, tokens, turn };
      }),
    );
  }
  const tokens = sequences.reduce((sum, sequence) => sum + countTrained(sequence), 0);
  return [{ advantage: advantages[0] as number, tokens, turn: null }];
}

/** Whether every trained token of a part has advantage 0. */
export function hasZeroAdvantage({ advantage, advantages }: Pick<BatchEntry, "advantage" | "advantages">): boolean {
  return advantages?.every((each) => each === 0) ?? advantage === 0;
}

/**
 * Applies `normalizeBatch` to all parts. Returns one entry per part, grouped by trajectory.
 *
 * @param trajectories - Number of trajectories in the batch, including trajectories that are not trained.
 */
export function normalizeParts(
  kept: readonly KeptTrajectory[],
  { advantageBalance, reduction, advantageScope }: ResolvedRlConfig,
  trajectories: number,
): NormalizedEntry[][] {
  const entries = kept.flatMap(({ parts, tokens, environment }) =>
    parts.map((part) => ({ ...part, trajectoryTokens: tokens, set: advantageScope === "environment" ? environment : null })),
  );
  const batchReduction = typeof reduction === "object" ? { divisor: reduction.tokensPerTrajectory * trajectories } : reduction;
  const normalized = normalizeBatch(entries, advantageBalance, batchReduction);
  let nextEntry = 0;
  return kept.map(({ parts }) => {
    const start = nextEntry;
    nextEntry += parts.length;
    return normalized.slice(start, nextEntry);
  });
}

/** Parts of a trajectory with their normalized advantages. */
export interface NormalizedParts {
  readonly parts: readonly AdvantagePart[];
  /** Weight and advantage of each part, in the order of `parts`. */
  readonly normalized: readonly NormalizedEntry[];
}

/**
 * Returns the advantages of a sequence's tokens, shape `[T]`: for a trained token the normalized advantage of the part that contains it, 0
 * elsewhere.
 *
 * @param index - Index of the sequence among the trained sequences of the trajectory.
 * @param trajectory - Parts of the trajectory, and their normalized advantages in the same order.
 */
export function tokenAdvantages(sequence: SampledSequence, index: number, { parts, normalized }: NormalizedParts): Float32Array {
  // With supplied advantages there is one part per sequence, see {@link partsOf}.
  const supplied = normalized[index]?.advantages;
  if (supplied !== undefined) {
    let suppliedIndex = 0;
    return Float32Array.from(sequence.mask, (bit) => (bit === 1 ? (supplied[suppliedIndex++] ?? 0) : 0));
  }
  const isWholeTrajectory = parts[0]?.turn === null;
  if (isWholeTrajectory) return fillTrained(sequence, normalized[0]?.advantage ?? 0);
  const advantages = new Float32Array(sequence.tokens.length);
  const byTurn = new Map(parts.map(({ turn }, part) => [turn, normalized[part]?.advantage ?? 0]));
  for (const { turn, start, length } of sequence.turns) advantages.fill(byTurn.get(turn) ?? 0, start, start + length);
  return advantages;
}
