/** Conversion of trajectories in wire form to the token sequences of their histories. */

import { DataError } from "../base/errors.ts";
import type { AssistantChoice, Trajectory, TrajectoryGroup } from "../base/schema/index.ts";
import type { ChatTokenizer } from "../text/tokenizer/index.ts";
import { isChoice } from "../base/trajectory/messages.ts";
import { TOKEN_VALUE_PROBLEMS, tokenValueProblem } from "../base/trajectory/token-values.ts";
import { allChoices, historiesOf } from "../base/trajectory/trajectory.ts";
import { hasTokenIds, mergeTurns, readTurn, type TokenTurn } from "./merge.ts";
import { type LocatedHistory, type RenderedTurn, renderTurn } from "./render.ts";
import { requireTokenIds } from "./sequences.ts";
import type { SampledSequence, SequenceLimits } from "./types.ts";

/** Settings for reading trajectories. */
export interface Reading {
  readonly limits: SequenceLimits;
  /** Tokenizer that renders choices without token ids. @default none: such choices are rejected */
  readonly tokenizer?: ChatTokenizer | undefined;
}

/** Trajectory in the form that the learner uses. */
export interface ReadTrajectory {
  readonly reward: number;
  /** Reward of each sampled turn, indexed by `TurnSpan.turn`; 0 for a choice without a reward. */
  readonly turnRewards: readonly number[];
  readonly sequences: readonly SampledSequence[];
  /** Sampled turns of all histories, indexed by `TurnSpan.turn`. */
  readonly choices: readonly AssistantChoice[];
  /** Whether a turn ended at the token limit (`finish_reason` is `length`). */
  readonly isTruncated: boolean;
}

/** Initial value of {@link ReadCounts}, to be copied. */
export const NO_COUNTS = {
  /** Turns that continue the sequence of the previous turn. */
  merged: 0,
  /** Turns, after the first of a history, that do not continue the previous turn. */
  drifted: 0,
  /** Trajectories with at least one sampled turn. */
  sampling: 0,
  /** Turns without token ids, rendered through the chat template. */
  rendered: 0,
  /** Rendered turns with known sampled tokens that differ from the template's rendering. */
  renderedDrift: 0,
  /** Bytes of rendered histories that the vocabulary has no token for. */
  missingBytes: 0,
  /** Trajectories with such bytes. */
  trajectoriesWithMissingBytes: 0,
} as const;

/** Counters that {@link readTrajectory} updates. */
export type ReadCounts = { -readonly [Name in keyof typeof NO_COUNTS]: number };

/** Settings for reading the trajectories of one batch, with its counters. */
export interface TrajectoryReading extends Reading {
  readonly allowsUnknownLogprobs: boolean;
  readonly counts: ReadCounts;
}

/**
 * Reads all histories of a trajectory and merges turns that continue each other. Updates `reading.counts`.
 *
 * @param where - Location of the trajectory for error messages.
 * @throws the errors of `buildRlBatch` for a trajectory that cannot be trained.
 */
export function readTrajectory(trajectory: Trajectory, where: string, reading: TrajectoryReading): ReadTrajectory {
  const { limits, counts } = reading;
  if (!Number.isFinite(trajectory.reward)) {
    throw new DataError(`${where}.reward: expected a finite number, got ${trajectory.reward}.`, { param: `${where}.reward` });
  }
  // The policy version of a choice takes precedence over the one of its trajectory.
  const trajectoryVersion = trajectory.initial_policy_version ?? trajectory.final_policy_version ?? null;
  /** Choices of all histories read so far. */
  const choices: AssistantChoice[] = [];
  const sequences: SampledSequence[] = [];
  let missingBytes = 0;
  for (const { items, tools, path } of historiesOf(trajectory)) {
    const history = { items, tools, location: `${where}.${path}` };
    const turns = readTurns(history, reading);
    // The prompt of a later turn repeats the earlier turns, so the maximum counts and not the sum.
    missingBytes += turns.reduce((max, turn) => Math.max(max, turn.missingBytes ?? 0), 0);
    const merged = mergeTurns(turns);
    counts.merged += merged.mergedTurns;
    counts.drifted += merged.driftedTurns;
    for (const sequence of merged.sequences) requireTokenIds(sequence, limits, history.location);
    const historyChoices = items.filter(isChoice);
    const earlierTurns = choices.length;
    choices.push(...historyChoices);
    for (const sequence of merged.sequences) {
      const spans = sequence.turns.map((span) => {
        const policyVersion = historyChoices[span.turn]?.policy_version ?? trajectoryVersion;
        return { ...span, turn: earlierTurns + span.turn, policyVersion };
      });
      sequences.push({ ...withTokenValues(sequence, historyChoices), turns: spans });
    }
  }
  if (sequences.length > 0) counts.sampling++;
  counts.missingBytes += missingBytes;
  if (missingBytes > 0) counts.trajectoriesWithMissingBytes++;
  return {
    reward: trajectory.reward,
    turnRewards: choices.map((choice) => choice.reward ?? 0),
    sequences,
    choices,
    isTruncated: choices.some((choice) => choice.finish_reason === "length"),
  };
}

