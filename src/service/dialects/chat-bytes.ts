/** Serialization of the bodies of chat completions. */
import type { Members } from "../../dialects/index.ts";

const encoder = new TextEncoder();

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
