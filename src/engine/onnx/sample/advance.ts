/** Sampling step: from a row's distribution to its next token. */
import type { SampledToken } from "../../port.ts";
import { chooseToken, requireDistribution, topTokens } from "./choose.ts";
import type { Distributions } from "./forward.ts";
import type { Request, RunningRow } from "./request.ts";

/** Parts of a request that decide its next token. */
type Drawn = Pick<Request, "params" | "rules" | "constraint" | "stops">;

/** Returns the row's raw logits, masked by the grammar, if the request's rules need logits rather than log-probabilities; else null. */
function logitsOf(
  { rules, constraint }: Drawn,
  part: (all: Float32Array) => Float32Array,
  { logits }: Pick<Distributions, "logits">,
): Float32Array | null {
  if (!rules?.needsLogits) return null;
  return constraint?.masked(part(logits!)) ?? part(logits!);
}

/**
 * Draws the next token of a row and records it in the row, its constraint and its rules.
 *
 * @param index - Index of the row's distribution.
 * @throws UnsupportedError `E_UNSUPPORTED` if the request's rules leave no token.
 * @throws NonFiniteError `E_NON_FINITE` if the weights give no finite distribution.
 */
export function advance(
  row: RunningRow<Drawn>,
  distributions: Omit<Distributions, "results">,
  index: number,
  contextLength: number,
): SampledToken {
  const { params, rules, constraint, stops } = row.request;
  const { vocabularySize: V } = distributions;
  const part = (all: Float32Array) => all.subarray(index * V, (index + 1) * V);
  // With a grammar, log-probabilities are normalized over the tokens that it allows.
  const free = part(distributions.logprobs);
  requireDistribution(free, row.length);
  const logprobs = constraint?.logprobs(free) ?? free;
  const id = chooseToken(
    logitsOf(row.request, part, distributions) ?? logprobs,
    params,
    row.sampled,
    rules,
    constraint === null ? part(distributions.probs) : null,
  );
  constraint?.note(id);
  rules?.note(id);
  row.lastToken = id;
  row.sampled++;
  const isFull = row.sampled >= params.maxTokens || row.length + 1 >= contextLength;
  const finish = stops.has(id) ? "stop" : isFull ? "length" : undefined;
  const token: SampledToken = { id, logprob: logprobs[id]!, top: topTokens(logprobs, params.topLogprobs), finish };
  if (row.sampled > 1) return token;
  return { ...token, cachedTokens: row.cachedTokens, ...(row.promptTokens === null ? {} : { prompt: row.promptTokens }) };
}
