/** Translation of the items of the Responses API to chat messages. */
import type { ResponsesItem } from "../../../schema/index.ts";
import { BodyError } from "../../chat/request/errors.ts";
import type { Members } from "../dialect.ts";
import { unsupported } from "../translate.ts";
import { chatName } from "./tools.ts";

const TEXT_TYPES = new Set(["input_text", "output_text", "text", "refusal"]);

/** Returns the text parts of content. @throws UnsupportedError `E_UNSUPPORTED` for images, files and audio. */
function textContent(content: string | readonly Members[] | null | undefined, at: string): string | readonly Members[] {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  const wrong = content.findIndex(({ type }) => !TEXT_TYPES.has(String(type)));
  if (wrong !== -1) throw unsupported(`${at}.${wrong}.type`, content[wrong]!["type"], "This model reads text alone; send input_text parts");
  return content;
}

function required(item: ResponsesItem, name: "call_id" | "name" | "arguments" | "role", at: string): string {
  const value = item[name];
  if (typeof value === "string") return value;
  throw new BodyError(`Expected \`${at}.${name}\` of a ${item.type ?? "message"} item to be a string`, { param: `${at}.${name}` });
}

function joinTexts(parts: unknown): string {
  if (!Array.isArray(parts)) return "";
  return (parts as readonly Members[])
    .map(({ text }) => text)
    .filter((text) => typeof text === "string")
    .join("\n");
}

/** Returns reasoning in the form of `encrypted_content`, with which clients return reasoning that they cannot read. */
export function toOpaque(reasoning: string): string {
  return Buffer.from(reasoning).toString("base64");
}

/** Returns the text of a reasoning item: its content, or else its opaque content, or else its summary. */
function reasoningText({ content, ...item }: ResponsesItem): string {
  const said = joinTexts(content);
  if (said !== "") return said;
  const { encrypted_content: opaque } = item;
  return typeof opaque === "string" && opaque !== "" ? Buffer.from(opaque, "base64").toString() : joinTexts(item["summary"]);
}

/** Message of the assistant under construction. */
interface AssistantDraft {
  reasoning: string;
  content: string | readonly Members[] | null;
  readonly calls: Members[];
}

/** Converter of items, in order, to messages: adjacent items of the assistant are one message. */
class Messages {
  readonly messages: Members[] = [];
  #draft: AssistantDraft | null = null;

  /** Returns the message of the assistant that an item continues, or a new one if `isNext`. */
  #assistant(isNext: (draft: AssistantDraft) => boolean): AssistantDraft {
    if (this.#draft === null || isNext(this.#draft)) {
      this.flush();
      this.#draft = { reasoning: "", content: null, calls: [] };
    }
    return this.#draft;
  }

  flush(): void {
    const draft = this.#draft;
    this.#draft = null;
    if (draft === null) return;
    this.messages.push({
      role: "assistant",
      content: draft.content ?? "",
      ...(draft.calls.length > 0 ? { tool_calls: draft.calls } : {}),
      ...(draft.reasoning === "" ? {} : { reasoning: draft.reasoning }),
    });
  }

  #message(item: ResponsesItem, at: string): void {
    const role = required(item, "role", at);
    const content = textContent(item.content, `${at}.content`);
    if (role === "assistant") {
      this.#assistant((draft) => draft.content !== null || draft.calls.length > 0).content = content;
      return;
    }
    this.flush();
    this.messages.push({ role, content });
  }

  add(item: ResponsesItem, at: string): void {
    switch (item.type ?? "message") {
      case "message":
        return this.#message(item, at);
      case "reasoning":
        this.#assistant((draft) => draft.content !== null || draft.calls.length > 0 || draft.reasoning !== "").reasoning =
          reasoningText(item);
        return;
      case "function_call": {
        const { namespace } = item;
        const name = { name: required(item, "name", at), ...(typeof namespace === "string" ? { namespace } : {}) };
        const called = { name: chatName(name), arguments: required(item, "arguments", at) };
        this.#assistant(() => false).calls.push({ id: required(item, "call_id", at), type: "function", function: called });
        return;
      }
      case "function_call_output":
        this.flush();
        this.messages.push({
          role: "tool",
          tool_call_id: required(item, "call_id", at),
          content: textContent(item.output, `${at}.output`),
        });
        return;
      default:
        throw unsupported(
          `${at}.type`,
          item.type,
          "Expected message, reasoning, function_call, function_call_output or item_reference; tools run in the client",
        );
    }
  }
}

/**
 * Returns the chat messages of items.
 *
 * @throws BodyError `E_ARGUMENT` for an item without a required member; UnsupportedError `E_UNSUPPORTED` for images, files and items of
 *   hosted tools.
 */
export function messagesOf(items: readonly ResponsesItem[]): readonly Members[] {
  const converter = new Messages();
  for (const [index, item] of items.entries()) converter.add(item, `input.${index}`);
  converter.flush();
  return converter.messages;
}
