/** From a row's distribution to its next token. */
import type { SampledToken } from "../../port.ts";
import { chooseToken, requireDistribution, topTokens } from "./choose.ts";
import type { Distributions } from "./forward.ts";
import type { Request, RunningRow } from "./request.ts";

/** What of a request decides its next token. */
type Drawn = Pick<Request, "params" | "rules" | "constraint" | "stops">;

/** The logits themselves, where the rules of a request tell them from log-probabilities. */
function logitsOf(
  { rules, constraint }: Drawn,
  part: (all: Float32Array) => Float32Array,
  { logits }: Pick<Distributions, "logits">,
): Float32Array | null {
  if (!rules?.needsLogits) return null;
  return constraint?.masked(part(logits!)) ?? part(logits!);
}

/**
 * Draws the next token of a row and notes it there.
 *
 * @param index - Which of the distributions is the row's.
 * @throws UnsupportedError `E_UNSUPPORTED` when the request's rules leave no token.
 * @throws NonFiniteError `E_NON_FINITE` when the weights give no distribution.
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
  // Under a grammar the raw log-probabilities are those of the tokens that it leaves.
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
