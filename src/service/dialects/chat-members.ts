/** Bodies of chat completions to which other dialects are translated. */
import type { Members } from "../../dialects/index.ts";
import type { ChatBody } from "../chat/request/opened-chat.ts";

/**
 * Returns the body of a chat completion. Integers beyond 2^53 become strings of digits, as in JSON without loss of digits;
 * members without a value are left out, as in JSON.
 */
export function chatBody(members: Members, { isStream, prompt }: { isStream: boolean; prompt?: ChatBody["prompt"] }): ChatBody {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  const jsonEntries = entries.map(([name, value]) => [name, typeof value === "bigint" ? String(value) : value] as const);
  // The events of other dialects state the number of prompt tokens at the start, and of output tokens at the end.
  const usageOptions = { include_usage: true, continuous_usage_stats: true };
  const streamMembers = isStream ? { stream: true, stream_options: usageOptions } : { stream: false };
  return { members: { ...Object.fromEntries(jsonEntries), ...streamMembers }, prompt };
}
