/** Parts of chat completions that are made of the answers of other dialects. */
import type { ChatCompletion, Choice, RequestMessage, ResponseMessage } from "../base/schema/index.ts";

/** Token counts of a translated answer. Readers of recorded answers use none. */
export const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Returns a chat completion with the id and model of an answer. `created` and `usage` are 0. */
export function completionOf(
  { id, model }: { readonly id: string; readonly model: string },
  promptIds: readonly number[] | null | undefined,
  choices: Choice[],
): ChatCompletion {
  return {
    id,
    model,
    object: "chat.completion",
    created: 0,
    usage: NO_USAGE,
    choices,
    prompt_token_ids: promptIds ? [...promptIds] : null,
  };
}

/**
 * Returns the token members of a choice. The three lists are parallel; a log-probability without a text names its token `token_id:N`, or
 * has an empty name if the id is unknown, too.
 */
export function choiceTokens(
  ids: readonly number[] | null | undefined,
  logprobs: readonly number[] | null | undefined,
  texts?: readonly string[] | null,
): Pick<Choice, "token_ids" | "logprobs"> {
  const content = logprobs?.map((logprob, index) => {
    const id = ids?.[index];
    const nameOfId = id === undefined ? "" : `token_id:${id}`;
    return { token: texts?.[index] ?? nameOfId, logprob, top_logprobs: [] };
  });
  return { token_ids: ids ? [...ids] : null, logprobs: content ? { content } : null };
}

/** Returns the ids of tokens if all their texts have the form `token_id:N`; otherwise null, also without any token. */
export function idsOfTexts(texts: readonly (string | null | undefined)[] | null | undefined): number[] | null {
  const ids = (texts ?? []).map((text) => /^token_id:(\d+)$/u.exec(text ?? "")?.[1]);
  return ids.length > 0 && ids.every((id) => id !== undefined) ? ids.map(Number) : null;
}

/** Joins messages of the assistant to one sampled message: texts without a separator, reasoning with line breaks. */
export function sampledMessage(messages: readonly RequestMessage[]): ResponseMessage {
  const content = messages.map((message) => textOf(message.content)).join("");
  const calls = messages.flatMap((message) => message.tool_calls ?? []);
  const reasoning = messages.flatMap((message) => message.reasoning ?? []).join("\n");
  return {
    role: "assistant",
    content: content === "" && calls.length > 0 ? null : content,
    tool_calls: calls,
    ...(reasoning === "" ? {} : { reasoning }),
  };
}

/** Returns the text of a message; parts without text count as empty. */
function textOf(content: RequestMessage["content"]): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (typeof part === "string" ? part : (part.text ?? ""))).join("");
}
