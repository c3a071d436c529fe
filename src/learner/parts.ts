/** Parts of a batch with separate advantages: whole trajectories or single turns. */

import { groupAdvantages, normalizeBatch, type NormalizedEntry } from "./advantages.ts";
import type { ReadTrajectory } from "./read-trajectory.ts";
import type { RlSettings } from "./rl-config.ts";
import { tokenWeights } from "./sequences.ts";
import { groupTurnAdvantages, turnReturns } from "./turn-rewards.ts";
import type { SampledSequence } from "./types.ts";

/** Trajectory that is trained. */
export interface KeptTrajectory {
  readonly group: number;
  readonly trajectory: number;
  readonly sequences: readonly SampledSequence[];
  /** Number of trained tokens. */
  readonly tokens: number;
  /** Parts with separate advantages: the whole trajectory, or each of its turns. */
  readonly parts: readonly AdvantagePart[];
}

/** Trajectory or turn with its advantage. */
export interface AdvantagePart {
  readonly advantage: number;
  readonly tokens: number;
  /** Index of the turn; null = the whole trajectory. */
  readonly turn: number | null;
}

/** Computes the advantages of one group: per trajectory a single advantage, or with `turnRewards` one per turn. */
export function advantagesOf(read: readonly ReadTrajectory[], settings: RlSettings): Float64Array[] {
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

/** Returns one part per turn of the sequences. @param advantages - Advantages indexed by turn. */
export function turnParts(sequences: readonly SampledSequence[], advantages: Float64Array): AdvantagePart[] {
  return sequences.flatMap(({ turns }) =>
    turns.map(({ turn, length }) => ({ advantage: advantages[turn] as number, tokens: length, turn })),
  );
}

/** Applies `normalizeBatch` to all parts. Returns one entry per part, grouped by trajectory. */
export function normalizeParts(kept: readonly KeptTrajectory[], { advantageBalance, reduction }: RlSettings): NormalizedEntry[][] {
  const entries = kept.flatMap(({ parts, tokens }) => parts.map((part) => ({ ...part, trajectoryTokens: tokens })));
  const normalized = normalizeBatch(entries, advantageBalance, reduction);
  let start = 0;
  return kept.map(({ parts }) => normalized.slice(start, (start += parts.length)));
}

/** Returns the advantage per token, shape `[T]`: the advantage of the part that contains a trained token, 0 elsewhere. */
export function tokenAdvantages(
  sequence: SampledSequence,
  parts: readonly AdvantagePart[],
  normalized: readonly NormalizedEntry[],
): Float32Array {
  const whole = parts[0]?.turn === null ? normalized[0] : undefined;
  if (whole !== undefined) return tokenWeights(sequence, whole.advantage);
  const advantages = new Float32Array(sequence.tokens.length);
  const byTurn = new Map(parts.map(({ turn }, index) => [turn, normalized[index]?.advantage ?? 0]));
  for (const { turn, start, length } of sequence.turns) advantages.fill(byTurn.get(turn) ?? 0, start, start + length);
  return advantages;
}
