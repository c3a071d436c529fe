import type { PromptToken, SampledToken, SamplingParams } from "../../port.ts";
import type { GrammarConstraint } from "../../../grammar/decode/constraint.ts";
import type { LogitRules } from "./logits/rules.ts";
import type { Policy } from "./policies.ts";

/** Sampled token on its way to the caller. */
export interface SampledEvent {
  readonly request: number;
  readonly token: SampledToken;
}

/** Sampling request of a caller. */
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

/** Request with a row in a batch. */
export interface RunningRow<R = Request> {
  readonly request: R;
  /** Number of tokens in the cache. */
  length: number;
  /** Token sampled last; not in the cache yet. */
  lastToken: number;
  /** Number of tokens sampled so far. */
  sampled: number;
  /** Prompt tokens that were found in the prefix cache instead of computed for this request. */
  readonly cachedTokens: number;
  /** Log-probabilities of the prompt's tokens, `[P - 1]`; null if not requested. */
  readonly promptTokens: readonly PromptToken[] | null;
}

/** Returns the priority of a request: lower values are served first, 0 if not set. */
export function priorityOf(request: Request): bigint {
  return request.params.priority ?? 0n;
}
