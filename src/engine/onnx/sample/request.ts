/** Requests of a sampler, and the rows of a batch that compute them. */
import type { PromptToken, SampledToken, SamplingParams } from "../../port.ts";
import type { RequestGroup } from "../../../base/util/request-group.ts";
import type { GrammarConstraint } from "../../../text/grammar/decode/constraint.ts";
import { tableStart } from "../model/rope.ts";
import type { LogitRules } from "./logits/rules.ts";
import type { PublishedPolicy } from "./policies.ts";

/** Sampled token on its way to the caller. */
export interface SampledEvent {
  readonly request: number;
  readonly token: SampledToken;
}

/** Sampling request of a caller. */
export interface Request {
  readonly id: number;
  readonly policyId: string;
  readonly policy: PublishedPolicy;
  /** Tokens to prefill. */
  readonly prompt: Int32Array;
  /** Number of tokens at the end of `prompt` that were sampled for this request before its row was suspended. */
  readonly sampled: number;
  readonly params: SamplingParams;
  /** Token ids that end the sequence. */
  readonly stops: ReadonlySet<number>;
  /** Rules that change the logits; null = none. */
  readonly rules: LogitRules | null;
  /** Grammar of the output; null = none. */
  readonly constraint: GrammarConstraint | null;
  /** Client and group of the request; see `SamplingOptions.group`. */
  readonly group: RequestGroup;
}

/** Request with a row in a batch. */
export interface RunningRow<R = Request> {
  readonly request: R;
  /** Number of tokens in the cache. */
  length: number;
  /** Tokens sampled since the request got its row; the last one is not in the cache yet. */
  readonly tokens: number[];
  /** Number of tokens sampled so far, also before the row was suspended. */
  sampled: number;
  /** Prompt tokens that were found in the prefix cache instead of computed for this request. */
  readonly cachedTokens: number;
  /** Log-probabilities of the prompt's tokens, `[P - 1]`; null if not requested. */
  readonly promptTokens: readonly PromptToken[] | null;
}

/**
 * Returns the part of a policy's prefix cache that a request may use: prompts with another cache salt, or with another rotary table, have
 * other keys and values.
 */
export function cacheScope({ policy, prompt, params }: Request): string {
  return `${tableStart(policy.weights.config, prompt.length)} ${JSON.stringify(params.cacheSalt ?? null)}`;
}

/** Returns the priority of a request: lower values are served first, 0 if not set. */
export function priorityOf(request: Request): bigint {
  return request.params.priority ?? 0n;
}

/** Whether two requests may use each other's blocks of the prefix cache. */
export function mayShare(a: Request, b: Request): boolean {
  return a.policy === b.policy && cacheScope(a) === cacheScope(b);
}

/** Whether a request is served before another one: with higher priority, or else if it arrived earlier. */
export function isBefore(request: Request, other: Request): boolean {
  const [own, others] = [priorityOf(request), priorityOf(other)];
  return own === others ? request.id < other.id : own < others;
}
