/** Translation of the content blocks of Messages to chat messages. */
import type { MessagesBlock, MessagesMessage } from "../../../schema/index.ts";
import { BodyError } from "../../chat/request/errors.ts";
import type { Members } from "../dialect.ts";
import { unsupported } from "../translate.ts";

/** Content of a chat message: text, or text parts, which the pipeline joins. */
type TextContent = string | readonly Members[];

function required(block: MessagesBlock, name: string, at: string): string {
  const value = block[name];
  if (typeof value === "string") return value;
  throw new BodyError(`Expected \`${at}.${name}\` of a ${block.type} block to be a string`, { param: `${at}.${name}` });
}

function textPart(block: MessagesBlock, at: string): Members {
  if (block.type !== "text") throw unsupported(`${at}.type`, block.type, "This model reads text alone; send text blocks");
  return { type: "text", text: required(block, "text", at) };
}

/** Returns text blocks as content of a chat message. @throws UnsupportedError `E_UNSUPPORTED` for a block of another type. */
export function textsOf(content: string | readonly MessagesBlock[], at: string): TextContent {
  return typeof content === "string" ? content : content.map((block, index) => textPart(block, `${at}.${index}`));
}

function isBlocks(value: unknown): value is string | readonly MessagesBlock[] {
  return typeof value === "string" || Array.isArray(value);
}

function toolMessage(block: MessagesBlock, at: string): Members {
  const content = block["content"] ?? "";
  if (!isBlocks(content))
    throw new BodyError(`Expected \`${at}.content\` to be a string or an array of blocks`, { param: `${at}.content` });
  return { role: "tool", tool_call_id: required(block, "tool_use_id", at), content: textsOf(content, `${at}.content`) };
}

/** Splits the blocks of a user's message into tool results and texts, in order; adjacent texts are one message. */
function userMessages(blocks: readonly MessagesBlock[], role: string, at: string): Members[] {
  const messages: Members[] = [];
  let texts: Members[] = [];
  const flush = (): void => {
    if (texts.length > 0) messages.push({ role, content: texts });
    texts = [];
  };
  for (const [index, block] of blocks.entries()) {
    const place = `${at}.content.${index}`;
    if (block.type === "tool_result") {
      flush();
      messages.push(toolMessage(block, place));
    } else texts.push(textPart(block, place));
  }
  flush();
  return messages.length > 0 ? messages : [{ role, content: "" }];
}

function toolCall(block: MessagesBlock, at: string): Members {
  const called = { name: required(block, "name", at), arguments: JSON.stringify(block.input ?? {}) };
  return { id: required(block, "id", at), type: "function", function: called };
}

function assistantMessage(blocks: readonly MessagesBlock[], at: string): Members {
  const texts: Members[] = [];
  const calls: Members[] = [];
  const thoughts: string[] = [];
  for (const [index, block] of blocks.entries()) {
    const place = `${at}.content.${index}`;
    if (block.type === "thinking") thoughts.push(required(block, "thinking", place));
    else if (block.type === "tool_use") calls.push(toolCall(block, place));
    else texts.push(textPart(block, place));
  }
  const reasoning = thoughts.filter((text) => text !== "").join("\n");
  return {
    role: "assistant",
    content: texts,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning === "" ? {} : { reasoning }),
  };
}

/**
 * Returns the chat messages of a message.
 *
 * @param at - Path of the message in the body.
 * @throws BodyError `E_ARGUMENT` for a block without a required member; UnsupportedError `E_UNSUPPORTED` for images, documents and other
 *   blocks that are not text, reasoning, tool calls or tool results.
 */
export function chatMessages({ role, content }: MessagesMessage, at: string): Members[] {
  if (typeof content === "string") return [{ role, content }];
  return role === "assistant" ? [assistantMessage(content, at)] : userMessages(content, role, at);
}
