/**
 * Transfer format of sampled tokens between threads. Alternatives are a few long arrays instead of an object each: 64 choices with 20
 * alternatives would otherwise be more than a thousand objects to clone for each step.
 */
import type { PromptToken, SampledToken, TokenLogprob } from "../../port.ts";
import type { SampledEvent } from "./request.ts";

/** Tokens as columns, with the alternatives of all tokens one after another. */
interface TokenColumns {
  readonly ids: Int32Array;
  readonly logprobs: Float64Array;
  /** Number of alternatives of each token. */
  readonly counts: Int32Array;
  readonly topIds: Int32Array;
  readonly topLogprobs: Float64Array;
}

/** Fields that only the first token of a request has. */
interface PackedStart {
  readonly cachedTokens: number | undefined;
  readonly prompt: (TokenColumns & { readonly ranks: Int32Array }) | null;
}

/** Sampled tokens of one or several steps. */
export interface PackedEvents extends TokenColumns {
  /** Id of each token's request. */
  readonly requests: readonly number[];
  /** `finish` of each token. */
  readonly finishes: readonly SampledToken["finish"][];
  /** Fields of first tokens, by the index of the token. */
  readonly starts: ReadonlyMap<number, PackedStart>;
}

/** Token with its alternatives. */
type TokenWithTop = TokenLogprob & Pick<SampledToken, "top">;

function columnsOf(tokens: readonly TokenWithTop[]): TokenColumns {
  const total = tokens.reduce((sum, { top }) => sum + top.length, 0);
  const [topIds, topLogprobs] = [new Int32Array(total), new Float64Array(total)];
  let offset = 0;
  for (const { top } of tokens) for (const { id, logprob } of top) [topIds[offset], topLogprobs[offset++]] = [id, logprob];
  return {
    ids: Int32Array.from(tokens, ({ id }) => id),
    logprobs: Float64Array.from(tokens, ({ logprob }) => logprob),
    counts: Int32Array.from(tokens, ({ top }) => top.length),
    topIds,
    topLogprobs,
  };
}

function tokensOf({ ids, logprobs, counts, topIds, topLogprobs }: TokenColumns): TokenWithTop[] {
  let offset = 0;
  return Array.from(ids, (id, index) => {
    const top = Array.from({ length: counts[index]! }, (): TokenLogprob => ({ id: topIds[offset]!, logprob: topLogprobs[offset++]! }));
    return { id, logprob: logprobs[index]!, top };
  });
}

/** Packs sampled tokens. */
export function packEvents(events: readonly SampledEvent[]): PackedEvents {
  const starts = new Map<number, PackedStart>();
  for (const [index, { token }] of events.entries()) {
    const { cachedTokens, prompt } = token;
    if (cachedTokens === undefined && prompt === undefined) continue;
    const ranked = prompt && { ...columnsOf(prompt), ranks: Int32Array.from(prompt, ({ rank }) => rank) };
    starts.set(index, { cachedTokens, prompt: ranked ?? null });
  }
  return {
    ...columnsOf(events.map(({ token }) => token)),
    requests: events.map(({ request }) => request),
    finishes: events.map(({ token }) => token.finish),
    starts,
  };
}

/** Unpacks sampled tokens. */
export function unpackEvents(packed: PackedEvents): SampledEvent[] {
  return tokensOf(packed).map(({ id, logprob, top }, index) => {
    const finished = { id, logprob, top, finish: packed.finishes[index] };
    const start = packed.starts.get(index);
    const request = packed.requests[index]!;
    if (start === undefined) return { request, token: finished };
    const { cachedTokens, prompt } = start;
    if (prompt === null) return { request, token: { ...finished, cachedTokens } };
    const tokens = tokensOf(prompt).map((each, position): PromptToken => ({ ...each, rank: prompt.ranks[position]! }));
    return { request, token: { ...finished, cachedTokens, prompt: tokens } };
  });
}
