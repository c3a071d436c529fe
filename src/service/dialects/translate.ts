/** Shared parts of translating a body to a chat completion. */
import type { z } from "zod";
import { UnsupportedError } from "../../errors.ts";
import type { ChatCompletion, Choice, Usage } from "../../schema/index.ts";
import { BodyError } from "../chat/request/errors.ts";
import { shown } from "../../util/shown.ts";
import type { Members } from "./dialect.ts";

const encoder = new TextEncoder();

/** Whether a value is given: neither undefined nor null. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Returns an object with the members that are given. */
export function given(members: Members): Members {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => isGiven(value)));
}

/** Returns the members of `body` except those in `names`. */
export function without(body: Members, names: ReadonlySet<string>): Members {
  return Object.fromEntries(Object.entries(body).filter(([name]) => !names.has(name)));
}

/**
 * Serializes the body of a chat completion. Integers beyond 2^53 become strings of digits, which the pipeline parses as integers.
 *
 * @returns The bytes, in a buffer of their own.
 */
export function chatBytes(body: Members, isStream: boolean): Uint8Array {
  const entries = Object.entries(body).map(([name, value]) => [name, typeof value === "bigint" ? String(value) : value]);
  // The first chunk of a stream needs the number of prompt tokens, the last one the number of output tokens.
  const stream = isStream ? { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } } : { stream: false };
  return encoder.encode(JSON.stringify({ ...Object.fromEntries(entries), ...stream }));
}

/** Validates a body. @throws {@link BodyError} `E_ARGUMENT` naming up to five fields. */
export function readMembers<S extends z.ZodType>(schema: S, body: Members): z.output<S> {
  const { success, data, error } = schema.safeParse(body);
  if (success) return data;
  const lines = error.issues.slice(0, 5).map((issue) => `\`${issue.path.map(String).join(".")}\`: ${issue.message}`);
  throw new BodyError(lines.join("; "), { param: error.issues[0]?.path.map(String).join(".") ?? null });
}

/** Error for a feature that this service does not have. `instead` is the remedy. */
export function unsupported(param: string, got: unknown, instead: string): UnsupportedError {
  return new UnsupportedError(`\`${param}\`: ${shown(got)} is not supported. ${instead}`, { param });
}

/**
 * Rejects fields without an equivalent in chat completions.
 *
 * @param fields - Rejected names, each with the values that change nothing.
 */
export function rejectFields(body: Members, fields: Readonly<Record<string, readonly unknown[]>>): void {
  for (const [name, neutral] of Object.entries(fields)) {
    const value = body[name];
    if (isGiven(value) && !neutral.includes(value)) throw unsupported(name, value, `Leave \`${name}\` out`);
  }
}

/** Returns the first choice of a completion. */
export function firstChoice({ choices }: ChatCompletion): Choice {
  return choices[0]!;
}

/** Extension members of a response: token ids of prompt and output, and the log-probability of each output token. */
export function tokenMembers(parts: {
  readonly promptIds: readonly number[] | null | undefined;
  readonly ids: readonly number[] | null | undefined;
  readonly logprobs: readonly { readonly logprob: number }[] | null | undefined;
}): Members {
  return given({ prompt_token_ids: parts.promptIds, token_ids: parts.ids, logprobs: parts.logprobs?.map(({ logprob }) => logprob) });
}

/** Returns the number of prompt tokens read from the prefix cache; 0 unless the service reports it. */
export function cachedTokens(usage: Usage | null | undefined): number {
  return usage?.prompt_tokens_details?.cached_tokens ?? 0;
}
