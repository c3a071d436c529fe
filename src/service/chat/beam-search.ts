/**
 * Beam search: the likeliest whole outputs instead of samples. Each step asks the engine for the best next tokens of every beam;
 * a beam's prompt is computed anew each time, so that a long output costs far more than a sampled one.
 */
import { defaultMaxListeners, setMaxListeners } from "node:events";
import type { PromptToken, SampledToken } from "../../engine/port.ts";
import { EngineError } from "../../errors.ts";
import type { GeneratedChoice, GenerationPlan } from "./generate.ts";
import { toWireLogprob } from "./logprobs.ts";

/** What beam search is told besides the plan. */
export interface BeamSearchOptions {
  /** A beam's score is its log-probability over its length, the prompt's included, to this power. */
  readonly lengthPenalty: number;
  readonly signal: AbortSignal;
}

interface Beam {
  readonly tokens: readonly SampledToken[];
  /** Sum of log-probabilities, that of an end token included. */
  readonly logprob: number;
  /** The end token that completed it, not among `tokens`; null while it lives. */
  readonly closedBy: number | null;
}

/** The best next tokens of a beam, and the prompt's own where they were asked for. */
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
    topLogprobs: Math.max(2 * plan.n, topLogprobs),
    cacheSalt,
    priority,
    promptLogprobs: beam.tokens.length === 0 ? promptLogprobs : undefined,
  };
  for await (const token of plan.engine.sample(plan.policy, prompt, params, { signal })) return token;
  signal.throwIfAborted();
  throw new EngineError("The engine gave no token for a beam");
}

/** The beams that follow from one: a token more, or completed by an end token. */
function followers(plan: GenerationPlan, beam: Beam, { top }: SampledToken): Beam[] {
  const ends = plan.ignoresEos ? [] : plan.tokenizer.eosTokenIds;
  return top
    .slice(0, 2 * plan.n)
    .map(({ id, logprob }) =>
      ends.includes(id)
        ? { tokens: beam.tokens, logprob: beam.logprob + logprob, closedBy: id }
        : { tokens: [...beam.tokens, { id, logprob, top }], logprob: beam.logprob + logprob, closedBy: null },
    );
}

function toChoice(plan: GenerationPlan, beam: Beam, index: number): Omit<GeneratedChoice, "promptTokens" | "cachedTokens"> {
  const { tokenizer, topLogprobs, namesTokensById } = plan;
  const ids = beam.tokens.map((token) => token.id);
  const text = tokenizer.decode(ids, { skipSpecialTokens: !plan.keepsSpecialTokens });
  return {
    index,
    text,
    ids: beam.closedBy !== null && plan.includesStop ? [...ids, beam.closedBy] : ids,
    logprobs:
      topLogprobs === null ? null : beam.tokens.map((token) => toWireLogprob(tokenizer, token, { count: topLogprobs, namesTokensById })),
    finishReason: beam.closedBy === null ? "length" : "stop",
    stopReason: beam.closedBy,
    closedBy: null,
  };
}

/**
 * The `n` best outputs found, best first, each of `maxTokens` tokens or ended by an end token before. Every step is taken, also
 * once there are enough completed ones.
 *
 * @throws whatever the engine throws; the signal's own reason when that was aborted.
 */
export async function beamSearch(plan: GenerationPlan, { lengthPenalty, signal }: BeamSearchOptions): Promise<GeneratedChoice[]> {
  const { n, params, promptIds } = plan;
  // Every beam listens to it: as many as there are beams are no leak.
  setMaxListeners(n + defaultMaxListeners, signal);
  let live: Beam[] = [{ tokens: [], logprob: 0, closedBy: null }];
  const completed: Beam[] = [];
  let promptTokens: readonly PromptToken[] | null = null;
  let cachedTokens = 0;
  for (let step = 0; step < params.maxTokens && live.length > 0; step++) {
    const expansions = await Promise.all(live.map((beam) => expand(plan, beam, signal)));
    promptTokens ??= expansions[0]!.prompt ?? null;
    // What later steps find was computed by the first.
    if (step === 0) cachedTokens = expansions[0]!.cachedTokens ?? 0;
    const next = live.flatMap((beam, at) => followers(plan, beam, expansions[at]!));
    completed.push(...next.filter((beam) => beam.closedBy !== null));
    live = next
      .filter((beam) => beam.closedBy === null)
      .sort((a, b) => b.logprob - a.logprob)
      .slice(0, n);
  }
  const score = (beam: Beam): number => beam.logprob / (promptIds.length + beam.tokens.length) ** lengthPenalty;
  return [...completed, ...live]
    .sort((a, b) => score(b) - score(a))
    .slice(0, n)
    .map((beam, index) => ({ ...toChoice(plan, beam, index), promptTokens: index === 0 ? promptTokens : null, cachedTokens }));
}
