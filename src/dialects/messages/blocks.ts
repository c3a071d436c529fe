/** Translation of the content blocks of Messages to chat messages. `chatMessages`, at the end, translates a message of a request. */
import type { MessagesBlock, MessagesMessage, RequestMessage, ToolCall } from "../../base/schema/index.ts";
import { assistantMessage, chatContent } from "../chat-messages.ts";
import { BodyError, unsupportedMember, type OnUnsupported } from "../members.ts";
import { fromOpaque, toOpaque } from "../opaque.ts";

/** Returns a member of a block that must be a string. @throws BodyError `E_ARGUMENT` if it is not. */
function required(block: MessagesBlock, name: string, path: string): string {
  const value = block[name];
  if (typeof value === "string") return value;
  throw new BodyError(`Expected \`${path}.${name}\` of a ${block.type} block to be a string`, { param: `${path}.${name}` });
}

/** Returns a text block as a content part; reports a block of another type. */
function textPart(block: MessagesBlock, path: string, onUnsupported: OnUnsupported): MessagesBlock {
  if (block.type === "text") return { type: "text", text: required(block, "text", path) };
  onUnsupported(`${path}.type`, block.type, "This model reads text alone; send text blocks");
  return block;
}

/** Returns blocks as content of a chat message. Blocks other than text are unsupported; accepted ones stay as they are. */
export function contentOf(
  content: string | readonly MessagesBlock[],
  path: string,
  onUnsupported: OnUnsupported,
): RequestMessage["content"] {
  if (typeof content === "string") return content;
  return chatContent(content.map((block, index) => textPart(block, `${path}.${index}`, onUnsupported)));
}

function isBlocks(value: unknown): value is string | readonly MessagesBlock[] {
  return typeof value === "string" || Array.isArray(value);
}

/** Returns a tool result as a message of the role `tool`. */
function toolMessage(block: MessagesBlock, path: string, onUnsupported: OnUnsupported): RequestMessage {
  const content = block["content"] ?? "";
  if (!isBlocks(content))
    throw new BodyError(`Expected \`${path}.content\` to be a string or an array of blocks`, { param: `${path}.content` });
  return {
    role: "tool",
    tool_call_id: required(block, "tool_use_id", path),
    content: contentOf(content, `${path}.content`, onUnsupported),
  };
}

/** Returns the messages of a user's blocks, in order: one per tool result, and one per run of adjacent texts. */
function userMessages(blocks: readonly MessagesBlock[], role: string, path: string, onUnsupported: OnUnsupported): RequestMessage[] {
  const messages: RequestMessage[] = [];
  let texts: MessagesBlock[] = [];
  const flush = (): void => {
    if (texts.length > 0) messages.push({ role, content: chatContent(texts) });
    texts = [];
  };
  for (const [index, block] of blocks.entries()) {
    const blockPath = `${path}.${index}`;
    if (block.type === "tool_result") {
      flush();
      messages.push(toolMessage(block, blockPath, onUnsupported));
    } else texts.push(textPart(block, blockPath, onUnsupported));
  }
  flush();
  return messages.length > 0 ? messages : [{ role, content: "" }];
}

/** Returns a `tool_use` block as a tool call. */
function toolCall(block: MessagesBlock, path: string): ToolCall {
  const { input = {} } = block as { readonly input?: unknown };
  // A recorded stream has the arguments as JSON text.
  const argumentsText = typeof input === "string" ? input : JSON.stringify(input);
  const called = { name: required(block, "name", path), arguments: argumentsText };
  return { id: required(block, "id", path), type: "function", function: called };
}

/** Start of a signature that contains omitted reasoning. */
const OMITTED_PREFIX = "whetstone-reasoning:";

/** Returns the signature of a thinking block without text. The client sends it back in the next request, and with it the reasoning. */
export function omittedSignature(reasoning: string): string {
  return OMITTED_PREFIX + toOpaque(reasoning);
}

/** Returns the reasoning in the signature of a thinking block without text; empty for the signature of another provider. */
function omittedReasoning(signature: string | undefined): string {
  if (signature?.startsWith(OMITTED_PREFIX) !== true) return "";
  return fromOpaque(signature.slice(OMITTED_PREFIX.length)) ?? "";
}

/**
 * Returns the blocks of the assistant as one chat message.
 *
 * @throws BodyError `E_ARGUMENT` for a block without a required member; UnsupportedError `E_UNSUPPORTED` for blocks other than text,
 *   reasoning and tool calls, such as calls of tools that a server runs.
 */
export function fromAssistantBlocks(blocks: readonly MessagesBlock[], path: string, onUnsupported: OnUnsupported): RequestMessage {
  const texts: MessagesBlock[] = [];
  const calls: ToolCall[] = [];
  const thoughts: string[] = [];
  for (const [index, block] of blocks.entries()) {
    const blockPath = `${path}.${index}`;
    if (block.type === "thinking") thoughts.push(required(block, "thinking", blockPath) || omittedReasoning(block.signature));
    else if (block.type === "tool_use") calls.push(toolCall(block, blockPath));
    else if (block.type === "text") texts.push(textPart(block, blockPath, onUnsupported));
    else if (block.type === "redacted_thinking") onUnsupported(`${blockPath}.type`, block.type, "Leave the block out");
    else throw unsupportedMember(`${blockPath}.type`, block.type, "Expected text, thinking or tool_use; tools run in the client");
  }
  return assistantMessage(chatContent(texts), calls, thoughts.filter((text) => text !== "").join("\n"));
}

/**
 * Returns the chat messages of a message.
 *
 * @param path - Path of the message in the body.
 * @throws BodyError `E_ARGUMENT` for a block without a required member; UnsupportedError `E_UNSUPPORTED` for blocks of the assistant that
 *   are not text, reasoning or tool calls.
 */
export function chatMessages({ role, content }: MessagesMessage, path: string, onUnsupported: OnUnsupported): RequestMessage[] {
  if (typeof content === "string") return [{ role, content }];
  const contentPath = `${path}.content`;
  return role === "assistant"
    ? [fromAssistantBlocks(content, contentPath, onUnsupported)]
    : userMessages(content, role, contentPath, onUnsupported);
}
