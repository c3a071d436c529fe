/**
 * Chat JSON Lines, the common format of supervised fine-tuning: reading, writing, and conversion from and to trajectories. In every function,
 * `where` is the beginning of error messages: `<file>:<line>`, or the number of the example.
 */
import type { z } from "zod";
import { DataError } from "../../base/errors.ts";
import { jsonObject } from "../../base/schema/common.ts";
import { exampleWeight } from "../../base/schema/example-weight.ts";
import { requestMessage, tool, type History, type JsonObject, type RequestMessage, type Tool } from "../../base/schema/index.ts";
import { Trajectory } from "../../base/trajectory/index.ts";
import { isTrainedMessage } from "../../base/trajectory/preference-pair.ts";
import { isChoice, requestMessageOf } from "../../base/trajectory/messages.ts";
import { readJsonLines, writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "./jsonl.ts";
import { expandPaths, type Patterns } from "./paths.ts";
import { present } from "./records.ts";

/**
 * Conversation for supervised training: every assistant message is trained, except messages with `weight: 0`.
 *
 * The common fine-tuning format has one object `{messages, tools?, parallel_tool_calls?, chat_template_kwargs?}` per line; `weight` on an
 * example is an extension of this package.
 */
export interface ChatExample {
  /** Conversation in order; assistant messages are trained. */
  readonly messages: readonly RequestMessage[];
  /** Tools available to the model. @default none */
  readonly tools?: readonly Tool[] | undefined;
  /** Stored for trainers that use it; no chat template of this package reads it. */
  readonly parallelToolCalls?: boolean | undefined;
  /** Variables of the chat template, such as `{ preserve_thinking: true }`. @default none */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /** Loss weight of each trained token relative to other examples, 1e-6 to 1e6. @default 1 */
  readonly weight?: number | undefined;
}

/** Key of {@link ChatExample.parallelToolCalls} in a line. */
const PARALLEL = "parallel_tool_calls";
/** Key of {@link ChatExample.chatTemplateKwargs} in a line. */
const KWARGS = "chat_template_kwargs";

/**
 * Reads conversations from chat JSON Lines files, lazily. Other keys of a line are dropped; other keys of a message are kept.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Handling of a torn last line, and a signal.
 * @returns The conversations in file order.
 * @throws DataError `E_DATA` with file and line.
 * @throws the signal's reason.
 * @example
 * ```ts
 * for await (const { messages } of readChatJsonl("data/*.jsonl")) console.log(messages.length);
 * ```
 */
export async function* readChatJsonl(patterns: Patterns, options: ReadOptions = {}): AsyncGenerator<ChatExample, void, undefined> {
  for (const path of await expandPaths(patterns)) {
    for await (const { line, value } of readJsonLines(path, options)) yield chatExampleOf(value, `${path}:${line}`);
  }
}

/**
 * Writes examples as chat JSON Lines, the plain format that other trainers read: one object `{messages, tools?, parallel_tool_calls?,
 * chat_template_kwargs?, weight?}` per line. Atomic: a failed call leaves `path` unchanged.
 *
 * A trajectory becomes one line per history, the main one first; additional histories without a trained message are skipped. In a history
 * with sampled turns, assistant messages that were only context get `weight: 0`. Rewards, token ids and log-probabilities are dropped;
 * `writeTrajectories` keeps them.
 *
 * @param path - File to write; compressed if the name ends in `.gz`.
 * @param examples - Trajectories or conversations, in order.
 * @param options - Signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for an invalid example, or one with nothing to train.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const messages = [
 *   { role: "user", content: "Reverse: abc" },
 *   { role: "assistant", content: "cba" },
 * ];
 * const { count, sha256 } = await writeChatJsonl("reverse.jsonl", [{ messages }]);
 * ```
 */
export function writeChatJsonl(
  path: string,
  examples: Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  const lines = async function* () {
    let index = 0;
    for await (const each of examples) {
      index++;
      const where = `Example ${index}`;
      if (Trajectory.isInstance(each)) for (const example of examplesOf(each)) yield toLine(example, where);
      else yield toLine(each, where);
    }
  };
  return writeJsonLines(path, lines(), options);
}

/**
 * Converts a chat example to a trajectory without sampled turns; returns a trajectory unchanged.
 *
 * @param index - Number of the example, for messages.
 * @throws DataError `E_DATA` when a message or tool is invalid.
 */
export function trajectoryOf(example: Trajectory | ChatExample, index: number): Trajectory {
  if (Trajectory.isInstance(example)) return example;
  const { messages, tools = null, ...settings } = toLine(example, `Example ${index}`);
  // Copied through the schema, so that the caller's messages are not frozen.
  return Trajectory.fromJSON({ messages_and_choices: messages, tools, ...settings });
}

/** Chat example in the form of a line. */
interface ChatLine {
  readonly messages: readonly RequestMessage[];
  readonly tools?: readonly Tool[] | null;
  readonly parallel_tool_calls?: boolean | null;
  readonly chat_template_kwargs?: Readonly<JsonObject> | null;
  readonly weight?: number | null;
}

/** Validates an example and converts it to a line; absent settings and an empty list of tools are omitted. */
function toLine(example: ChatExample, where: string): ChatLine {
  const { messages, tools = [], parallelToolCalls, chatTemplateKwargs, weight } = checkedExample(example, where);
  const settings = present({ [PARALLEL]: parallelToolCalls, [KWARGS]: chatTemplateKwargs, weight });
  return { messages, ...(tools.length === 0 ? {} : { tools }), ...settings };
}

/** Validates a parsed chat line. @throws DataError `E_DATA` that starts with `where`. */
export function chatExampleOf(value: unknown, where: string): ChatExample {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new DataError(`${where}: expected a chat example object`);
  if ("messages_and_choices" in value) throw new DataError(`${where}: expected a chat example, got a trajectory; use \`readTrajectories\``);
  const { messages, tools, [PARALLEL]: parallelToolCalls, [KWARGS]: chatTemplateKwargs, weight } = value as ChatLine;
  const example = { messages, ...present({ tools, parallelToolCalls, chatTemplateKwargs, weight }) };
  return checkedExample(example, where);
}

/** Returns an example for each history of a trajectory that has a trained message; the main history always becomes one. */
function examplesOf(trajectory: Trajectory): ChatExample[] {
  const wire = trajectory.toJSON();
  const parallel = wire[PARALLEL];
  const parallelToolCalls = typeof parallel === "boolean" ? parallel : undefined;
  const { data: chatTemplateKwargs } = jsonObject.safeParse(wire[KWARGS]);
  const weight = typeof wire["weight"] === "number" ? wire["weight"] : undefined;
  return (
    [wire, ...wire.additional_histories]
      .map((history) => ({
        messages: trainingMessages(history),
        tools: history.tools ?? [],
        parallelToolCalls,
        chatTemplateKwargs,
        weight,
      }))
      // A main history without a trained message is kept, so that writing it fails instead of dropping it silently.
      .filter(({ messages }, index) => index === 0 || messages.some(isTrainedMessage))
  );
}

/** Returns the messages of all histories that a service trains, the main history first. */
export function trainedMessages(trajectory: Trajectory): RequestMessage[] {
  const wire = trajectory.toJSON();
  return [wire, ...wire.additional_histories].flatMap((history) => trainingMessages(history).filter(isTrainedMessage));
}

/** Returns a history as plain messages, with `weight: 0` on the assistant messages that a service does not train. */
export function trainingMessages({ messages_and_choices: items }: History): RequestMessage[] {
  const isSampled = items.some(isChoice);
  return items.map((item) => {
    const message = requestMessageOf(item);
    return isSampled && message.role === "assistant" && !isChoice(item) ? { ...message, weight: 0 } : message;
  });
}

/** Validates an example and returns it as the schemas parse it: tool-call arguments as JSON text, missing types added. */
function checkedExample(example: ChatExample, where: string): ChatExample {
  const { parallelToolCalls, chatTemplateKwargs, weight } = example;
  const messages = checkedMessages(example.messages, where);
  const tools = example.tools === undefined ? undefined : checkedTools(example.tools, where);
  if (parallelToolCalls !== undefined && typeof parallelToolCalls !== "boolean") {
    throw new DataError(`${where}: expected \`${PARALLEL}\` to be true or false, got ${JSON.stringify(parallelToolCalls)}`);
  }
  if (chatTemplateKwargs !== undefined)
    parsedWith(jsonObject, chatTemplateKwargs, { where, expected: "an object of template variables by name", path: KWARGS });
  const { error } = exampleWeight.optional().safeParse(weight);
  if (error !== undefined) throw new DataError(`${where}: \`weight\`: ${error.issues[0]?.message ?? "invalid"}`);
  if (!messages.some(isTrainedMessage)) {
    throw new DataError(`${where}: expected at least one assistant message, not of \`weight: 0\`; there is nothing to train in it`);
  }
  return { ...example, messages, ...(tools === undefined ? {} : { tools }) };
}

/** Validates the messages of an example and returns them as the schema parses them. */
function checkedMessages(messages: unknown, where: string): RequestMessage[] {
  if (!Array.isArray(messages) || messages.length === 0)
    throw new DataError(`${where}: expected \`messages\` to be an array of at least one message`);
  return (messages as readonly unknown[]).map((value, index) => {
    const path = `messages.${index}`;
    const message = parsedWith(requestMessage, value, { where, expected: "a message with a `role` and `content`", path });
    checkWeight(message, `${where}: \`${path}.weight\``);
    return message;
  });
}

/** Validates the tools of an example and returns them as the schema parses them. */
function checkedTools(tools: unknown, where: string): Tool[] {
  if (!Array.isArray(tools)) throw new DataError(`${where}: expected \`tools\` to be an array of function tools`);
  return (tools as readonly unknown[]).map((value, index) =>
    parsedWith(tool, value, { where, expected: "a function tool", path: `tools.${index}` }),
  );
}

/** Description of a parsed value for error messages. */
interface Described {
  readonly where: string;
  readonly expected: string;
  /** Path of the value in its example. */
  readonly path: string;
}

/** Parses a value with a schema. @throws DataError `E_DATA` with the path of the invalid part and the schema's message. */
function parsedWith<T>(schema: z.ZodType<T>, value: unknown, { where, expected, path }: Described): T {
  const { data, error } = schema.safeParse(value);
  if (error === undefined) return data;
  const [issue] = error.issues;
  const fullPath = [path, ...(issue?.path ?? [])].map(String).join(".");
  throw new DataError(`${where}: expected ${expected} at \`${fullPath}\`: ${issue?.message ?? "invalid"}`, { cause: error });
}

/**
 * Checks that a message's weight is absent, 0 or 1. Other trainers reject other values, and this package would train such a message in
 * full.
 */
function checkWeight(message: RequestMessage, where: string): void {
  const weight = message["weight"];
  if (weight === undefined || weight === null || weight === 0 || weight === 1) return;
  throw new DataError(`${where}: expected 0 (context) or 1 (trained), got ${JSON.stringify(weight)}`);
}
