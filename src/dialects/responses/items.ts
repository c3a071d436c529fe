/**
 * Translation of the items of the Responses API to chat messages; `messagesOf`, at the end, is the entry. Reasoning, text and function calls
 * of one turn of the assistant are separate items, and become one message.
 */
import type { RequestMessage, ResponsesItem, ToolCall } from "../../base/schema/index.ts";
import { assistantMessage, chatContent } from "../chat-messages.ts";
import { BodyError, reject, unsupportedMember, type Members, type OnUnsupported } from "../members.ts";
import { fromOpaque } from "../opaque.ts";
import { chatName } from "./tools.ts";

/** Types of content parts that are text. */
const TEXT_TYPES = new Set(["input_text", "output_text", "text", "refusal"]);

/** Content of an item. */
type ItemContent = string | readonly Members[] | null | undefined;

/** Returns a member of an item that must be a string. @throws BodyError `E_ARGUMENT` if it is not. */
function required(item: ResponsesItem, name: "call_id" | "name" | "arguments" | "role", path: string): string {
  const value = item[name];
  if (typeof value === "string") return value;
  throw new BodyError(`Expected \`${path}.${name}\` of a ${item.type ?? "message"} item to be a string`, { param: `${path}.${name}` });
}

/** Returns the texts of parts, one per line; empty for anything but a list. */
function joinTexts(parts: unknown): string {
  if (!Array.isArray(parts)) return "";
  return (parts as readonly Members[])
    .map(({ text }) => text)
    .filter((text) => typeof text === "string")
    .join("\n");
}

/** Returns the text of a reasoning item: its content; without content its opaque content; without either its summary. */
function reasoningText({ content, encrypted_content: opaque, summary }: ResponsesItem): string {
  const text = joinTexts(content);
  if (text !== "") return text;
  return fromOpaque(opaque) ?? joinTexts(summary);
}

/** Message of the assistant under construction. */
interface AssistantDraft {
  reasoning: string;
  content: NonNullable<RequestMessage["content"]> | null;
  readonly calls: ToolCall[];
}

/** Converter of items, added in their order, to messages. */
class MessageConverter {
  readonly messages: RequestMessage[] = [];
  readonly #onUnsupported: OnUnsupported;
  /** Message of the assistant that the next item may continue; null after any other message. */
  #draft: AssistantDraft | null = null;

  constructor(onUnsupported: OnUnsupported) {
    this.#onUnsupported = onUnsupported;
  }

  /** Returns the draft for an item of the assistant. The item begins a new message if there is no draft, or `isComplete` holds for it. */
  #assistantDraft(isComplete: (draft: AssistantDraft) => boolean): AssistantDraft {
    if (this.#draft === null || isComplete(this.#draft)) {
      this.flush();
      this.#draft = { reasoning: "", content: null, calls: [] };
    }
    return this.#draft;
  }

  /** Adds the message of the draft, if there is one. */
  flush(): void {
    const draft = this.#draft;
    this.#draft = null;
    if (draft !== null) this.messages.push(assistantMessage(draft.content ?? "", draft.calls, draft.reasoning));
  }

  /** Returns the content of a message. Images, files and audio are unsupported; accepted ones stay as they are. */
  #content(content: ItemContent, path: string): NonNullable<RequestMessage["content"]> {
    if (content === null || content === undefined || typeof content === "string") return content ?? "";
    for (const [index, { type }] of content.entries())
      if (!TEXT_TYPES.has(String(type)))
        this.#onUnsupported(`${path}.${index}.type`, type, "This model reads text alone; send input_text parts");
    return chatContent(content);
  }

  /** Adds a message item. */
  #addMessage(item: ResponsesItem, path: string): void {
    const role = required(item, "role", path);
    const content = this.#content(item.content, `${path}.content`);
    if (role === "assistant") {
      const message = this.#assistantDraft((draft) => draft.content !== null || draft.calls.length > 0);
      message.content = content;
      return;
    }
    this.flush();
    this.messages.push({ role, content });
  }

  /** Adds an item with reasoning, which begins the message of the text and calls after it. */
  #addReasoning(item: ResponsesItem): void {
    const message = this.#assistantDraft((draft) => draft.content !== null || draft.calls.length > 0 || draft.reasoning !== "");
    message.reasoning = reasoningText(item);
  }

  /** Adds a function call to the message of the assistant before it. */
  #addCall(item: ResponsesItem, path: string): void {
    const namespace = typeof item["namespace"] === "string" ? item["namespace"] : undefined;
    const name = chatName({ name: required(item, "name", path), namespace });
    const called = { name, arguments: required(item, "arguments", path) };
    const message = this.#assistantDraft(() => false);
    message.calls.push({ id: required(item, "call_id", path), type: "function", function: called });
  }

  /** Adds an item. `path` is its path in the body. */
  add(item: ResponsesItem, path: string): void {
    switch (item.type ?? "message") {
      case "message":
        return this.#addMessage(item, path);
      case "reasoning":
        return this.#addReasoning(item);
      case "function_call":
        return this.#addCall(item, path);
      case "function_call_output":
        this.flush();
        this.messages.push({
          role: "tool",
          tool_call_id: required(item, "call_id", path),
          content: this.#content(item.output, `${path}.output`),
        });
        return;
      default:
        throw unsupportedMember(
          `${path}.type`,
          item.type,
          "Expected message, reasoning, function_call, function_call_output or item_reference; tools run in the client",
        );
    }
  }
}

/**
 * Returns the chat messages of items.
 *
 * @param path - Path of the items in the body.
 * @throws BodyError `E_ARGUMENT` for an item without a required member; UnsupportedError `E_UNSUPPORTED` for items of hosted tools, and for
 *   images and files unless `onUnsupported` accepts them.
 */
export function messagesOf(items: readonly ResponsesItem[], onUnsupported: OnUnsupported = reject, path = "input"): RequestMessage[] {
  const converter = new MessageConverter(onUnsupported);
  for (const [index, item] of items.entries()) converter.add(item, `${path}.${index}`);
  converter.flush();
  return converter.messages;
}
