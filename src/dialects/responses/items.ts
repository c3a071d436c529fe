/** Translation of the items of the Responses API to chat messages. */
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

/** Returns the text of a reasoning item: its content, or else its opaque content, or else its summary. */
function reasoningText({ content, encrypted_content: opaque, summary }: ResponsesItem): string {
  return joinTexts(content) || (fromOpaque(opaque) ?? joinTexts(summary));
}

/** Message of the assistant under construction. */
interface AssistantDraft {
  reasoning: string;
  content: NonNullable<RequestMessage["content"]> | null;
  readonly calls: ToolCall[];
}

/** Converter of items, in order, to messages: adjacent items of the assistant are one message. */
class Messages {
  readonly messages: RequestMessage[] = [];
  readonly #onUnsupported: OnUnsupported;
  /** Message of the assistant under construction; null without one. */
  #draft: AssistantDraft | null = null;

  constructor(onUnsupported: OnUnsupported) {
    this.#onUnsupported = onUnsupported;
  }

  /** Returns the assistant's message that an item continues; begins a new message without one to continue, or if `isComplete` holds. */
  #assistant(isComplete: (draft: AssistantDraft) => boolean): AssistantDraft {
    if (this.#draft === null || isComplete(this.#draft)) {
      this.flush();
      this.#draft = { reasoning: "", content: null, calls: [] };
    }
    return this.#draft;
  }

  /** Ends the message of the assistant under construction, if there is one. */
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
  #message(item: ResponsesItem, path: string): void {
    const role = required(item, "role", path);
    const content = this.#content(item.content, `${path}.content`);
    if (role === "assistant") {
      this.#assistant((draft) => draft.content !== null || draft.calls.length > 0).content = content;
      return;
    }
    this.flush();
    this.messages.push({ role, content });
  }

  /** Adds an item. `path` is its path in the body. */
  add(item: ResponsesItem, path: string): void {
    switch (item.type ?? "message") {
      case "message":
        return this.#message(item, path);
      case "reasoning":
        this.#assistant((draft) => draft.content !== null || draft.calls.length > 0 || draft.reasoning !== "").reasoning =
          reasoningText(item);
        return;
      case "function_call": {
        const { namespace } = item;
        const name = { name: required(item, "name", path), ...(typeof namespace === "string" ? { namespace } : {}) };
        const called = { name: chatName(name), arguments: required(item, "arguments", path) };
        this.#assistant(() => false).calls.push({ id: required(item, "call_id", path), type: "function", function: called });
        return;
      }
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
  const converter = new Messages(onUnsupported);
  for (const [index, item] of items.entries()) converter.add(item, `${path}.${index}`);
  converter.flush();
  return converter.messages;
}
