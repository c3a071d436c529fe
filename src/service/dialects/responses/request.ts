/** Translation of a Responses request to a chat completion. */
import { responsesRequest, type ResponsesItem, type ResponsesRequest } from "../../../schema/index.ts";
import type { DialectCall, Members, Translation } from "../dialect.ts";
import { chatBytes, given, readMembers, rejectFields, unsupported, without } from "../translate.ts";
import { messagesOf } from "./items.ts";
import { chatName, chatTools } from "./tools.ts";

/** Fields that chat completions do not have; every other field passes unchanged. */
const OWN_FIELDS = new Set([
  ...["input", "instructions", "previous_response_id", "store", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"],
  ...["reasoning", "text", "include", "top_logprobs", "metadata", "stream", "stream_options", "truncation", "background"],
  ...["conversation", "prompt", "context_management", "moderation", "max_tool_calls", "service_tier", "safety_identifier"],
  ...["prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata", "n"],
]);

const INCLUDES = ["message.output_text.logprobs", "reasoning.encrypted_content"];

/** Features that this service does not have, with the values that ask for nothing. */
const REJECTED = {
  background: [false],
  conversation: [],
  prompt: [],
  context_management: [],
  moderation: [],
  truncation: ["disabled"],
  n: [1],
};

function chatChoice(choice: ResponsesRequest["tool_choice"]): unknown {
  if (typeof choice !== "object" || choice === null) return choice;
  const { type, name, namespace } = choice;
  if (type !== "function") throw unsupported("tool_choice.type", type, 'Expected none, auto, required or {"type": "function", "name": …}');
  return { type, function: { name: typeof namespace === "string" ? chatName({ name: String(name), namespace }) : name } };
}

function responseFormat(text: ResponsesRequest["text"]): Members | null {
  const format = text?.format as Members | null | undefined;
  const verbosity = text?.["verbosity"] ?? "medium";
  if (verbosity !== "medium") throw unsupported("text.verbosity", verbosity, "Leave it out, and ask for brevity in the input");
  if (!format || format["type"] !== "json_schema") return format ?? null;
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}

function logprobFields({ include, top_logprobs: top, logprobs }: ResponsesRequest): Members {
  const unknown = include?.find((name) => !INCLUDES.includes(name));
  if (unknown !== undefined) throw unsupported("include", unknown, `Expected ${INCLUDES.join(" or ")}`);
  const isAsked = include?.includes(INCLUDES[0]!) === true || (top ?? 0) > 0 || logprobs === true;
  return isAsked ? given({ logprobs: true, top_logprobs: top }) : {};
}

/** Returns the input as items. */
function itemsOf(input: ResponsesRequest["input"]): readonly ResponsesItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/** Parses the body of `POST /v1/responses`. @throws BodyError `E_ARGUMENT` for a malformed body. */
export function readRequest(members: Members): ResponsesRequest {
  rejectFields(members, REJECTED);
  return readMembers(responsesRequest, members);
}

/**
 * Translates a request to a chat completion.
 *
 * @param request - The parsed body.
 * @param items - Items of the previous responses and of the input.
 * @throws BodyError `E_ARGUMENT` and UnsupportedError `E_UNSUPPORTED` for fields without an equivalent, such as hosted tools.
 */
export function toChat(request: ResponsesRequest, items: readonly ResponsesItem[]): Members {
  const { instructions, tools, reasoning, parallel_tool_calls, max_output_tokens } = request;
  return {
    ...without(request, OWN_FIELDS),
    messages: [...(instructions ? [{ role: "system", content: instructions }] : []), ...messagesOf(items)],
    ...given({
      tools: tools?.length ? chatTools(tools) : null,
      tool_choice: tools?.length ? chatChoice(request.tool_choice) : null,
      parallel_tool_calls,
      max_completion_tokens: max_output_tokens,
      reasoning_effort: reasoning?.effort,
      response_format: responseFormat(request.text),
    }),
    ...logprobFields(request),
  };
}

/** Returns the chat completion of a request; see {@link toChat}. */
export function callOf(request: ResponsesRequest, items: readonly ResponsesItem[]): DialectCall {
  return { body: chatBytes(toChat(request, items), request.stream === true) };
}

/** A translated request. Without calls, it needs stored responses. */
export interface TranslatedResponse extends Translation {
  /** The body without its input. */
  readonly request: ResponsesRequest;
  /** Items of the input, as JSON. */
  readonly input: string;
  readonly hasReferences: boolean;
}

/** Translates the body of `POST /v1/responses`; see {@link toChat}. */
export function translateResponses(members: Members): TranslatedResponse {
  const request = readRequest(members);
  const items = itemsOf(request.input);
  const hasReferences = items.some(({ type }) => type === "item_reference");
  const needsStored = hasReferences || (request.previous_response_id ?? null) !== null;
  return {
    request: { ...request, input: [] },
    input: JSON.stringify(items),
    hasReferences,
    calls: needsStored ? [] : [callOf(request, items)],
  };
}
