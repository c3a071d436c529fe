/** Bodies of chat completions to which other dialects are translated. */
import type { Members } from "../../dialects/index.ts";
import type { ChatBody } from "../chat/request/opened-chat.ts";

/**
 * Returns the body of a chat completion. Integers beyond 2^53 become strings of digits, as in JSON without loss of digits;
 * members without a value are left out, as in JSON.
 */
export function chatBody(members: Members, isStream: boolean, prompt?: ChatBody["prompt"]): ChatBody {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  const exact = entries.map(([name, value]) => [name, typeof value === "bigint" ? String(value) : value] as const);
  // The first chunk of a stream needs the number of prompt tokens, the last one the number of output tokens.
  const stream = isStream ? { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } } : { stream: false };
  return { members: { ...Object.fromEntries(exact), ...stream }, prompt };
}
