import { NonFiniteError } from "../../errors.ts";
import type { PromptToken, SampledToken } from "../../engine/port.ts";
import type { ChatTokenizer } from "../../tokenizer/index.ts";

/** The least log-probability on the wire: JSON has no infinity. */
const LOGPROB_FLOOR = -9999;

/** A token as logprobs show it. Shared between all entries that speak of it; not to be modified. */
interface TokenFace {
  /** The token alone as text, special tokens shown; empty for a piece of a character. */
  readonly token: string;
  /** Its exact bytes, which also pieces of characters have. */
  readonly bytes: readonly number[];
}

/** One alternative of a token on the wire. */
export interface WireTopLogprob extends TokenFace {
  readonly logprob: number;
}

/** One sampled token on the wire. */
export interface WireLogprob extends WireTopLogprob {
  readonly top_logprobs: readonly WireTopLogprob[];
}

const NO_ALTERNATIVES: readonly WireTopLogprob[] = [];
const faces = new WeakMap<ChatTokenizer, (TokenFace | undefined)[]>();
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function face(tokenizer: ChatTokenizer, id: number): TokenFace {
  let known = faces.get(tokenizer);
  if (known === undefined) faces.set(tokenizer, (known = []));
  const cached = known[id];
  if (cached !== undefined) return cached;
  const bytes = tokenizer.tokenBytes(id);
  let token = "";
  try {
    token = utf8.decode(bytes);
  } catch {
    // A piece of a character has bytes and no text.
  }
  return (known[id] = { token, bytes: [...bytes] });
}

/** @throws NonFiniteError `E_NON_FINITE` for NaN. */
function wireLogprob(value: number): number {
  if (Number.isNaN(value)) throw new NonFiniteError("The engine gave a log-probability that is NaN");
  return value > LOGPROB_FLOOR ? value : LOGPROB_FLOOR;
}

/** One token of a prompt on the wire. */
export interface WirePromptLogprob {
  readonly logprob: number;
  readonly rank: number;
  readonly decoded_token: string;
}

/**
 * The tokens of a prompt: null for the first, which nothing predicts, then for each the best tokens and itself, by their ids.
 *
 * @param tokens - Shape `[P - 1]`.
 */
export function toWirePrompt(
  tokenizer: ChatTokenizer,
  tokens: readonly PromptToken[],
): readonly (Readonly<Record<string, WirePromptLogprob>> | null)[] {
  const entry = (id: number, logprob: number, rank: number): [number, WirePromptLogprob] => [
    id,
    { logprob: wireLogprob(logprob), rank, decoded_token: face(tokenizer, id).token },
  ];
  return [
    null,
    ...tokens.map(({ id, logprob, rank, top }) =>
      Object.fromEntries([...top.map((other, at) => entry(other.id, other.logprob, at + 1)), entry(id, logprob, rank)]),
    ),
  ];
}

/** How the entries of {@link toWireLogprob} look. */
export interface LogprobOptions {
  /** Alternatives to list, -1 for all that the engine gave. */
  readonly count: number;
  /** Whether tokens are named `token_id:N` instead of by their text. @default false */
  readonly namesTokensById?: boolean | undefined;
}

function alternativeFace(tokenizer: ChatTokenizer, id: number, namesTokensById: boolean | undefined): TokenFace {
  if (!namesTokensById) return face(tokenizer, id);
  const token = `token_id:${id}`;
  return { token, bytes: [...Buffer.from(token)] };
}

/**
 * The entry of one sampled token. The alternatives are the first `count` of the sampled token followed by the best ones, so the
 * sampled token is always there and always first.
 *
 * Named by ids, an alternative's `bytes` are those of the name, while the sampled token keeps those of its text.
 */
export function toWireLogprob(tokenizer: ChatTokenizer, sampled: SampledToken, { count, namesTokensById }: LogprobOptions): WireLogprob {
  const { bytes, token: text } = face(tokenizer, sampled.id);
  const token = namesTokensById ? `token_id:${sampled.id}` : text;
  const logprob = wireLogprob(sampled.logprob);
  if (count === 0) return { token, logprob, bytes, top_logprobs: NO_ALTERNATIVES };
  const limit = count === -1 ? Infinity : count;
  const top: WireTopLogprob[] = [{ token, logprob, bytes: alternativeFace(tokenizer, sampled.id, namesTokensById).bytes }];
  for (const alternative of sampled.top) {
    if (top.length >= limit) break;
    if (alternative.id === sampled.id) continue;
    const other = alternativeFace(tokenizer, alternative.id, namesTokensById);
    top.push({ token: other.token, logprob: wireLogprob(alternative.logprob), bytes: other.bytes });
  }
  return { token, logprob, bytes, top_logprobs: top };
}
