/** Conversion between chat messages and messages of the Open Reward Standard, which consist of typed blocks. */
import type { z } from "zod";
import { UnsupportedError } from "../../../base/errors.ts";
import type { RequestMessage } from "../../../base/schema/index.ts";
import { textOf } from "../../../base/trajectory/messages.ts";
import { isRecord, parseJson } from "../../../base/util/values.ts";
import type { blocks, messages } from "./wire.ts";

/** Message of the Open Reward Standard; tool calls and their results are blocks of it. */
export interface OrsMessage {
  readonly role: "system" | "user" | "assistant";
  readonly blocks: readonly object[];
}

/** Returns the text of a tool's output; images are replaced by their type. */
export function outputText(output: z.output<typeof blocks>): string {
  const texts = output.map(({ type, text, mimeType }) => {
    const placeholder = mimeType === null || mimeType === undefined ? type : `${type} ${mimeType}`;
    return text ?? `[${placeholder}]`;
  });
  return texts.join("\n");
}

/**
 * Converts the messages of a task, or of a candidate of `score_group`, to chat messages.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for images and reasoning.
 */
export function fromOrsMessages(orsMessages: z.output<typeof messages>): RequestMessage[] {
  return orsMessages.flatMap(({ role, blocks: parts }) => {
    const texts: string[] = [];
    const calls: object[] = [];
    const results: RequestMessage[] = [];
    for (const { type, text, id, name, input, tool_call_id, blocks: output } of parts) {
      if (type === "text") texts.push(text ?? "");
      else if (type === "tool_call") calls.push({ id, type: "function", function: { name, arguments: JSON.stringify(input ?? {}) } });
      else if (type === "tool_result") results.push({ role: "tool", tool_call_id, content: outputText(output ?? []) } as RequestMessage);
      else
        throw new UnsupportedError(
          `The task's prompt has a block of type \`${type}\`, which is not supported; choose tasks with text only`,
        );
    }
    if (texts.length + calls.length === 0) return results;
    const message = { role, content: texts.join("\n"), ...(calls.length === 0 ? {} : { tool_calls: calls }) } as RequestMessage;
    // Results answer calls of an earlier message, so that they precede the text of this one.
    return [...results, message];
  });
}

/**
 * Converts a conversation to a candidate of `score_group`.
 *
 * @param blockTypes - Types of blocks that the server accepts; tool calls and results are left out if it does not accept them.
 */
export function toOrsMessages(conversation: readonly RequestMessage[], blockTypes: readonly string[]): OrsMessage[] {
  const hasTools = blockTypes.includes("tool_call") && blockTypes.includes("tool_result");
  return conversation.flatMap((message): OrsMessage[] => {
    const { role, tool_calls: calls, tool_call_id: callId } = message;
    const text = { type: "text", text: textOf(message) };
    if (role === "tool") {
      return hasTools ? [{ role: "user", blocks: [{ type: "tool_result", tool_call_id: callId ?? "", blocks: [text] }] }] : [];
    }
    const toolCalls = hasTools ? (calls ?? []) : [];
    const callBlocks = toolCalls.map(({ id, function: { name, arguments: args } }) => ({
      type: "tool_call",
      id: id ?? "",
      name,
      input: inputOf(args ?? ""),
    }));
    const isOnlyCalls = text.text === "" && callBlocks.length > 0;
    return [{ role: orsRole(role), blocks: isOnlyCalls ? callBlocks : [text, ...callBlocks] }];
  });
}

/** Returns the role of a message; roles that the standard does not have count as the user's. */
function orsRole(role: string): OrsMessage["role"] {
  if (role === "system" || role === "developer") return "system";
  return role === "assistant" ? "assistant" : "user";
}

/** Parses the arguments of a call. Invalid ones, for which the agent got an error, are sent as text in `{ arguments }`. */
function inputOf(args: string): object {
  const input = args.trim() === "" ? {} : parseJson(args);
  return isRecord(input) ? input : { arguments: args };
}
