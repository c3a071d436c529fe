import type { z } from "zod";
import { DataError } from "../errors.ts";
import { exampleWeight } from "../schema/example-weight.ts";
import { requestMessage, tool, type History, type RequestMessage, type Tool } from "../schema/index.ts";
import { Trajectory } from "../trajectory/index.ts";
import { isChoice, toMessage } from "../trajectory/messages.ts";
import { readJsonLines, writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "./jsonl.ts";
import { expandPaths, type Patterns } from "./paths.ts";

/**
 * A conversation to learn from by example: every assistant message in it is trained, but for those with `weight: 0`.
 *
 * The common fine-tuning format, a line of which is `{messages, tools?, parallel_tool_calls?}`; `weight` is an addition of our own.
 */
export interface ChatExample {
  readonly messages: readonly RequestMessage[];
  readonly tools?: readonly Tool[] | undefined;
  /** Kept and written for trainers that know it; no chat template here asks for it. */
  readonly parallelToolCalls?: boolean | undefined;
  /** What each of its trained tokens counts beside those of other examples, 1e-6 to 1e6. @default 1 */
  readonly weight?: number | undefined;
}

const PARALLEL = "parallel_tool_calls";

/**
 * Conversations of chat JSON Lines files, lazily. Other keys of a line are left out; those of a message are kept.
 *
 * @param patterns - As `readTrajectories`.
 * @throws DataError `E_DATA` with file and line.
 */
export async function* readChatJsonl(patterns: Patterns, options: ReadOptions = {}): AsyncGenerator<ChatExample, void, undefined> {
  for (const path of await expandPaths(patterns)) {
    for await (const { line, value } of readJsonLines(path, options)) yield toExample(value, `${path}:${line}`);
  }
}

/**
 * Writes `{messages, tools?, parallel_tool_calls?, weight?}` per line, the plain format that other trainers read. All or nothing.
 *
 * A trajectory becomes one line per history, the main one first; beside sampled turns, assistant messages that were only context get
 * `weight: 0`. Rewards, token ids and log-probabilities are left out: keep `writeTrajectories` for those.
 *
 * @throws DataError `E_DATA` for an example that does not fit, or has nothing to train.
 */
export function writeChatJsonl(
  path: string,
  examples: Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  const lines = async function* () {
    let index = 0;
    for await (const each of examples) {
      const where = `Example ${++index}`;
      if (each instanceof Trajectory) for (const example of examplesOf(each)) yield toLine(example, where);
      else yield toLine(each, where);
    }
  };
  return writeJsonLines(path, lines(), options);
}

/**
 * A trajectory of plain context, for examples that nobody sampled.
 *
 * @throws DataError `E_DATA` when a message or tool does not fit.
 */
export function trajectoryOf(example: Trajectory | ChatExample, index: number): Trajectory {
  if (example instanceof Trajectory) return example;
  const { messages, tools = null, [PARALLEL]: parallel, weight } = toLine(example, `Example ${index}`);
  // Our own copy, by way of the schema: the caller's messages must not be frozen.
  return Trajectory.fromJSON({
    messages_and_choices: messages,
    tools,
    ...(parallel === undefined ? {} : { [PARALLEL]: parallel }),
    ...(weight === undefined ? {} : { weight }),
  });
}

interface ChatLine {
  readonly messages: readonly RequestMessage[];
  readonly tools?: readonly Tool[];
  readonly parallel_tool_calls?: boolean;
  readonly weight?: number;
}

function toLine(example: ChatExample, where: string): ChatLine {
  const { messages, tools = [], parallelToolCalls, weight } = checkedExample(example, where);
  return {
    messages,
    ...(tools.length === 0 ? {} : { tools }),
    ...(parallelToolCalls === undefined ? {} : { [PARALLEL]: parallelToolCalls }),
    ...(weight === undefined ? {} : { weight }),
  };
}

function toExample(value: unknown, where: string): ChatExample {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new DataError(`${where}: expected a chat example object`);
  if ("messages_and_choices" in value) throw new DataError(`${where}: expected a chat example, got a trajectory; use \`readTrajectories\``);
  const {
    messages,
    tools,
    [PARALLEL]: parallel,
    weight,
  } = value as {
    messages: ChatLine["messages"];
    tools?: Tool[];
    [PARALLEL]?: boolean;
    weight?: number | null;
  };
  const example: ChatExample = {
    messages,
    ...(tools === undefined || tools === null ? {} : { tools }),
    ...(parallel === undefined || parallel === null ? {} : { parallelToolCalls: parallel }),
    ...(weight === undefined || weight === null ? {} : { weight }),
  };
  return checkedExample(example, where);
}

function examplesOf(trajectory: Trajectory): ChatExample[] {
  const wire = trajectory.toJSON();
  const parallel = wire[PARALLEL];
  const parallelToolCalls = typeof parallel === "boolean" ? parallel : undefined;
  const weight = typeof wire["weight"] === "number" ? wire["weight"] : undefined;
  return (
    [wire, ...wire.additional_histories]
      .map((history) => ({ messages: messagesOf(history), tools: history.tools ?? [], parallelToolCalls, weight }))
      // A history beside the main one may well be without an answer; a trajectory may not.
      .filter(({ messages }, index) => index === 0 || messages.some(isTrained))
  );
}

/** The plain conversation, with what a service does not train marked as such. */
function messagesOf({ messages_and_choices: items }: History): RequestMessage[] {
  const isSampled = items.some(isChoice);
  return items.map((item) => {
    const message = toMessage(item);
    return isSampled && message.role === "assistant" && !isChoice(item) ? { ...message, weight: 0 } : message;
  });
}

function isTrained(message: RequestMessage): boolean {
  return message.role === "assistant" && message["weight"] !== 0;
}

/** Validates an example and returns it as the schemas read it: arguments of tool calls as JSON text, missing types filled in. */
function checkedExample(example: ChatExample, where: string): ChatExample {
  const { tools, parallelToolCalls, weight } = example;
  if (!Array.isArray(example.messages) || example.messages.length === 0)
    throw new DataError(`${where}: expected \`messages\` to be an array of at least one message`);
  const messages = (example.messages as readonly unknown[]).map((value, at) => {
    const message = parsed(requestMessage, value, `${where}: expected a message with a \`role\` and \`content\` at \`messages.${at}`);
    checkWeight(message, `${where}: \`messages.${at}.weight\``);
    return message;
  });
  if (tools !== undefined && !Array.isArray(tools)) throw new DataError(`${where}: expected \`tools\` to be an array of function tools`);
  const readTools = (tools as readonly unknown[] | undefined)?.map((value, at) =>
    parsed(tool, value, `${where}: expected a function tool at \`tools.${at}`),
  );
  if (parallelToolCalls !== undefined && typeof parallelToolCalls !== "boolean") {
    throw new DataError(`${where}: expected \`${PARALLEL}\` to be true or false, got ${JSON.stringify(parallelToolCalls)}`);
  }
  const { error } = exampleWeight.optional().safeParse(weight);
  if (error !== undefined) throw new DataError(`${where}: \`weight\`: ${error.issues[0]?.message ?? "invalid"}`);
  if (!messages.some(isTrained)) {
    throw new DataError(`${where}: expected at least one assistant message, not of \`weight: 0\`; there is nothing to train in it`);
  }
  return { ...example, messages, ...(readTools === undefined ? {} : { tools: readTools }) };
}

/** @throws DataError `E_DATA`: `expected`, then the path inside the value and the schema's message. */
function parsed<T>(schema: z.ZodType<T>, value: unknown, expected: string): T {
  const { data, error } = schema.safeParse(value);
  if (error === undefined) return data;
  const [issue] = error.issues;
  const path = (issue?.path ?? []).map((key) => `.${String(key)}`).join("");
  throw new DataError(`${expected}${path}\`: ${issue?.message ?? "invalid"}`, { cause: error });
}

/** Other trainers refuse any other weight; here one would be trained in full, whatever it says. */
function checkWeight(message: RequestMessage, where: string): void {
  const weight = message["weight"];
  if (weight === undefined || weight === null || weight === 0 || weight === 1) return;
  throw new DataError(`${where}: expected 0 (context) or 1 (trained), got ${JSON.stringify(weight)}`);
}
