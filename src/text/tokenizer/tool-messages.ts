/**
 * Tool use with chat templates that do not support it: tool definitions become text of the system message, tool calls become text of the
 * assistant's message, and tool results become user messages. The format is Hermes (`<tools>`, `<tool_call>`, `<tool_response>`): the
 * service's parser of tool calls reads it, and most models without a format of their own were trained with it.
 *
 * @source https://github.com/NousResearch/Hermes-Function-Calling
 */

import { compileTemplate } from "./chat-template.ts";
import type { ChatMessage } from "./chat-tokenizer.ts";
import type { MessageForms } from "./message-forms.ts";
import { templateMessages } from "./template-messages.ts";

/** Template of a system message with tool definitions, after the given system prompt. */
const DEFINITIONS = compileTemplate(
  `{% if system %}{{ system }}

{% endif %}You can call these tools; each line is the JSON schema of one function:
<tools>
{% for tool in tools %}
{{ (tool.function if tool.function else tool) | tojson }}
{% endfor %}
</tools>
To call a tool, write its name and arguments as JSON: <tool_call>{"name": "…", "arguments": {…}}</tool_call>`,
);

/** Template of an assistant message with tool calls, after its content. */
const CALLS = compileTemplate(
  `{{ content }}{% for call in tool_calls %}{{ '\\n' if content or not loop.first }}<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}`,
);

/** Template of a user message with tool results. */
const RESULTS = compileTemplate(
  `{% for result in results %}{{ '\\n' if not loop.first }}<tool_response>{{ result }}</tool_response>{% endfor %}`,
);

/** Forms for {@link templateMessages} in which the content of every message is a single text, as the templates above read it. */
const TEXT_FORMS: MessageForms = {
  rendersTools: true,
  rendersToolCalls: true,
  toolArguments: "object",
  emptyContent: "",
  readsParts: { system: false, user: false, assistant: false, tool: false },
  readsText: { system: true, user: true, assistant: true, tool: true },
  reasoning: "fields",
};

/**
 * Expresses tool calls, results and definitions as text if the template does not render them; otherwise returns the messages unchanged.
 *
 * @param tools - Tool definitions; null = none. For a template that does not render them, they are appended to the first message if its
 *   role is `system` or `developer`, else to a new system message in front.
 * @param forms - Forms of messages that the template renders.
 */
export function supportTools(
  messages: readonly ChatMessage[],
  tools: readonly unknown[] | null,
  { rendersTools, rendersToolCalls }: MessageForms,
): readonly ChatMessage[] {
  const renderable = rendersToolCalls ? messages : callsAsText(messages);
  return rendersTools || tools === null ? renderable : withDefinitions(renderable, tools);
}

/** Moves tool calls into the content of assistant messages, and the tool results of one turn into one user message. */
function callsAsText(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some(({ role, tool_calls: calls }) => role === "tool" || (calls ?? []).length > 0)) return messages;
  const converted: ChatMessage[] = [];
  /** Contents of the tool messages since the last other message. */
  let results: unknown[] = [];
  const addResults = (): void => {
    // A single message, because many templates require alternating roles.
    if (results.length > 0) converted.push({ role: "user", content: RESULTS.render({ results }) });
    results = [];
  };
  for (const { role, content, tool_calls: calls, ...rest } of templateMessages(messages, TEXT_FORMS) as unknown as TextMessage[]) {
    if (role === "tool") {
      results.push(content);
      continue;
    }
    addResults();
    converted.push({ ...rest, role, content: calls === undefined ? content : CALLS.render({ content, tool_calls: calls }) });
  }
  addResults();
  return converted;
}

/** Message with a single text as content. */
interface TextMessage {
  readonly role: string;
  readonly content: string;
  readonly tool_calls?: readonly unknown[];
}

/** Appends tool definitions to the system message, or puts a system message with them in front. */
function withDefinitions(messages: readonly ChatMessage[], tools: readonly unknown[]): ChatMessage[] {
  const [firstMessage, ...otherMessages] = messages;
  const hasSystem = firstMessage?.role === "system" || firstMessage?.role === "developer";
  const system: ChatMessage = hasSystem ? firstMessage : { role: "system" };
  const [{ content }] = templateMessages([system], TEXT_FORMS) as unknown as [TextMessage];
  const withTools = { ...system, content: DEFINITIONS.render({ system: content, tools }) };
  return [withTools, ...(hasSystem ? otherMessages : messages)];
}
