/** Translation of a Messages request to a chat completion. */
import { messagesRequest, type MessagesMessage, type MessagesRequest, type MessagesTool } from "../../base/schema/index.ts";
import { checkFields, given, readMembers, reject, without, type Members, type OnUnsupported } from "../members.ts";
import { isHostedTool, RUN_IN_CLIENT } from "../hosted-tools.ts";
import { chatMessages, contentOf } from "./blocks.ts";
import { last } from "../../base/util/values.ts";

/** Fields that this file translates, checks or ignores; every other field passes unchanged. */
const HANDLED_FIELDS = new Set([
  ...["system", "messages", "tools", "tool_choice", "stop_sequences", "thinking", "output_config", "output_format", "stream"],
  ...["metadata", "service_tier", "betas", "context_management", "cache_control", "inference_geo", "speed", "max_tokens"],
  ...["container", "mcp_servers", "thread", "n"],
]);

/**
 * Returns the functions that the client runs as tools of a chat completion. Other tools are left out: hosted ones, and, unless `onUnsupported`
 * throws, tools with a schema that only Anthropic's models know.
 */
function chatTools(tools: readonly MessagesTool[], onUnsupported: OnUnsupported): Members[] {
  return tools.flatMap(({ type, name, description, input_schema: parameters }, index) => {
    if (type === undefined || type === null || type === "custom")
      return [{ type: "function", function: { name, ...given({ description, parameters }) } }];
    if (!isHostedTool(type))
      onUnsupported(`tools.${index}.type`, type, "This model does not know the tool; define it with an `input_schema`");
    return [];
  });
}

/** Returns the fields for tools and their choice. */
function toolFields({ tools, tool_choice: choice }: MessagesRequest, onUnsupported: OnUnsupported): Members {
  const functions = tools?.length ? chatTools(tools, onUnsupported) : [];
  // Hosted tools are left out, and with them a choice among them.
  const hasHostedAlone = tools?.length ? functions.length === 0 : false;
  return given({
    tools: functions.length > 0 ? functions : null,
    tool_choice: choice ? chatChoice(choice, { tools, hasHostedAlone }, onUnsupported) : null,
    parallel_tool_calls: choice?.disable_parallel_tool_use === true ? false : null,
  });
}

/** Choices of chat completions by their type in Messages, other than the choice of one tool. */
const CHAT_CHOICES = { auto: "auto", any: "required", none: "none" } as const;

/**
 * Returns the choice of a tool for chat completions; null for a choice among hosted tools.
 *
 * @param options - `tools`: all tools of the request; `hasHostedAlone`: whether it has tools, all of them hosted.
 */
function chatChoice(
  { type, name = "" }: NonNullable<MessagesRequest["tool_choice"]>,
  { tools, hasHostedAlone }: { readonly tools: MessagesRequest["tools"]; readonly hasHostedAlone: boolean },
  onUnsupported: OnUnsupported,
): unknown {
  if (type === "tool") {
    const isHosted = tools?.some((tool) => tool.name === name && isHostedTool(tool.type)) === true;
    if (!isHosted) return { type: "function", function: { name } };
    onUnsupported("tool_choice.name", name, RUN_IN_CLIENT);
    return null;
  }
  if (!hasHostedAlone) return CHAT_CHOICES[type];
  if (type === "any") onUnsupported("tool_choice.type", type, RUN_IN_CLIENT);
  return null;
}

/** Returns the fields for the form of the text and the effort of reasoning. */
function formFields({ output_config: config, output_format: legacyFormat }: MessagesRequest, onUnsupported: OnUnsupported): Members {
  const format = (config?.format ?? legacyFormat ?? null) as Members | null;
  const effort = config?.effort === "xhigh" || config?.effort === "max" ? "high" : config?.effort;
  const hasSchema = format?.["type"] === "json_schema";
  if (format !== null && !hasSchema) onUnsupported("output_config.format.type", format["type"], "Expected json_schema");
  return given({
    reasoning_effort: effort,
    response_format: hasSchema ? { type: "json_schema", json_schema: { name: "output", schema: format["schema"], strict: true } } : null,
  });
}

/** Returns the fields for reasoning. The chat template decides whether `enable_thinking` has an effect. */
function thinkingFields({ thinking, chat_template_kwargs: kwargs }: MessagesRequest): Members {
  if (!thinking) return {};
  return { chat_template_kwargs: { enable_thinking: thinking.type !== "disabled", ...(kwargs as Members | undefined) } };
}

/** Returns the fields with which the model continues the last message, if it is a text of the assistant. */
function prefillFields(messages: readonly MessagesMessage[]): Members {
  const { role, content } = last(messages);
  const hasCalls = Array.isArray(content) && content.some(({ type }) => type === "tool_use");
  return role === "assistant" && !hasCalls ? { continue_final_message: true, add_generation_prompt: false } : {};
}

/** A translated Messages request. */
export interface TranslatedMessages {
  /** Members of the chat completion's body, without `stream`. */
  readonly body: Members;
  readonly isStream: boolean;
  /** Whether thinking blocks of the answer have no text. */
  readonly omitsThinking: boolean;
}

/**
 * Translates the body of `POST /v1/messages` or `/v1/messages/count_tokens`.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` for images, documents, server tools and other
 *   features that this service does not have, unless `onUnsupported` accepts them.
 */
export function messagesToChat(members: Members, onUnsupported: OnUnsupported = reject): TranslatedMessages {
  const request = readMembers(messagesRequest, members);
  checkFields(members, { container: [], thread: [], n: [1] }, onUnsupported);
  if (Array.isArray(members["mcp_servers"]) && members["mcp_servers"].length > 0)
    onUnsupported("mcp_servers", members["mcp_servers"], "Connect to MCP servers in the client, and offer their tools in `tools`");
  const system = request.system ? [{ role: "system", content: contentOf(request.system, "system", onUnsupported) }] : [];
  const body = {
    ...without(members, HANDLED_FIELDS),
    messages: [...system, ...request.messages.flatMap((message, index) => chatMessages(message, `messages.${index}`, onUnsupported))],
    ...given({ max_tokens: request.max_tokens, stop: request.stop_sequences }),
    ...toolFields(request, onUnsupported),
    ...formFields(request, onUnsupported),
    ...thinkingFields(request),
    ...prefillFields(request.messages),
  };
  return { body, isStream: request.stream === true, omitsThinking: request.thinking?.display === "omitted" };
}
