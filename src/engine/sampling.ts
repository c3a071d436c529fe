/** Parameters and results of sampling, as part of the Engine port. Without behavior: `onnx/sample` and `tinker` implement sampling. */
import type { Grammar } from "../text/grammar/expression.ts";

/** Grammar that the sampled text must match. */
export interface GrammarParams {
  /** Grammar of the text. */
  readonly grammar: Grammar;
  /** Special tokens that end the output, at least one. Sampled only where the text is complete; no other token follows them. */
  readonly endTokenIds: readonly number[];
}

/**
 * Sampling parameters of one request.
 *
 * Each step first applies `constraint`; the reported log-probabilities are normalized over the tokens that it allows. The logits are
 * then changed by `allowedTokenIds`, `bannedSequences`, `lateTokenIds`, `logitBias` and the three penalties, in this order. At
 * temperature 0 the most likely token is taken; otherwise a token is drawn from `softmax(logits / temperature)` after `minP`, `topK`
 * and `topP`. An absent parameter changes nothing and costs nothing. Lists and maps are prepared once per object: do not modify them after
 * the first request.
 */
export interface SamplingParams {
  /** Maximum number of sampled tokens, at least 1. Prompt plus output never exceed the context length. */
  readonly maxTokens: number;
  /** Temperature, at least 0; 0 = greedy. */
  readonly temperature: number;
  /** Nucleus probability in (0, 1]; 1 = off. */
  readonly topP: number;
  /** Number of most likely tokens to draw from; 0 = off. */
  readonly topK: number;
  /** Minimum probability of a token relative to the most likely one, in [0, 1]; less likely tokens are not drawn. @default 0 */
  readonly minP?: number | undefined;
  /** Grammar of the output. Special tokens are not text and cannot be sampled, except `endTokenIds`. @default no grammar */
  readonly constraint?: GrammarParams | undefined;
  /** Tokens that can be sampled, at least one. @default all tokens */
  readonly allowedTokenIds?: readonly number[] | undefined;
  /** Non-empty token sequences. The last token of a sequence is never sampled right after its other tokens. @default none */
  readonly bannedSequences?: readonly (readonly number[])[] | undefined;
  /** Number of tokens that must be sampled before any of `lateTokenIds` can be. @default 0 */
  readonly minTokens?: number | undefined;
  /** Tokens that cannot be sampled before `minTokens`, normally all tokens that end the output. @default none */
  readonly lateTokenIds?: readonly number[] | undefined;
  /** Bias by token id, added to the token's logit. @default none */
  readonly logitBias?: ReadonlyMap<number, number> | undefined;
  /** Penalty above 0 for tokens of prompt and output: a positive logit is divided by it, any other multiplied. @default 1 */
  readonly repetitionPenalty?: number | undefined;
  /** Penalty subtracted from a token's logit for each time the token was sampled. @default 0 */
  readonly frequencyPenalty?: number | undefined;
  /** Penalty subtracted once from the logit of every token that was sampled. @default 0 */
  readonly presencePenalty?: number | undefined;
  /** Random seed, any 64-bit integer. The same request with the same seed returns the same tokens. */
  readonly seed: bigint;
  /** Token ids after which sampling stops. */
  readonly stopTokenIds: readonly number[];
  /** Number of alternatives returned with each token; 0 = none. */
  readonly topLogprobs: number;
  /** Number of alternatives for each prompt token. If set, the prompt is returned with the first sampled token. @default not set */
  readonly promptLogprobs?: number | undefined;
  /** Scheduling priority among the requests of a client. Lower values run first; among equal values, the earliest. @default 0 */
  readonly priority?: bigint | undefined;
  /** Salt of the prefix cache. Only requests with equal salts share cached prefixes. @default shared by all requests without a salt */
  readonly cacheSalt?: string | undefined;
}

/** Token id with its log-probability. */
export interface TokenLogprob {
  /** ID of the token in the tokenizer's vocabulary. */
  readonly id: number;
  /** Natural logarithm of the token's probability. */
  readonly logprob: number;
}

/** Prompt token with its log-probability under the model. */
export interface PromptToken extends TokenLogprob {
  /** Number of tokens that are at least as likely; 1 = the most likely token. */
  readonly rank: number;
  /** Most likely alternatives, best first. */
  readonly top: readonly TokenLogprob[];
}

/**
 * Sampled token. `logprob` is `log_softmax` of the raw logits, with no sampling parameter applied except `constraint`, which gives
 * tokens that cannot follow −∞. It is never NaN.
 */
export interface SampledToken {
  /** ID of the token in the tokenizer's vocabulary. */
  readonly id: number;
  /** Natural logarithm of the token's probability, of at most 0. */
  readonly logprob: number;
  /** Most likely alternatives, best first; includes the sampled token only if it is among them. Empty unless requested. */
  readonly top: readonly TokenLogprob[];
  /** Prompt tokens except the first, which nothing predicts: shape `[P - 1]`. Set on the first sampled token, if requested. */
  readonly prompt?: readonly PromptToken[] | undefined;
  /** Prompt tokens read from the prefix cache: whole blocks, never the full prompt. Set on the first sampled token; absent if unknown. */
  readonly cachedTokens?: number | undefined;
  /** Reason why sampling stopped, set on the last token: a stop id was sampled, or the token limit was reached. */
  readonly finish?: "stop" | "length" | undefined;
}
