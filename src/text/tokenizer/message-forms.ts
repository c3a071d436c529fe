/**
 * Forms of messages that a chat template renders. Templates disagree: some concatenate `arguments` as text, some skip tool calls unless
 * `content` is null, some iterate over the parts of `content`. The forms are found by rendering small conversations, as llama.cpp does
 * (common/jinja/caps.cpp), and searching the results for the texts of the messages. So they depend on the template alone.
 */

/** Forms in which a template renders the parts of a message. */
export interface MessageForms {
  /** Whether tool definitions are rendered. */
  readonly rendersTools: boolean;
  /** Whether tool calls of messages are rendered. */
  readonly rendersToolCalls: boolean;
  /** Form of the arguments of tool calls: a mapping, or its JSON text. */
  readonly toolArguments: "object" | "text";
  /** Content of an assistant message that has tool calls and no text. */
  readonly emptyContent: "" | null;
  /** Whether content that is a list of parts is rendered, by the role of the message. */
  readonly readsParts: Readonly<Record<FormRole, boolean>>;
  /** Whether content that is a text is rendered, by the role of the message. */
  readonly readsText: Readonly<Record<FormRole, boolean>>;
  /** Place of the reasoning: fields of the message, or a part of type `thinking` at the start of its content. */
  readonly reasoning: "fields" | "part";
}

/** Roles with a form of their own; `developer` has the form of `system`, other roles of `user`. */
export type FormRole = "system" | "user" | "assistant" | "tool";

type Message = Readonly<Record<string, unknown>>;

/** Renders a conversation; throws if the template fails. */
type Render = (variables: { readonly messages: readonly Message[]; readonly tools: readonly unknown[] | null }) => string;

/** Renders a conversation; returns "" if the template fails. */
type Attempt = (messages: readonly Message[], tools: readonly unknown[] | null) => string;

// Texts of the messages. A form is supported if the rendering contains them: no template contains them itself.
const FIRST = "firstneedle";
const SECOND = "secondneedle";
const ARGUMENT = "argumentneedle";
const ARGUMENTS = { keyneedle: ARGUMENT };
const CALL_ID = "call00001";
const QUESTION: Message = { role: "user", content: "question" };
const TOOL = {
  type: "function",
  function: {
    name: "lookup",
    description: "Looks up a key.",
    parameters: { type: "object", properties: { keyneedle: { type: "string", description: "Key." } }, required: ["keyneedle"] },
  },
};

/** Returns the role that determines the form of messages of `role`. */
export function formRole(role: unknown): FormRole {
  if (role === "developer") return "system";
  return role === "system" || role === "assistant" || role === "tool" ? role : "user";
}

/**
 * Returns the forms that a template renders. A form that no rendering confirms has its default: arguments as objects, content as text,
 * reasoning in fields.
 *
 * @param render - Renders the template.
 */
export function probeForms(render: Render): MessageForms {
  const attempt: Attempt = (messages, tools) => {
    try {
      return render({ messages, tools });
    } catch {
      return "";
    }
  };
  const calls = callForms(attempt);
  const renderContent = (role: FormRole, content: unknown): string => {
    const message = { role, content };
    if (role === "tool") {
      // A result must answer a call, in the forms found before.
      const call = withCall(calls.toolArguments, calls.emptyContent);
      return attempt([...call, { ...message, tool_call_id: CALL_ID, name: "lookup" }], [TOOL]);
    }
    if (role === "assistant") return attempt([QUESTION, message], null);
    return attempt(role === "system" ? [message, QUESTION] : [message], null);
  };
  const parts = [textPart(FIRST), textPart(SECOND)];
  const readsParts = byRole((role) => concatenates(renderContent(role, parts)));
  return {
    ...calls,
    rendersTools: attempt([QUESTION], [TOOL]).includes(TOOL.function.name),
    readsParts,
    readsText: byRole((role) => !readsParts[role] || renderContent(role, FIRST).includes(FIRST)),
    reasoning: reasoningForm(attempt),
  };
}

/** Returns a part of `content` with a text. */
export function textPart(text: string): { readonly type: "text"; readonly text: string } {
  return { type: "text", text };
}

/** Returns the result of a test for each role. */
function byRole(test: (role: FormRole) => boolean): Readonly<Record<FormRole, boolean>> {
  return { system: test("system"), user: test("user"), assistant: test("assistant"), tool: test("tool") };
}

/** Returns a question and an assistant message that answers it with a tool call. */
function withCall(form: MessageForms["toolArguments"], content: MessageForms["emptyContent"]): readonly Message[] {
  const callArguments = form === "object" ? ARGUMENTS : JSON.stringify(ARGUMENTS);
  const call = { id: CALL_ID, type: "function", function: { name: "lookup", arguments: callArguments } };
  return [QUESTION, { role: "assistant", content, tool_calls: [call] }];
}

/** Finds the form of tool calls: the first combination of arguments and content that the template renders. */
function callForms(attempt: Attempt): Pick<MessageForms, "rendersToolCalls" | "toolArguments" | "emptyContent"> {
  const result = { role: "tool", tool_call_id: CALL_ID, name: "lookup", content: "found" };
  for (const toolArguments of ["object", "text"] as const) {
    const rendering = (content: "" | null): string => attempt([...withCall(toolArguments, content), result], [TOOL]);
    const [withEmpty, withNull] = [rendering(""), rendering(null)];
    // A template that prints null as `None` expects a text. If "" and null give different texts, null is right: "" would add an empty turn.
    const takesNull = showsArguments(withNull) && withNull !== withEmpty && !withNull.includes("None");
    if (takesNull) return { rendersToolCalls: true, toolArguments, emptyContent: null };
    if (showsArguments(withEmpty)) return { rendersToolCalls: true, toolArguments, emptyContent: "" };
  }
  return { rendersToolCalls: false, toolArguments: "object", emptyContent: "" };
}

/** Returns whether a text shows the arguments, neither as Python prints a mapping nor as JSON text inside of JSON text. */
function showsArguments(rendered: string): boolean {
  return rendered.includes(ARGUMENT) && !/\{(?:'|\\")keyneedle/.test(rendered);
}

/** Returns whether a text has both parts, without their notation as a list. */
function concatenates(rendered: string): boolean {
  const between = new RegExp(`${FIRST}(.*?)${SECOND}`, "s").exec(rendered)?.[1];
  return between !== undefined && !/['"]/.test(between);
}

/** Finds the form of reasoning: fields, also where no rendering shows it; a part only if the template renders it as plain text. */
function reasoningForm(attempt: Attempt): MessageForms["reasoning"] {
  const [, call] = withCall("object", "");
  const fields = { reasoning_content: FIRST, thinking: FIRST, reasoning: FIRST };
  const shows = (message: Message): boolean => attempt([QUESTION, message], [TOOL]).includes(FIRST);
  if (shows({ role: "assistant", content: "answer", ...fields }) || shows({ ...call, ...fields })) return "fields";
  const rendered = attempt([QUESTION, { role: "assistant", content: [{ type: "thinking", thinking: FIRST }, textPart(SECOND)] }], [TOOL]);
  return concatenates(rendered) && !/['"]thinking['"]/.test(rendered) ? "part" : "fields";
}
