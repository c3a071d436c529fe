/** Translation of a chat completion to a response of the Responses API. `toResponse`, at the end, builds a whole response. */
import type {
  ChatCompletion,
  ErrorBody,
  LogprobEntry,
  ResponsesAnswer,
  ResponsesItem,
  ResponsesRequest,
  Usage,
} from "../../base/schema/index.ts";
import type { Members } from "../members.ts";
import { toOpaque } from "../opaque.ts";
import { calledName } from "./tools.ts";
import { cachedTokens, firstChoice, tokenMembers } from "../answer-parts.ts";
import { itemAt } from "../../base/util/values.ts";

/** A request and the identity of its response. */
export interface ResponsesHead {
  /** Identifier of the form `resp_…`. */
  readonly id: string;
  readonly request: ResponsesRequest;
}

/** Prefixes of the identifiers of items, by type. */
const PREFIXES = { reasoning: "rs", message: "msg", function_call: "fc" };

/** Returns the identifier of an item: the one of the response, with the prefix of the type and the index in `output`. */
export function itemId({ id }: ResponsesHead, type: keyof typeof PREFIXES, index: number): string {
  return `${PREFIXES[type]}_${id.slice("resp_".length)}_${index}`;
}

/** Returns the response and the index that an item's identifier names; null for an identifier of another form. */
export function parseItemId(id: string): { readonly responseId: string; readonly index: number } | null {
  const match = /^(?:rs|msg|fc)_([0-9a-f]+)_(\d{1,6})$/u.exec(id);
  return match === null ? null : { responseId: `resp_${itemAt(match, 1)}`, index: Number(match[2]) };
}

/** Returns a reasoning item. */
export function reasoningItem(head: ResponsesHead, index: number, text: string): ResponsesItem {
  const { include, reasoning } = head.request;
  return {
    id: itemId(head, "reasoning", index),
    type: "reasoning",
    summary: reasoning?.summary ? [{ type: "summary_text", text }] : [],
    content: [{ type: "reasoning_text", text }],
    ...(include?.includes("reasoning.encrypted_content") ? { encrypted_content: toOpaque(text) } : {}),
    status: "completed",
  };
}

/** Returns a text part of a message item. */
export function outputTextPart(text: string, logprobs: readonly LogprobEntry[]): Members {
  return { type: "output_text", text, annotations: [], logprobs };
}

/** Returns a message item. */
export function messageItem(head: ResponsesHead, index: number, parts: readonly Members[], status: string): ResponsesItem {
  return {
    id: itemId(head, "message", index),
    type: "message",
    role: "assistant",
    status,
    content: [...parts] as ResponsesItem["content"],
  };
}

/** Function call of a chat completion. */
export interface CalledFunction {
  readonly id: string;
  readonly name: string;
  /** Arguments as JSON text. */
  readonly text: string;
}

/** Returns a function call item. */
export function callItem(head: ResponsesHead, index: number, { id, name, text }: CalledFunction, status: string): ResponsesItem {
  return {
    id: itemId(head, "function_call", index),
    type: "function_call",
    call_id: id,
    ...calledName(head.request, name),
    arguments: text,
    status,
  };
}

/** Returns the log-probabilities that a text part shows. */
export function shownLogprobs(
  { include, top_logprobs: top }: ResponsesRequest,
  entries: readonly LogprobEntry[] | null | undefined,
): readonly LogprobEntry[] {
  return include?.includes("message.output_text.logprobs") || (top ?? 0) > 0 ? (entries ?? []) : [];
}

/**
 * Returns the output items in the order of the stream: reasoning, message, calls. Without reasoning and calls, the message may be empty.
 */
