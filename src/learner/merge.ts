/** From sampled turns to token sequences, token for token as they were sampled. */

import { ArgumentError, DataError } from "../errors.ts";
import type { AssistantChoice } from "../schema/index.ts";
import { TURN_PROBLEMS, turnProblem } from "../trajectory/turn.ts";
import type { SampledSequence } from "./types.ts";

/** One sampled turn. */
export interface SampledTurn {
  readonly prompt: readonly number[];
  readonly sampled: readonly number[];
  /** One per sampled token; NaN where unknown. */
  readonly logprobs: readonly number[];
}

/** What {@link mergeTurns} finds. */
export interface MergedTurns {
  readonly sequences: readonly SampledSequence[];
  /** Turns that continue the sequence of the turn before. */
  readonly mergedTurns: number;
  /** Turns after the first whose prompt does not continue the turn before: its history was rewritten, or rendered to other tokens. */
  readonly driftedTurns: number;
}

/**
 * Reads what training needs of a choice.
 *
 * @param where - The choice's place, e.g. `trajectory_groups.0.trajectories.2.messages_and_choices.1`.
 * @param options - `allowsUnknownLogprobs`: a choice may come without log-probabilities; they are NaN then. Default false.
 * @throws ArgumentError `E_ARGUMENT` when token ids or log-probabilities are absent: the choice cannot be trained.
 * @throws DataError `E_DATA` when they do not fit together.
 */
export function readTurn(
  choice: AssistantChoice,
  where: string,
  { allowsUnknownLogprobs = false }: { readonly allowsUnknownLogprobs?: boolean | undefined } = {},
): SampledTurn {
  const problem = turnProblem(choice);
  if (problem === "choice-without-logprobs" && allowsUnknownLogprobs) {
    const content = (choice.token_ids ?? []).map(() => ({ token: "", logprob: 0, top_logprobs: [] }));
    const turn = readTurn({ ...choice, logprobs: { content } }, where);
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

/**
 * Joins the turns of one history: a turn continues the sequence before it exactly when its prompt starts with that
 * sequence's tokens; otherwise it begins a new one. No token is ever rendered again, so what is trained is what was sampled.
 *
 * @param turns - In the order of the conversation. Not modified.
 */
export function mergeTurns(turns: readonly SampledTurn[]): MergedTurns {
  const open: { tokens: number[]; trained: { readonly turn: number; readonly start: number; readonly logprobs: readonly number[] }[] }[] =
    [];
  let mergedTurns = 0;
  let driftedTurns = 0;
  for (const [turn, { prompt, sampled, logprobs }] of turns.entries()) {
    const last = open.at(-1);
    const continues = last !== undefined && startsWith(prompt, last.tokens);
    const sequence = continues ? last : { tokens: [], trained: [] };
    if (continues) mergedTurns++;
    else {
      if (last !== undefined) driftedTurns++;
      open.push(sequence);
    }
    sequence.tokens = [...prompt, ...sampled];
    sequence.trained.push({ turn, start: prompt.length, logprobs });
  }
  const sequences = open.map(({ tokens, trained }) => {
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

function startsWith(tokens: readonly number[], prefix: readonly number[]): boolean {
  return tokens.length >= prefix.length && prefix.every((token, index) => tokens[index] === token);
}
