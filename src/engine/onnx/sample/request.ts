import type { PromptToken, SampledToken, SamplingParams } from "../../port.ts";
import type { GrammarConstraint } from "./grammar/constraint.ts";
import type { LogitRules } from "./logits/rules.ts";
import type { Policy } from "./policies.ts";

/** A sampled token on its way to the caller. */
export interface SampledEvent {
  readonly request: number;
  readonly token: SampledToken;
}

/** What a caller asked for. */
export interface Request {
  readonly id: number;
  readonly policyId: string;
  readonly policy: Policy;
  readonly prompt: Int32Array;
  readonly params: SamplingParams;
  readonly stops: ReadonlySet<number>;
  readonly rules: LogitRules | null;
  readonly constraint: GrammarConstraint | null;
}

/** A request with a place in a batch. */
export interface RunningRow<R = Request> {
  readonly request: R;
  /** Tokens in the cache. */
  length: number;
  /** Sampled last; not in the cache yet. */
  lastToken: number;
  sampled: number;
  /** Tokens of the prompt that were not computed for this request. */
  readonly cachedTokens: number;
  /** Log-probabilities of the prompt's tokens, `[P - 1]`; null when nobody asks. */
  readonly promptTokens: readonly PromptToken[] | null;
}

/** Of two requests the one with the lower value goes first. */
export function priorityOf(request: Request): bigint {
  return request.params.priority ?? 0n;
}
