/**
 * Tool use with chat templates that do not support it: their definitions become text of the system message, tool calls become text of the
 * assistant's message, and tool results become user messages. The format is that of Hermes (`<tools>`, `<tool_call>`, `<tool_response>`),
 * which the service's parser of tool calls reads, and in which most models without a format of their own were trained.
 *
 * @source https://github.com/NousResearch/Hermes-Function-Calling
 */

import { type ChatTemplate, compileTemplate } from "./chat-template.ts";

type TemplateMessage = Readonly<Record<string, unknown>>;

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

const CALLS = compileTemplate(
  `{{ content }}{% for call in tool_calls %}{{ '\\n' if content or not loop.first }}<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}`,
);

const RESULTS = compileTemplate(
  `{% for result in results %}{{ '\\n' if not loop.first }}<tool_response>{{ result }}</tool_response>{% endfor %}`,
);

/**
 * Expresses tools as text where a template does not read them; returns other messages unchanged.
 *
 * @param messages - Messages in the form that templates read.
 * @param tools - Tool definitions; null = none. For a template that does not read `tools`, they are appended to the first message if its
 *   role is `system` or `developer`, else to a new system message in front.
 * @param template - The chat template.
 */
export function supportTools(
  messages: readonly TemplateMessage[],
  tools: readonly unknown[] | null,
  template: Pick<ChatTemplate, "names" | "readsToolCalls">,
): readonly TemplateMessage[] {
  const readsTools = template.names.has("tools");
  const result = readsTools || template.readsToolCalls ? messages : callsAsText(messages);
  return readsTools || tools === null ? result : withDefinitions(result, tools);
}

/** Returns messages with tool calls in the content of assistant messages, and the results of one turn as one user message. */
function callsAsText(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const result: TemplateMessage[] = [];
  let results: unknown[] = [];
  const closeResults = () => {
    // A single message, because many templates require alternating roles.
    if (results.length > 0) result.push({ role: "user", content: RESULTS.render({ results }) });
    results = [];
  };
  for (const message of messages) {
    if (message["role"] === "tool") {
      results.push(message["content"]);
      continue;
    }
    closeResults();
    const { tool_calls: calls, ...rest } = message;
    result.push(calls === undefined ? message : { ...rest, content: CALLS.render({ content: message["content"], tool_calls: calls }) });
  }
  closeResults();
  return result;
}

function withDefinitions(messages: readonly TemplateMessage[], tools: readonly unknown[]): TemplateMessage[] {
  const [first, ...rest] = messages;
  const hasSystem = first?.["role"] === "system" || first?.["role"] === "developer";
  const system = {
    ...(hasSystem ? first : { role: "system" }),
    content: DEFINITIONS.render({ system: hasSystem ? first["content"] : "", tools }),
  };
  return [system, ...(hasSystem ? rest : messages)];
}
