/** From sampled turns to token sequences, token for token as they were sampled. */

import { ArgumentError, DataError } from "../errors.ts";
import type { AssistantChoice } from "../schema/index.ts";
import type { SampledSequence } from "./types.ts";

/** One sampled turn. */
export interface SampledTurn {
  readonly prompt: readonly number[];
  readonly sampled: readonly number[];
  /** One per sampled token. */
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
 * @throws ArgumentError `E_ARGUMENT` when token ids or log-probabilities are absent: the choice cannot be trained.
 * @throws DataError `E_DATA` when they do not fit together.
 */
export function readTurn(choice: AssistantChoice, where: string): SampledTurn {
  const { prompt_token_ids: prompt, token_ids: sampled } = choice;
  const entries = choice.logprobs?.content;
  const missing = [
    ...(prompt === null || prompt === undefined ? ["`prompt_token_ids`"] : []),
    ...(sampled === null || sampled === undefined ? ["`token_ids`"] : []),
    ...(entries === null || entries === undefined ? ["`logprobs.content`"] : []),
  ];
  if (!prompt || !sampled || !entries) {
    throw new ArgumentError(
      `${where}: expected a choice with token ids and log-probabilities, found no ${missing.join(", no ")}. ` +
        "Sample with `logprobs: true` and `return_token_ids: true` and keep the choice whole; a turn that is only context belongs in a plain message.",
      { param: where },
    );
  }
  const fail = (problem: string): never => {
    throw new DataError(`${where}: ${problem}`, { param: where });
  };
  if (prompt.length === 0) fail("expected at least one prompt token, got none.");
  if (sampled.length === 0) fail("expected at least one sampled token, got none.");
  if (entries.length !== sampled.length) {
    fail(`expected as many log-probabilities as token ids, got ${entries.length} and ${sampled.length}. Keep both exactly as the service sent them.`);
  }
  const logprobs = entries.map((entry) => entry.logprob);
  // A float32 log-softmax may end a hair above 0.
  const bad = logprobs.findIndex((value) => !Number.isFinite(value) || value > 1e-6);
  if (bad >= 0) fail(`expected finite log-probabilities of at most 0, got ${logprobs[bad]} at token ${bad}.`);
  return { prompt, sampled, logprobs };
}

/**
 * Joins the turns of one history: a turn continues the sequence before it exactly when its prompt starts with that
 * sequence's tokens; otherwise it begins a new one. No token is ever rendered again, so what is trained is what was sampled.
 *
 * @param turns - In the order of the conversation. Not modified.
 */
export function mergeTurns(turns: readonly SampledTurn[]): MergedTurns {
  const open: { tokens: number[]; trained: { readonly start: number; readonly logprobs: readonly number[] }[] }[] = [];
  let mergedTurns = 0;
  let driftedTurns = 0;
  for (const { prompt, sampled, logprobs } of turns) {
    const last = open.at(-1);
    const continues = last !== undefined && startsWith(prompt, last.tokens);
    const sequence = continues ? last : { tokens: [], trained: [] };
    if (continues) mergedTurns++;
    else {
      if (last !== undefined) driftedTurns++;
      open.push(sequence);
    }
    sequence.tokens = [...prompt, ...sampled];
    sequence.trained.push({ start: prompt.length, logprobs });
  }
  const sequences = open.map(({ tokens, trained }) => {
    const mask = new Uint8Array(tokens.length);
    const logprobs = new Float64Array(tokens.length).fill(Number.NaN);
    for (const turn of trained) {
      mask.fill(1, turn.start, turn.start + turn.logprobs.length);
      logprobs.set(turn.logprobs, turn.start);
    }
    return { tokens: Int32Array.from(tokens), mask, logprobs };
  });
  return { sequences, mergedTurns, driftedTurns };
}

function startsWith(tokens: readonly number[], prefix: readonly number[]): boolean {
  return tokens.length >= prefix.length && prefix.every((token, index) => tokens[index] === token);
}