/** Sampled turn of a history; `missingBytes` is set for a rendered turn. */
type HistoryTurn = TokenTurn & Partial<RenderedTurn>;

/** Reads or renders the choices of a history, in order. */
function readTurns(history: LocatedHistory, reading: TrajectoryReading): HistoryTurn[] {
  const turns: HistoryTurn[] = [];
  for (const [index, item] of history.items.entries()) if (isChoice(item)) turns.push(readOrRenderTurn(history, index, reading));
  return turns;
}

/**
 * Adds the supplied advantages and weights of the choices to a sequence. A token with weight 0 is excluded by the mask.
 *
 * @param choices - Choices of the sequence's history; the spans of the sequence count turns within this history.
 */
function withTokenValues(sequence: SampledSequence, choices: readonly AssistantChoice[]): SampledSequence {
  const spans = sequence.turns.map(({ turn, start }) => ({ start, ...choices[turn] }));
  /** Returns values of shape `[T]`, `initial` outside of turns that have them; undefined if no turn has any. */
  const fillTurns = (initial: number, name: "token_advantages" | "token_weights"): Float64Array | undefined => {
    if (spans.every((span) => !span[name])) return undefined;
    const values = new Float64Array(sequence.tokens.length).fill(initial);
    for (const span of spans) values.set(span[name] ?? [], span.start);
    return values;
  };
  const tokenAdvantages = fillTurns(0, "token_advantages");
  const tokenWeightFactors = fillTurns(1, "token_weights");
  if (tokenAdvantages === undefined && tokenWeightFactors === undefined) return sequence;
  const mask = sequence.mask.map((bit, t) => (tokenWeightFactors?.[t] === 0 ? 0 : bit));
  return { ...sequence, mask, tokenAdvantages, tokenWeightFactors };
}

/** Reads the choice at an index of a history: from its token ids, or rendered if it has none and there is a tokenizer. */
function readOrRenderTurn(
  history: LocatedHistory,
  index: number,
  { tokenizer, allowsUnknownLogprobs, counts }: TrajectoryReading,
): HistoryTurn {
  const choice = history.items[index] as AssistantChoice;
  const invalid = tokenValueProblem(choice);
  if (invalid !== null) {
    const where = `${history.location}.${index}`;
    throw new DataError(`${where}: ${TOKEN_VALUE_PROBLEMS[invalid]}`, { param: where });
  }
  if (hasTokenIds(choice) || tokenizer === undefined) return readTurn(choice, `${history.location}.${index}`, { allowsUnknownLogprobs });
  const turn = renderTurn(history, index, { tokenizer, allowsUnknownLogprobs });
  counts.rendered++;
  if (turn.drifted) counts.renderedDrift++;
  return turn;
}

/** Whether any choice lacks token ids, so that the batch needs a tokenizer. */
export function needsRendering(groups: readonly TrajectoryGroup[]): boolean {
  return groups.some(({ trajectories }) => trajectories.some((trajectory) => !allChoices(trajectory).every(hasTokenIds)));
}
