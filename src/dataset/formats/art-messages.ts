/** Translation of the content of Messages and Responses exchanges to chat messages. */
import { DataError } from "../../errors.ts";
import type { RequestMessage, Tool, ToolCall } from "../../schema/index.ts";
import type { ArtBlock, ArtItem, ArtTool } from "./art-schema.ts";
import { shown } from "../../util/shown.ts";
import { isJson } from "./documents.ts";

type Content = string | readonly ArtBlock[];

/** Message of the assistant; a sampled turn has the same members. */
export type AssistantMessage = {
  role: "assistant";
  content: string | null;
  tool_calls?: ToolCall[];
  reasoning?: string;
};

function member(value: Readonly<Record<string, unknown>>, name: string, where: string): string {
  const text = value[name];
  if (typeof text === "string") return text;
  throw new DataError(`${where}.${name}: expected a string, got ${shown(text ?? null)}`);
}

function messageContent(content: Content): RequestMessage["content"] {
  return typeof content === "string" ? content : content.map((block) => ({ ...block }));
}

/** Builds a message from its texts, calls and reasoning. */
function assistant(texts: readonly string[], calls: ToolCall[], thoughts: readonly string[]): AssistantMessage {
  const text = texts.join("");
  const reasoning = thoughts.filter((thought) => thought !== "").join("\n");
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning === "" ? {} : { reasoning }),
  };
}

function call(id: string, name: string, given: string): ToolCall {
  return { id, type: "function", function: { name, arguments: given } };
}

/** Returns the functions among the tools of a request. Tools that a server runs are left out. */
export function chatTools(tools: readonly ArtTool[] | null | undefined): Tool[] {
  return (tools ?? [])
    .filter(({ type, name }) => typeof name === "string" && (type === "function" || type === "custom" || !type))
    .map(({ name, description, parameters, input_schema: schema }) => ({
      type: "function",
      function: {
        name: name!,
        ...(description ? { description } : {}),
        ...((parameters ?? schema) ? { parameters: (parameters ?? schema) as Tool["function"]["parameters"] } : {}),
      },
    }));
}

// Messages.

/** Returns the assistant's message of content blocks. @throws DataError `E_DATA` for a block other than text, thinking and tool calls. */
export function fromBlocks(content: Content, where: string): AssistantMessage {
  if (typeof content === "string") return assistant([content], [], []);
  const [texts, calls, thoughts]: [string[], ToolCall[], string[]] = [[], [], []];
  for (const [index, block] of content.entries()) {
    const at = `${where}.${index}`;
    if (block.type === "text") texts.push(member(block, "text", at));
    else if (block.type === "thinking") thoughts.push(member(block, "thinking", at));
    else if (block.type === "tool_use")
      calls.push(call(member(block, "id", at), member(block, "name", at), JSON.stringify(block["input"] ?? {})));
    else if (block.type !== "redacted_thinking")
      throw new DataError(`${at}.type: expected text, thinking or tool_use, got ${shown(block.type)}`);
  }
  return assistant(texts, calls, thoughts);
}

/** Returns the chat messages of a message: a user's tool results are messages of their own. */
export function fromMessage({ role, content }: { readonly role: string; readonly content: Content }, where: string): RequestMessage[] {
  if (role === "assistant") return [fromBlocks(content, where)];
  if (typeof content === "string") return [{ role, content }];
  const messages: RequestMessage[] = [];
  for (const [index, block] of content.entries()) {
    const last = messages.at(-1);
    if (block.type === "tool_result") {
      const result = (block["content"] ?? "") as Content;
      messages.push({ role: "tool", tool_call_id: member(block, "tool_use_id", `${where}.${index}`), content: messageContent(result) });
    } else if (last?.role === role && Array.isArray(last.content)) last.content.push({ ...block });
    else messages.push({ role, content: [{ ...block }] });
  }
  return messages;
}

/** Returns the system message of a request; empty without one. */
export function systemMessage(content: Content | null | undefined): RequestMessage[] {
  return content === null || content === undefined || content.length === 0 ? [] : [{ role: "system", content: messageContent(content) }];
}

// Responses.

/** Adjacent items of the assistant, which are one message. */
interface Draft {
  readonly texts: string[];
  readonly calls: ToolCall[];
  readonly thoughts: string[];
}

/** Returns the chat messages of items. @throws DataError `E_DATA` for items of tools that a server runs. */
export function fromItems(items: readonly ArtItem[], where: string): RequestMessage[] {
  const messages: RequestMessage[] = [];
  let draft: Draft | null = null;
  const flush = () => {
    if (draft !== null) messages.push(assistant(draft.texts, draft.calls, draft.thoughts));
    draft = null;
  };
  for (const [index, item] of items.entries()) {
    const at = `${where}.${index}`;
    if (isOfAssistant(item)) {
      // A text after calls, or reasoning after anything, begins the next turn.
      const begins = item.type === "reasoning" ? draft !== null : item.type !== "function_call" && draft !== null && hasAnswer(draft);
      if (begins) flush();
      draft ??= { texts: [], calls: [], thoughts: [] };
      addItem(draft, item, at);
      continue;
    }
    flush();
    messages.push(contextMessage(item, at));
  }
  flush();
  return messages;
}

function hasAnswer({ texts, calls }: Draft): boolean {
  return texts.length > 0 || calls.length > 0;
}

function isOfAssistant({ type, role }: ArtItem): boolean {
  return type === "reasoning" || type === "function_call" || ((type ?? "message") === "message" && role === "assistant");
}

function contextMessage(item: ArtItem, at: string): RequestMessage {
  const type = item.type ?? "message";
  if (type === "message") return { role: member(item, "role", at), content: messageContent(item.content ?? "") };
  if (type === "function_call_output")
    return { role: "tool", tool_call_id: member(item, "call_id", at), content: messageContent(item.output ?? "") };
  throw new DataError(`${at}.type: expected message, reasoning, function_call or function_call_output, got ${shown(type)}`);
}

function addItem(draft: Draft, item: ArtItem, at: string): void {
  if (item.type === "reasoning") draft.thoughts.push(textsOf(item.content) || textsOf(item.summary));
  else if (item.type === "function_call")
    draft.calls.push(call(member(item, "call_id", at), member(item, "name", at), member(item, "arguments", at)));
  else draft.texts.push(textsOf(item.content));
}

/** Returns the assistant's message of a response. @throws DataError `E_DATA` for output of tools that a server runs. */
export function fromOutput(items: readonly ArtItem[], where: string): AssistantMessage {
  const draft: Draft = { texts: [], calls: [], thoughts: [] };
  for (const [index, item] of items.entries()) {
    if (!isOfAssistant(item))
      throw new DataError(`${where}.${index}.type: expected message, reasoning or function_call, got ${shown(item.type ?? null)}`);
    addItem(draft, item, `${where}.${index}`);
  }
  return assistant(draft.texts, draft.calls, draft.thoughts);
}

function textsOf(content: Content | null | undefined): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (isJson(part) && typeof part["text"] === "string" ? part["text"] : "")).join("");
}
