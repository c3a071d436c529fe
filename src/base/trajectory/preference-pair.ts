/** Preference pairs: two continuations of one conversation, of which one is preferred, and the formats of their lines. */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { DataError } from "../errors.ts";
import { jsonObject } from "../schema/common.ts";
import { requestMessage, tool, type JsonObject, type RequestMessage, type Tool } from "../schema/index.ts";
import { isRecord } from "../util/values.ts";
import { parseWith } from "../util/validation.ts";

/**
 * Two continuations of one conversation for preference training. Both begin with an assistant message; their assistant messages are
 * trained, except messages with `weight: 0`.
 */
export interface PreferencePair {
  /** Conversation before the continuations. */
  readonly prompt: readonly RequestMessage[];
  /** Preferred continuation: an assistant message, or several turns. */
  readonly chosen: readonly RequestMessage[];
  /** Continuation that is not preferred. */
  readonly rejected: readonly RequestMessage[];
  /** Tools available to the model. @default none */
  readonly tools?: readonly Tool[] | undefined;
  /** Stored for trainers that use it; no chat template of this package reads it. */
  readonly parallelToolCalls?: boolean | undefined;
  /** Variables of the chat template, such as `{ enable_thinking: false }`. @default none */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
}

/** Names of the fields of a line that hold the continuations, for error messages. */
export interface ContinuationNames {
  readonly chosen: string;
  readonly rejected: string;
}

/** Pair as read from a line, with the names of the line's format. */
export interface ReadPreferencePair extends PreferencePair {
  readonly names: ContinuationNames;
}

/** Line in the format of OpenAI's fine-tuning files; `chat_template_kwargs` is an extension. */
export interface PreferenceLine {
  readonly input: {
    readonly messages: readonly RequestMessage[];
    readonly tools?: readonly Tool[];
    readonly parallel_tool_calls?: boolean;
  };
  readonly preferred_output: readonly RequestMessage[];
  readonly non_preferred_output: readonly RequestMessage[];
  readonly chat_template_kwargs?: Readonly<JsonObject>;
}

const messages = z.array(requestMessage).min(1);
const tools = z.array(tool).nullish();
/** Fields that both formats share. */
const sharedFields = { chat_template_kwargs: jsonObject.nullish() };

/** OpenAI's format. */
const inputLine = z.looseObject({
  input: z.looseObject({ messages, tools, parallel_tool_calls: z.boolean().nullish() }),
  preferred_output: messages,
  non_preferred_output: messages,
  ...sharedFields,
});
/** TRL's conversational format. */
const promptLine = z.looseObject({
  prompt: messages.optional(),
  chosen: messages,
  rejected: messages,
  tools,
  ...sharedFields,
});

const INPUT_NAMES: ContinuationNames = { chosen: "preferred_output", rejected: "non_preferred_output" };
const PROMPT_NAMES: ContinuationNames = { chosen: "chosen", rejected: "rejected" };

/**
 * Validates one parsed line with a preference pair: `{input: {messages, tools?, parallel_tool_calls?}, preferred_output,
 * non_preferred_output}` (OpenAI), or `{prompt?, chosen, rejected, tools?}` (TRL). Without a `prompt` that is a list, the prompt is the
 * common beginning of both lists.
 *
 * @param value - Parsed JSON of the line.
 * @param where - Location of the line for error messages, e.g. `preferences.jsonl line 3`.
 * @param options - `parseText`: parser of tools that are JSON text, as TRL also stores them. @default `JSON.parse`
 * @throws DataError `E_DATA` with location, field and the expected content, for an invalid line, continuations that do not begin with an
 *   assistant message, equal continuations, and a format that cannot be rendered.
 */
export function readPreferencePair(
  value: unknown,
  where: string,
  { parseText = JSON.parse }: { readonly parseText?: (text: string) => unknown } = {},
): ReadPreferencePair {
  const pair = parsedPair(value, where, parseText);
  const { names } = pair;
  for (const side of ["chosen", "rejected"] as const) requireContinuation(pair[side], `${where}: \`${names[side]}\``);
  const lists = { prompt: pair.prompt, [names.chosen]: pair.chosen, [names.rejected]: pair.rejected };
  for (const [name, list] of Object.entries(lists))
    list.forEach((message, index) => requireMessageWeight(message, `${where}: \`${name}.${index}\``));
  if (isDeepStrictEqual(pair.chosen, pair.rejected)) {
    throw new DataError(
      `${where}: expected \`${names.chosen}\` and \`${names.rejected}\` to differ, got equal messages; there is nothing to prefer in them`,
    );
  }
  return pair;
}

/** Returns a pair as a line in OpenAI's format. Absent settings and an empty list of tools are left out. */
export function preferenceLine({ prompt, chosen, rejected, ...pair }: PreferencePair): PreferenceLine {
  const { tools: pairTools = [], parallelToolCalls, chatTemplateKwargs } = pair;
  return {
    input: {
      messages: prompt,
      ...(pairTools.length === 0 ? {} : { tools: pairTools }),
      ...(parallelToolCalls === undefined ? {} : { parallel_tool_calls: parallelToolCalls }),
    },
    preferred_output: chosen,
    non_preferred_output: rejected,
    ...(chatTemplateKwargs === undefined ? {} : { chat_template_kwargs: chatTemplateKwargs }),
  };
}