function outputOf(head: ResponsesHead, completion: ChatCompletion, status: string): ResponsesItem[] {
  const { message, logprobs } = firstChoice(completion);
  const output: ResponsesItem[] = [];
  if (message.reasoning) output.push(reasoningItem(head, 0, message.reasoning));
  const calls = message.tool_calls ?? [];
  if (message.content || (calls.length === 0 && !message.reasoning)) {
    const part = outputTextPart(message.content ?? "", shownLogprobs(head.request, logprobs?.content));
    output.push(messageItem(head, output.length, [part], status));
  }
  for (const { id, function: called } of calls)
    output.push(callItem(head, output.length, { id: id ?? "", name: called.name, text: called.arguments ?? "" }, status));
  return output;
}

/** Returns the token counts. Tokens of reasoning and writes to the prefix cache are not counted separately: both counts are 0. */
export function responsesUsage(usage: Usage | null | undefined): NonNullable<ResponsesAnswer["usage"]> {
  const input = usage?.prompt_tokens ?? 0;
  const output = usage?.completion_tokens ?? 0;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cachedTokens(usage), cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  };
}

/** Returns the members of a response that repeat the request or are constant. */
export function echoedMembers({ request }: ResponsesHead): Members {
  return {
    instructions: request.instructions ?? null,
    previous_response_id: request.previous_response_id ?? null,
    store: request.store ?? true,
    tools: request.tools ?? [],
    tool_choice: request.tool_choice ?? "auto",
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    max_output_tokens: request.max_output_tokens ?? null,
    reasoning: { effort: request.reasoning?.effort ?? null, summary: request.reasoning?.summary ?? null },
    text: { format: request.text?.format ?? { type: "text" } },
    temperature: request["temperature"] ?? null,
    top_p: request["top_p"] ?? null,
    top_logprobs: request.top_logprobs ?? 0,
    metadata: request.metadata ?? {},
    truncation: "disabled",
    background: false,
  };
}

/** Returns status and reason of a finished response. */
export function responseStatus(finishReason: string | null | undefined): Pick<ResponsesAnswer, "status" | "incomplete_details"> {
  if (finishReason === "length") return { status: "incomplete", incomplete_details: { reason: "max_output_tokens" } };
  if (finishReason === "repetition") return { status: "incomplete", incomplete_details: { reason: "repetition" } };
  return { status: "completed", incomplete_details: null };
}

/** Returns the error of a failed response. Its `code` is one of the codes that OpenAI's client knows; `error_code` is an extension. */
export function responseError({ message, code: status, error_code }: ErrorBody["error"]): NonNullable<ResponsesAnswer["error"]> {
  if (status === 429) return { code: "rate_limit_exceeded", message, error_code };
  // The output of the model caused these two errors, and not the request, although their status is below 500.
  const isInvalid = status < 500 && error_code !== "E_OUTPUT" && error_code !== "E_NON_FINITE";
  return { code: isInvalid ? "invalid_prompt" : "server_error", message, error_code };
}

/** Returns an item of a request as the list of input items shows it: with type, status, id, and text as a list of parts. */
export function inputItem(
  { id: responseId }: Pick<ResponsesHead, "id">,
  item: ResponsesItem,
  index: number,
): ResponsesItem & { id: string } {
  const { type = "message", role, content } = item;
  const isText = type === "message" && typeof content === "string";
  const textPart = role === "assistant" ? { type: "output_text", text: content, annotations: [] } : { type: "input_text", text: content };
  return {
    status: "completed",
    ...item,
    type,
    ...(isText ? { content: [textPart] as ResponsesItem["content"] } : {}),
    id: item.id ?? `in_${responseId.slice("resp_".length)}_${index}`,
  };
}

/** Returns the response of a completion. */
export function toResponse(head: ResponsesHead, completion: ChatCompletion): ResponsesAnswer {
  const choice = firstChoice(completion);
  const end = responseStatus(choice.finish_reason);
  return {
    id: head.id,
    object: "response",
    created_at: completion.created,
    ...end,
    model: completion.model,
    output: outputOf(head, completion, end.status),
    ...echoedMembers(head),
    error: null,
    usage: responsesUsage(completion.usage),
    ...tokenMembers({ promptIds: completion.prompt_token_ids, ids: choice.token_ids, logprobs: choice.logprobs?.content }),
  };
}
