/** Parts of chat completions that are made of the answers of other dialects. */
import type { ChatCompletion, Choice, LogprobEntry, RequestMessage, ResponseMessage } from "../base/schema/index.ts";

/** Token counts of answers whose counts nobody reads. */
export const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Returns a chat completion. */
export function completionOf(
  { id, model }: { readonly id: string; readonly model: string },
  promptIds: readonly number[] | null | undefined,
  choices: Choice[],
): ChatCompletion {
  const prompt = promptIds ? [...promptIds] : null;
  return { id, model, object: "chat.completion", created: 0, usage: NO_USAGE, choices, prompt_token_ids: prompt };
}

/** Returns the token members of a choice. Entries without a text name their token by its identifier. */
export function choiceTokens(
  ids: readonly number[] | null | undefined,
  logprobs: readonly number[] | null | undefined,
  texts?: readonly string[] | null,
): Pick<Choice, "token_ids" | "logprobs"> {
  const content = logprobs?.map((logprob, index) => ({
    token: texts?.[index] ?? (ids?.[index] === undefined ? "" : `token_id:${ids[index]}`),
    logprob,
    top_logprobs: [],
  }));
  return { token_ids: ids ? [...ids] : null, logprobs: content ? { content } : null };
}

/** Returns the identifiers of tokens written as `token_id:N`; null if any token has another form. */
export function idsIn(tokens: readonly (string | null | undefined)[] | null | undefined): number[] | null {
  const ids = (tokens ?? []).map((token) => /^token_id:(\d+)$/u.exec(token ?? "")?.[1]);
  return ids.length > 0 && ids.every((id) => id !== undefined) ? ids.map(Number) : null;
}

/** Returns the tokens of entries. */
export function tokensIn(entries: readonly LogprobEntry[] | null | undefined): readonly string[] | undefined {
  return entries?.map(({ token }) => token);
}

/** Returns messages of the assistant as one sampled message. */
export function sampledMessage(messages: readonly RequestMessage[]): ResponseMessage {
  const content = messages.map((message) => textOf(message.content)).join("");
  const calls = messages.flatMap(({ tool_calls: own }) => own ?? []);
  const reasoning = messages.flatMap(({ reasoning: own }) => own ?? []).join("\n");
  return {
    role: "assistant",
    content: content === "" && calls.length > 0 ? null : content,
    tool_calls: calls,
    ...(reasoning === "" ? {} : { reasoning }),
  };
}

function textOf(content: RequestMessage["content"]): string {
  if (content === null || content === undefined || typeof content === "string") return content ?? "";
  return content.map((part) => (typeof part === "string" ? part : (part.text ?? ""))).join("");
}