/** Recognizes the format of a line by its keys, and parses it. */
function parsedPair(value: unknown, where: string, parseText: (text: string) => unknown): ReadPreferencePair {
  if (isRecord(value) && "weight" in value)
    throw new DataError(`${where}: expected no \`weight\`, which preference pairs do not have; every pair counts the same`);
  if (isRecord(value) && "input" in value) {
    const {
      input,
      preferred_output: chosen,
      non_preferred_output: rejected,
      chat_template_kwargs: kwargs,
    } = parseLine(inputLine, value, where);
    const settings = withoutAbsent({ tools: input.tools, parallelToolCalls: input.parallel_tool_calls, chatTemplateKwargs: kwargs });
    return { prompt: input.messages, chosen, rejected, ...settings, names: INPUT_NAMES };
  }
  if (!isRecord(value) || !("chosen" in value && "rejected" in value)) {
    throw new DataError(
      `${where}: expected an object with \`input\`, \`preferred_output\` and \`non_preferred_output\`, or with \`chosen\` and \`rejected\``,
    );
  }
  requireConversational(value, where);
  // Some datasets repeat the prompt as text next to complete conversations.
  const { prompt: promptField, ...valueWithoutPrompt } = value;
  const conversations = typeof promptField === "string" ? valueWithoutPrompt : value;
  const line = parseLine(promptLine, withParsedTools(conversations, parseText), where);
  const settings = withoutAbsent({ tools: line.tools, chatTemplateKwargs: line.chat_template_kwargs });
  const { prompt, chosen, rejected } = line.prompt === undefined ? withoutCommonStart(line, where) : { ...line, prompt: line.prompt };
  return { prompt, chosen, rejected, ...settings, names: PROMPT_NAMES };
}

/** Parses tools that are text. Text that is not JSON stays, so that the schema rejects it by name. */
function withParsedTools(line: Readonly<Record<string, unknown>>, parseText: (text: string) => unknown): object {
  if (typeof line["tools"] !== "string") return line;
  try {
    return { ...line, tools: parseText(line["tools"]) };
  } catch (error) {
    if (error instanceof SyntaxError) return line;
    throw error;
  }
}

/** Parses a line by a schema. @throws DataError `E_DATA` with the location and the expected content. */
function parseLine<S extends z.ZodType>(schema: S, value: unknown, where: string): z.output<S> {
  const result = parseWith(schema, value, [], "the line");
  if ("data" in result) return result.data;
  throw new DataError(`${where}: ${result.mismatch.text}`);
}

/** Removes members that are null or undefined. */
function withoutAbsent(given: {
  readonly tools?: readonly Tool[] | null | undefined;
  readonly parallelToolCalls?: boolean | null | undefined;
  readonly chatTemplateKwargs?: JsonObject | null | undefined;
}): Pick<PreferencePair, "tools" | "parallelToolCalls" | "chatTemplateKwargs"> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null && value !== undefined));
}

/**
 * Rejects continuations that are text. TRL trains them without a chat template, but every answer of this package is rendered through one.
 *
 * @throws DataError `E_DATA` naming the field.
 */
function requireConversational(value: Readonly<Record<string, unknown>>, where: string): void {
  for (const name of ["chosen", "rejected"]) {
    if (typeof value[name] !== "string") continue;
    throw new DataError(
      `${where}: expected \`${name}\` to be a list of messages, got text. Text bypasses the chat template, through which models are trained here; ` +
        'write messages: {"prompt": [{"role": "user", "content": "…"}], "chosen": [{"role": "assistant", "content": "…"}], "rejected": […]}',
    );
  }
}

/** Splits two complete conversations into their common beginning and the continuations. */
function withoutCommonStart(
  { chosen, rejected }: Readonly<Record<"chosen" | "rejected", readonly RequestMessage[]>>,
  where: string,
): Pick<PreferencePair, "prompt" | "chosen" | "rejected"> {
  const firstDifference = chosen.findIndex((message, index) => !isDeepStrictEqual(message, rejected[index]));
  const promptLength = firstDifference === -1 ? chosen.length : firstDifference;
  if (promptLength === 0) {
    throw new DataError(
      `${where}: expected \`chosen\` and \`rejected\` to begin with the same messages, which are the prompt, got two different first messages`,
    );
  }
  return { prompt: chosen.slice(0, promptLength), chosen: chosen.slice(promptLength), rejected: rejected.slice(promptLength) };
}

/**
 * Checks a continuation.
 *
 * @throws DataError `E_DATA` for a continuation that does not begin with an assistant message, or in which no message is trained.
 */
function requireContinuation(continuation: readonly RequestMessage[], where: string): void {
  const [firstMessage] = continuation;
  if (firstMessage?.role !== "assistant") {
    const got = firstMessage === undefined ? "no message" : `a message with the role "${firstMessage.role}"`;
    throw new DataError(`${where}: expected a continuation of the prompt that begins with an assistant message, got ${got}`);
  }
  if (continuation.some(isTrainedMessage)) return;
  throw new DataError(`${where}: expected at least one assistant message to train on, got only messages of \`weight: 0\``);
}

/** Whether a message is trained: every assistant message, except one of `weight: 0`. */
export function isTrainedMessage(message: RequestMessage): boolean {
  return message.role === "assistant" && message["weight"] !== 0;
}

/** Rejects message weights other than 0 (context) and 1 (trained), because any other weight would be trained as 1. */
function requireMessageWeight(message: RequestMessage, where: string): void {
  const { weight } = message;
  if (weight === undefined || weight === null || weight === 0 || weight === 1) return;
  throw new DataError(`${where}: expected the \`weight\` of a message to be 0 (context) or 1 (trained), got ${JSON.stringify(weight)}`);
}
