/**
 * Beam search, which finds the most likely outputs instead of samples. A beam is one of the `n` best beginnings of an output so far. Each
 * step asks the engine for the best next tokens of every beam, twice as many as beams (as vLLM does).
 *
 * The prompt of a beam is computed anew in each step, so a long output costs far more than a sampled one.
 */
import { defaultMaxListeners, setMaxListeners } from "node:events";
import type { PromptToken, SampledToken } from "../../../engine/port.ts";
import { EngineError } from "../../../base/errors.ts";
import type { GeneratedChoice, GenerationPlan } from "./generate.ts";
import { toWireLogprob } from "./logprobs.ts";
import { first, zip } from "../../../base/util/values.ts";

/** Beginning of an output, or a completed output. */
interface Beam {
  readonly tokens: readonly SampledToken[];
  /** Sum of log-probabilities, including the end token's. */
  readonly logprob: number;
  /** End token that completed the beam, not included in `tokens`; null while the beam is live. */
  readonly end: SampledToken | null;
}

/**
 * Returns the engine's next token for a beam, of which only the alternatives (`top`) are used: the best next tokens. In the first step it also
 * has the log-probabilities of the prompt, if requested.
 */
async function expand(plan: GenerationPlan, beam: Beam, signal: AbortSignal): Promise<SampledToken> {
  const prompt = new Int32Array(plan.promptIds.length + beam.tokens.length);
  prompt.set(plan.promptIds);
  prompt.set(
    beam.tokens.map((token) => token.id),
    plan.promptIds.length,
  );
  const { topLogprobs, cacheSalt, promptLogprobs, priority } = plan.params;
  const params = {
    maxTokens: 1,
    temperature: 0,
    topP: 1,
    topK: 0,
    seed: 0n,
    stopTokenIds: [],
    topLogprobs: Math.max(2 * plan.request.n, topLogprobs),
    cacheSalt,
    priority,
    promptLogprobs: beam.tokens.length === 0 ? promptLogprobs : undefined,
  };
  for await (const token of plan.engine.sample(plan.policy, prompt, params, { signal, group: plan.group })) return token;
  signal.throwIfAborted();
  throw new EngineError("The engine gave no token for a beam");
}

/** Returns the successors of a beam: each has one more token, or is completed by an end token. */
function successors(plan: GenerationPlan, beam: Beam, { top }: SampledToken): Beam[] {
  const endTokenIds = plan.request.ignoreEos ? [] : plan.tokenizer.eosTokenIds;
  return top.slice(0, 2 * plan.request.n).map(({ id, logprob }) => {
    const next = { id, logprob, top };
    const sum = beam.logprob + logprob;
    if (endTokenIds.includes(id)) return { tokens: beam.tokens, logprob: sum, end: next };
    return { tokens: [...beam.tokens, next], logprob: sum, end: null };
  });
}

/** Converts a beam to a choice. An end token is not part of the text, and of the tokens only with `include_stop_str_in_output`. */
function toChoice(plan: GenerationPlan, { tokens, end }: Beam, index: number): Omit<GeneratedChoice, "promptTokens" | "cachedTokens"> {
  const { tokenizer, request, namesTokensById } = plan;
  const { topLogprobs } = request;
  const idsOf = (list: readonly SampledToken[]) => list.map(({ id }) => id);
  const listedEnd = request.includeStopStrInOutput ? end : null;
  const listed = listedEnd === null ? tokens : [...tokens, listedEnd];
  return {
    index,
    text: tokenizer.decode(idsOf(tokens), { skipSpecialTokens: !plan.keepsSpecialTokens }),
    ids: idsOf(listed),
    logprobs: topLogprobs === null ? null : listed.map((token) => toWireLogprob(tokenizer, token, { count: topLogprobs, namesTokensById })),
    finishReason: end === null ? "length" : "stop",
    stopReason: end?.id ?? null,
    closedBy: listedEnd?.id ?? null,
  };
}

/**
 * Returns the `n` best outputs found, best first. Each has `maxTokens` tokens or ends earlier with an end token. The search takes all
 * `maxTokens` steps while live beams remain, even after `n` beams are completed.
 *
 * @param plan - Inputs of the generation.
 * @param signal - Aborts the search.
 * @returns At most `n` choices, best first.
 * @throws EngineError if the engine yields no token; any error of the engine; the signal's reason if it is aborted.
 */
export async function beamSearch(plan: GenerationPlan, signal: AbortSignal): Promise<GeneratedChoice[]> {
  const { params, promptIds } = plan;
  const { n, lengthPenalty } = plan.request;
  // One listener per beam is expected, not a leak.
  setMaxListeners(n + defaultMaxListeners, signal);
  /** Beams without an end token, best first. */
  let live: Beam[] = [{ tokens: [], logprob: 0, end: null }];
  const completed: Beam[] = [];
  let promptTokens: readonly PromptToken[] | null = null;
  let cachedTokens = 0;
  for (let step = 0; step < params.maxTokens && live.length > 0; step++) {
    const expansions = await Promise.all(live.map((beam) => expand(plan, beam, signal)));
    promptTokens ??= first(expansions).prompt ?? null;
    // In later steps the cache has tokens that the first step computed.
    if (step === 0) cachedTokens = first(expansions).cachedTokens ?? 0;
    const candidates = zip(live, expansions).flatMap(([beam, expansion]) => successors(plan, beam, expansion));
    completed.push(...candidates.filter((beam) => beam.end !== null));
    live = candidates
      .filter((beam) => beam.end === null)
      .sort((a, b) => b.logprob - a.logprob)
      .slice(0, n);
  }
  /** Sum of log-probabilities, divided by a power of the length of prompt and output. */
  const score = (beam: Beam): number => beam.logprob / (promptIds.length + beam.tokens.length) ** lengthPenalty;
  return [...completed, ...live]
    .sort((a, b) => score(b) - score(a))
    .slice(0, n)
    .map((beam, index) => ({ ...toChoice(plan, beam, index), promptTokens: index === 0 ? promptTokens : null, cachedTokens }));
}
