/**
 * Formats of lines with training examples: trajectories and chat lines of this package, and three formats of others (TRL, ShareGPT,
 * Alpaca), which are converted to chat lines.
 */
import { z } from "zod";
import { DataError } from "../../base/errors.ts";

/** Format of a line; `prompt-completion` is TRL's. */
export type ExampleFormat = "trajectory" | "chat" | "prompt-completion" | "sharegpt" | "alpaca";

/** Schema of TRL: each part is a text or a list of messages. */
const promptCompletion = z.looseObject({
  prompt: z.union([z.string(), z.array(z.unknown())]),
  completion: z.union([z.string(), z.array(z.unknown())]),
});
/** Schema of ShareGPT: the turns of a conversation, each with its author and text. */
const shareGpt = z.looseObject({
  conversations: z.array(z.looseObject({ from: z.string(), value: z.string() })).min(1),
  system: z.string().optional(),
});
/** Schema of Alpaca: one instruction, optionally with an input, and the answer. */
const alpaca = z.looseObject({
  instruction: z.string(),
  input: z.string().optional(),
  output: z.string(),
  system: z.string().optional(),
});

/** Roles of the chat format by the names of ShareGPT. */
const ROLES: Readonly<Record<string, string>> = {
  system: "system",
  human: "user",
  user: "user",
  gpt: "assistant",
  assistant: "assistant",
};

/** Recognizes the format of a line by its keys. A line without known keys is read as a trajectory, so the error names the missing keys. */
export function formatOf(value: unknown): ExampleFormat {
  if (typeof value !== "object" || value === null || "messages_and_choices" in value || "trajectories" in value) return "trajectory";
  if ("messages" in value) return "chat";
  if ("prompt" in value && "completion" in value) return "prompt-completion";
  if ("conversations" in value) return "sharegpt";
  if ("instruction" in value && "output" in value) return "alpaca";
  return "trajectory";
}

/**
 * Converts a line of another format to a chat line. Only the completion is trained: assistant messages of a prompt get `weight: 0`.
 *
 * @throws DataError `E_DATA` for a line that does not match its format.
 */
export function toChatLine(value: unknown, format: "prompt-completion" | "sharegpt" | "alpaca", where: string): unknown {
  if (format === "prompt-completion") {
    const { prompt, completion, tools } = parseAs(promptCompletion, value, format, where);
    const context = messagesOf(prompt, "user").map((message) => (isAssistant(message) ? { ...message, weight: 0 } : message));
    return { messages: [...context, ...messagesOf(completion, "assistant")], ...(tools === undefined ? {} : { tools }) };
  }
  if (format === "sharegpt") {
    const { conversations, system } = parseAs(shareGpt, value, format, where);
    const turns = conversations.map(({ from, value: content }) => ({ role: roleOf(from, where), content }));
    return { messages: [...systemMessage(system), ...turns] };
  }
  const { instruction, input = "", output, system } = parseAs(alpaca, value, format, where);
  const content = input === "" ? instruction : `${instruction}\n\n${input}`;
  return { messages: [...systemMessage(system), { role: "user", content }, { role: "assistant", content: output }] };
}

/** Parses a line with the schema of its format. @throws DataError `E_DATA` that starts with `where`. */
function parseAs<T>(schema: z.ZodType<T>, value: unknown, format: ExampleFormat, where: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new DataError(`${where}: expected a line of the format ${format}, at \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? ""}`);
}

/** Returns the messages of a part; a text becomes one message of `role`. */
function messagesOf(part: string | readonly unknown[], role: "user" | "assistant"): unknown[] {
  return typeof part === "string" ? [{ role, content: part }] : [...part];
}

function isAssistant(message: unknown): message is object {
  return typeof message === "object" && message !== null && "role" in message && message.role === "assistant";
}

/** Returns the system message in a list; an empty list without content. */
function systemMessage(content: string | undefined): object[] {
  return content === undefined || content === "" ? [] : [{ role: "system", content }];
}

/** Returns the role of an author of ShareGPT. @throws DataError `E_DATA` for an unknown author. */
function roleOf(from: string, where: string): string {
  const role = ROLES[from];
  if (role !== undefined) return role;
  throw new DataError(`${where}: expected \`from\` to be one of ${Object.keys(ROLES).join(", ")}, got "${from}"`);
}
