/** Translation of a Responses request to a chat completion. */
import { responsesRequest, type ResponsesItem, type ResponsesRequest } from "../../base/schema/index.ts";
import { checkFields, given, readMembers, reject, without, type Members, type OnUnsupported } from "../members.ts";
import { messagesOf } from "./items.ts";
import { isHostedTool, RUN_IN_CLIENT } from "../hosted-tools.ts";
import { chatName, chatTools } from "./tools.ts";

/** Fields that this file translates, checks or ignores; every other field passes unchanged. */
const HANDLED_FIELDS = new Set([
  ...["input", "instructions", "previous_response_id", "store", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"],
  ...["reasoning", "text", "include", "top_logprobs", "metadata", "stream", "stream_options", "truncation", "background"],
  ...["conversation", "prompt", "context_management", "moderation", "max_tool_calls", "service_tier", "safety_identifier"],
  ...["prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "client_metadata", "n"],
]);

const LOGPROBS = "message.output_text.logprobs";
/** Values of `include` that are supported. */
const INCLUDES = [LOGPROBS, "reasoning.encrypted_content"];

/** Values of `include` for calls of hosted tools. They are accepted without an effect, because no response has such a call. */
const HOSTED_INCLUDES = [
  "web_search_call.results",
  "web_search_call.action.sources",
  "file_search_call.results",
  "code_interpreter_call.outputs",
  "computer_call_output.output.image_url",
];

/** Fields of features that this service does not have, with the values that request nothing. */
const UNSUPPORTED = {
  background: [false],
  conversation: [],
  prompt: [],
  context_management: [],
  moderation: [],
  truncation: ["disabled"],
  n: [1],
};

/** Returns the choice of a tool for chat completions; null for an unsupported one that is accepted. */
function chatChoice(choice: ResponsesRequest["tool_choice"], onUnsupported: OnUnsupported): unknown {
  if (typeof choice !== "object" || choice === null) return choice;
  const { type, name, namespace } = choice;
  if (type === "function")
    return { type, function: { name: typeof namespace === "string" ? chatName({ name: String(name), namespace }) : name } };
  const instead = isHostedTool(type) ? RUN_IN_CLIENT : 'Expected none, auto, required or {"type": "function", "name": …}';
  onUnsupported("tool_choice.type", type, instead);
  return null;
}

/** Returns the fields for tools and their choice. */
function toolFields({ tools, tool_choice: choice }: ResponsesRequest, onUnsupported: OnUnsupported): Members {
  if (!tools?.length) return {};
  const functions = chatTools(tools, onUnsupported);
  const chosen = chatChoice(choice, onUnsupported);
  if (functions.length > 0 || (typeof chosen === "object" && chosen !== null)) return { tools: functions, tool_choice: chosen };
  // All tools are hosted and were left out, so that the model cannot call any.
  if (chosen === "required") onUnsupported("tool_choice", chosen, RUN_IN_CLIENT);
  return {};
}

/** Returns `response_format` for the text settings. */
function responseFormat(text: ResponsesRequest["text"], onUnsupported: OnUnsupported): Members | null {
  const format = text?.format as Members | null | undefined;
  const verbosity = text?.["verbosity"] ?? "medium";
  if (verbosity !== "medium") onUnsupported("text.verbosity", verbosity, "Leave it out, and ask for brevity in the input");
  if (!format || format["type"] !== "json_schema") return format ?? null;
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}

/** Returns the fields for log-probabilities. */
function logprobFields({ include, top_logprobs: top, logprobs }: ResponsesRequest, onUnsupported: OnUnsupported): Members {
  const unknown = include?.find((name) => !INCLUDES.includes(name) && !HOSTED_INCLUDES.includes(name));
  if (unknown !== undefined) onUnsupported("include", unknown, `Expected ${INCLUDES.join(" or ")}`);
  const isRequested = include?.includes(LOGPROBS) === true || (top ?? 0) > 0 || logprobs === true;
  return isRequested ? given({ logprobs: true, top_logprobs: top }) : {};
}

/** Parses the body of `POST /v1/responses`. @throws BodyError `E_ARGUMENT` for a malformed body. */
export function readResponsesRequest(members: Members, onUnsupported: OnUnsupported = reject): ResponsesRequest {
  checkFields(members, UNSUPPORTED, onUnsupported);
  return readMembers(responsesRequest, members);
}

/**
 * Translates a request to a chat completion.
 *
 * @param members - Members of the body.
 * @param request - The parsed body.
 * @param items - Items of the previous responses and of the input.
 * @returns Members of the chat completion's body, without `stream`.
 * @throws BodyError `E_ARGUMENT` and UnsupportedError `E_UNSUPPORTED` for fields without an equivalent, such as a choice that
 *   forces a hosted tool.
 */
export function responsesToChat(
  members: Members,
  request: ResponsesRequest,
  items: readonly ResponsesItem[],
  onUnsupported: OnUnsupported = reject,
): Members {
  const { instructions, reasoning, parallel_tool_calls, max_output_tokens } = request;
  return {
    ...without(members, HANDLED_FIELDS),
    messages: [...(instructions ? [{ role: "system", content: instructions }] : []), ...messagesOf(items, onUnsupported)],
    ...given({
      ...toolFields(request, onUnsupported),
      parallel_tool_calls,
      max_completion_tokens: max_output_tokens,
      reasoning_effort: reasoning?.effort,
      response_format: responseFormat(request.text, onUnsupported),
    }),
    ...logprobFields(request, onUnsupported),
  };
}
