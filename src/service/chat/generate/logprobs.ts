/** Log-probabilities in the wire format. */
import { NonFiniteError } from "../../../base/errors.ts";
import type { PromptToken, SampledToken } from "../../../engine/port.ts";
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** Minimum log-probability in the wire format, as JSON has no infinity. */
const LOGPROB_FLOOR = -9999;

/** Text and bytes of a token in log-probabilities. Shared between all entries for the token; not to be modified. */
interface TokenLabel {
  /** Text of the token alone, special tokens shown; empty for a partial character. */
  readonly token: string;
  /** Exact bytes of the token, also for a partial character. */
  readonly bytes: readonly number[];
}

/** Alternative of a token in the wire format. */
export interface WireTopLogprob extends TokenLabel {
  readonly logprob: number;
}

/** Sampled token in the wire format. */
export interface WireLogprob extends WireTopLogprob {
  readonly top_logprobs: readonly WireTopLogprob[];
}

const NO_ALTERNATIVES: readonly WireTopLogprob[] = [];
/** Cached labels by tokenizer, with the token id as index. */
const labelsByTokenizer = new WeakMap<ChatTokenizer, (TokenLabel | undefined)[]>();
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns the text and bytes of a token, cached per tokenizer. */
function labelOf(tokenizer: ChatTokenizer, id: number): TokenLabel {
  const labels = getOrInsert(labelsByTokenizer, tokenizer, () => []);
  const known = labels[id];
  if (known !== undefined) return known;
  const bytes = tokenizer.tokenBytes(id);
  let token = "";
  try {
    token = utf8.decode(bytes);
  } catch {
    // A partial character has bytes and no text.
  }
  const label = { token, bytes: [...bytes] };
  labels[id] = label;
  return label;
}

/** Returns a log-probability for the wire format, at least {@link LOGPROB_FLOOR}. @throws NonFiniteError `E_NON_FINITE` for NaN. */
function wireLogprob(value: number): number {
  if (Number.isNaN(value)) throw new NonFiniteError("The engine gave a log-probability that is NaN");
  return value > LOGPROB_FLOOR ? value : LOGPROB_FLOOR;
}

/** Token of a prompt in the wire format. */
export interface WirePromptLogprob {
  readonly logprob: number;
  readonly rank: number;
  readonly decoded_token: string;
}

/**
 * Returns the log-probabilities of a prompt: null for the first token, which has no prediction, then for each token the best alternatives
 * and the token itself, keyed by id.
 *
 * @param tokenizer - Tokenizer of the model.
 * @param tokens - Shape `[P - 1]`.
 * @returns Shape `[P]`.
 * @throws NonFiniteError `E_NON_FINITE` for a log-probability that is NaN.
 */
export function toWirePrompt(
  tokenizer: ChatTokenizer,
  tokens: readonly PromptToken[],
): readonly (Readonly<Record<string, WirePromptLogprob>> | null)[] {
  const entryOf = (id: number, logprob: number, rank: number): readonly [number, WirePromptLogprob] => [
    id,
    { logprob: wireLogprob(logprob), rank, decoded_token: labelOf(tokenizer, id).token },
  ];
  const positions = tokens.map(({ id, logprob, rank, top }) => {
    const alternatives = top.map((alternative, index) => entryOf(alternative.id, alternative.logprob, index + 1));
    return Object.fromEntries([...alternatives, entryOf(id, logprob, rank)]);
  });
  return [null, ...positions];
}

/** Options of {@link toWireLogprob}. */
export interface LogprobOptions {
  /** Number of alternatives to list, -1 for all that the engine returns. */
  readonly count: number;
  /** Whether tokens are named `token_id:N` instead of by their text. @default false */
  readonly namesTokensById?: boolean | undefined;
}

/** Returns the text and bytes under which an alternative is listed: of its name `token_id:N` if tokens are named by id. */
function alternativeLabel(tokenizer: ChatTokenizer, id: number, namesTokensById: boolean | undefined): TokenLabel {
  if (!namesTokensById) return labelOf(tokenizer, id);
  const token = `token_id:${id}`;
  return { token, bytes: [...Buffer.from(token)] };
}

/**
 * Returns the entry of one sampled token. The alternatives are the sampled token followed by the best other tokens, `count` in all, so the
 * sampled token is always included and always first.
 *
 * With tokens named by id, the `bytes` of an alternative encode its name, while the sampled token keeps the bytes of its text.
 *
 * @param tokenizer - Tokenizer of the model.
 * @param sampled - Token with its alternatives, as the engine returns it.
 * @param options - Number of alternatives and the naming of tokens.
 * @throws NonFiniteError `E_NON_FINITE` for a log-probability that is NaN.
 */
export function toWireLogprob(tokenizer: ChatTokenizer, sampled: SampledToken, { count, namesTokensById }: LogprobOptions): WireLogprob {
  const { bytes, token: text } = labelOf(tokenizer, sampled.id);
  const token = namesTokensById ? `token_id:${sampled.id}` : text;
  const logprob = wireLogprob(sampled.logprob);
  if (count === 0) return { token, logprob, bytes, top_logprobs: NO_ALTERNATIVES };
  const limit = count === -1 ? Infinity : count;
  const top: WireTopLogprob[] = [{ token, logprob, bytes: alternativeLabel(tokenizer, sampled.id, namesTokensById).bytes }];
  for (const alternative of sampled.top) {
    if (top.length >= limit) break;
    if (alternative.id === sampled.id) continue;
    const label = alternativeLabel(tokenizer, alternative.id, namesTokensById);
    top.push({ token: label.token, logprob: wireLogprob(alternative.logprob), bytes: label.bytes });
  }
  return { token, logprob, bytes, top_logprobs: top };
}
