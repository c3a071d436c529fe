/** Sampling step: from a row's distribution, or the token drawn from it, to its next token. */
import type { SampledToken } from "../../port.ts";
import { chooseToken, requireDistribution, requireFiniteLogprob, topTokens } from "./choose.ts";
import type { DrawnTokens } from "./draw-graph.ts";
import type { Distributions } from "./forward.ts";
import type { Request, RunningRow } from "./request.ts";

/** Parts of a request that decide its next token. */
type Deciding = Pick<Request, "params" | "rules" | "constraint" | "stops">;

/** Arrays for the masked distribution of one row at a time: a new array of a large vocabulary for each token takes longer than its mask. */
export class MaskedRow {
  readonly logits: Float32Array;
  readonly logprobs: Float32Array;

  constructor(vocabularySize: number) {
    this.logits = new Float32Array(vocabularySize);
    this.logprobs = new Float32Array(vocabularySize);
  }
}

/** Returns the row's raw logits, masked by the grammar, if the request's rules need logits rather than log-probabilities; else null. */
function logitsOf(
  { rules, constraint }: Deciding,
  part: (all: Float32Array) => Float32Array,
  { logits }: Pick<Distributions, "logits">,
  masked: () => MaskedRow,
): Float32Array | null {
  if (!rules?.needsLogits) return null;
  return constraint?.masked(part(logits!), masked().logits) ?? part(logits!);
}

/** Draws the next token of a row from its distribution. */
function chooseFrom(
  distributions: Distributions,
  { request, length, sampled }: RunningRow<Deciding>,
  index: number,
  masked: () => MaskedRow,
) {
  const { params, rules, constraint } = request;
  const { vocabularySize: V } = distributions;
  const part = (all: Float32Array) => all.subarray(index * V, (index + 1) * V);
  // With a grammar, log-probabilities are normalized over the tokens that it allows.
  const unconstrained = part(distributions.logprobs);
  requireDistribution(unconstrained, length);
  const logprobs = constraint?.logprobs(unconstrained, masked().logprobs) ?? unconstrained;
  const shaped = logitsOf(request, part, distributions, masked) ?? logprobs;
  const id = chooseToken(shaped, params, sampled, rules, constraint === null ? part(distributions.probs) : null);
  return { id, logprob: logprobs[id]!, top: topTokens(logprobs, params.topLogprobs) };
}

/** Takes the next token of a row that a graph has drawn. */
function takeFrom({ ids, logprobs }: DrawnTokens, { length }: RunningRow<Deciding>, index: number) {
  const logprob = logprobs[index]!;
  requireFiniteLogprob(logprob, length);
  return { id: ids[index]!, logprob, top: [] };
}

/**
 * Draws the next token of a row, or takes it if a graph has drawn it, and records it in the row, its constraint and its rules.
 *
 * @param index - Index of the row in the distributions or the drawn tokens.
 * @param maxLength - Maximum number of tokens of the row's sequence.
 * @param masked - Returns arrays that the call may overwrite.
 * @throws UnsupportedError `E_UNSUPPORTED` if the request's rules leave no token.
 * @throws NonFiniteError `E_NON_FINITE` if the weights give no finite distribution.
 */
export function advance(
  row: RunningRow<Deciding>,
  source: Distributions | DrawnTokens,
  index: number,
  maxLength: number,
  masked: () => MaskedRow,
): SampledToken {
  const { params, rules, constraint, stops } = row.request;
  const chosen = "ids" in source ? takeFrom(source, row, index) : chooseFrom(source, row, index, masked);
  const { id } = chosen;
  constraint?.record(id);
  rules?.record(id);
  row.tokens.push(id);
  row.sampled++;
  const isFull = row.sampled >= params.maxTokens || row.length + 1 >= maxLength;
  const token: SampledToken = { ...chosen, finish: stops.has(id) ? "stop" : isFull ? "length" : undefined };
  if (row.sampled > 1) return token;
  return { ...token, cachedTokens: row.cachedTokens, ...(row.promptTokens === null ? {} : { prompt: row.promptTokens }) };
}
