/** Merging of sampled turns to token sequences that contain exactly the sampled tokens. */

import { ArgumentError, DataError } from "../base/errors.ts";
import type { AssistantChoice } from "../base/schema/index.ts";
import { startsWith } from "../base/trajectory/histories.ts";
import { TURN_PROBLEMS, turnProblem } from "../base/trajectory/turn.ts";
import type { SampledSequence } from "./types.ts";

/** Sampled turn: token ids of its prompt and of its answer, and the answer's log-probabilities. */
export interface TokenTurn {
  readonly prompt: readonly number[];
  readonly sampled: readonly number[];
  /** Log-probability of each sampled token; NaN where unknown. */
  readonly logprobs: readonly number[];
}

/** Result of {@link mergeTurns}. */
export interface MergedTurns {
  readonly sequences: readonly SampledSequence[];
  /** Number of turns that continue the sequence of the previous turn. */
  readonly mergedTurns: number;
  /** Number of turns, after the first, that do not continue the previous turn: the history was rewritten, or rendered to other tokens. */
  readonly driftedTurns: number;
}

/**
 * Reads token ids and log-probabilities of a choice.
 *
 * @param choice - Choice in wire form. Not modified.
 * @param where - Location of the choice for error messages, e.g. `trajectory_groups.0.trajectories.2.messages_and_choices.1`.
 * @param options - `allowsUnknownLogprobs`: whether the choice may lack log-probabilities, which are then NaN. Default false.
 * @throws ArgumentError `E_ARGUMENT` if token ids or log-probabilities are absent: the choice cannot be trained.
 * @throws DataError `E_DATA` if token ids and log-probabilities are inconsistent.
 */
export function readTurn(
  choice: AssistantChoice,
  where: string,
  { allowsUnknownLogprobs = false }: { readonly allowsUnknownLogprobs?: boolean | undefined } = {},
): TokenTurn {
  const problem = turnProblem(choice);
  if (problem === "choice-without-logprobs" && allowsUnknownLogprobs) {
    const turn = readTurn(withPlaceholderLogprobs(choice), where);
    return { ...turn, logprobs: turn.logprobs.map(() => Number.NaN) };
  }
  if (problem === "choice-without-token-ids" || problem === "choice-without-logprobs") {
    throw new ArgumentError(`${where}: ${TURN_PROBLEMS[problem]}`, { param: where });
  }
  if (problem !== null) throw new DataError(`${where}: ${TURN_PROBLEMS[problem]}`, { param: where });
  return {
    prompt: choice.prompt_token_ids ?? [],
    sampled: choice.token_ids ?? [],
    logprobs: (choice.logprobs?.content ?? []).map((entry) => entry.logprob),
  };
}

/** Returns a choice with the log-probability 0 for each of its tokens, for training that does not use log-probabilities. */
export function withPlaceholderLogprobs(choice: AssistantChoice): AssistantChoice {
  const content = (choice.token_ids ?? []).map(() => ({ token: "", logprob: 0, top_logprobs: [] }));
  return { ...choice, logprobs: { content } };
}

/** Whether a choice has the token ids of its prompt and of its answer. */
export function hasTokenIds({ prompt_token_ids: prompt, token_ids: sampled }: AssistantChoice): boolean {
  return Array.isArray(prompt) && Array.isArray(sampled);
}

/** Sequence to which turns are added. */
interface GrowingSequence {
  /** Tokens of the last turn: its prompt, which repeats all earlier turns, and its answer. */
  tokens: number[];
  readonly trained: { readonly turn: number; readonly start: number; readonly logprobs: readonly number[] }[];
}

/**
 * Merges the turns of one history. A turn continues the previous sequence if and only if the turn's prompt starts with the tokens of that
 * sequence; otherwise the turn begins a new sequence. Tokens are never re-rendered, so training uses exactly the sampled tokens.
 *
 * @param turns - Turns in the order of the conversation. Not modified.
 */
export function mergeTurns(turns: readonly TokenTurn[]): MergedTurns {
  const merged: GrowingSequence[] = [];
  let mergedTurns = 0;
  let driftedTurns = 0;
  for (const [turn, { prompt, sampled, logprobs }] of turns.entries()) {
    const previous = merged.at(-1);
    const isContinuation = previous !== undefined && startsWith(prompt, previous.tokens);
    const sequence = isContinuation ? previous : { tokens: [], trained: [] };
    if (isContinuation) mergedTurns++;
    else {
      if (previous !== undefined) driftedTurns++;
      merged.push(sequence);
    }
    sequence.tokens = [...prompt, ...sampled];
    sequence.trained.push({ turn, start: prompt.length, logprobs });
  }
  const sequences = merged.map(({ tokens, trained }) => {
    const mask = new Uint8Array(tokens.length);
    const logprobs = new Float64Array(tokens.length).fill(Number.NaN);
    for (const span of trained) {
      mask.fill(1, span.start, span.start + span.logprobs.length);
      logprobs.set(span.logprobs, span.start);
    }
    const spans = trained.map(({ turn, start, logprobs: { length } }) => ({ turn, start, length }));
    return { tokens: new Int32Array(tokens), mask, logprobs, turns: spans };
  });
  return { sequences, mergedTurns, driftedTurns };
}
