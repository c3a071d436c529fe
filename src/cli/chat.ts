/** Command `whetstone chat`: a conversation on a terminal, or a single message. */
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline/promises";
import { text } from "node:stream/consumers";
import { type Command, InvalidArgumentError } from "commander";
import { z } from "zod";
import { DataError } from "../base/errors.ts";
import { requestTool, type RequestMessage, type RequestTool } from "../base/schema/index.ts";
import { parseBaseModel } from "../base/util/base-model.ts";
import { isInteractive } from "../base/util/output.ts";
import { BASE_FORMS, integer, nonNegative } from "./arguments.ts";
import { type ChatSettings, describeCall, printAnswer, type ChatTurn } from "./chat-turn.ts";
import { serviceCommand, requestedBase, withService, type Connected } from "./connected.ts";
import { checkpointByName } from "./names.ts";
import type { OutputOptions } from "./output.ts";

/** Max value of `top_logprobs` in a chat request. */
const MAX_ALTERNATIVES = 20;

/** Options of the command. */
interface ChatOptions extends OutputOptions {
  readonly base?: string;
  readonly system?: string;
  readonly temperature?: number;
  readonly maxTokens?: number;
  readonly seed?: number;
  readonly tools?: string;
  /** True without a number of alternatives. */
  readonly logprobs?: number | true;
}

/** Creates the command `whetstone chat [model[:step]]`, which talks to a model. */
export function chatCommand(): Command {
  return serviceCommand("chat", "talk to a model: line by line on a terminal, else one message from the argument or standard input")
    .argument("[model[:step]]", "trained model, without a step its newest checkpoint; or a base model; omitted with --base")
    .argument("[message]", "message to send instead of a conversation")
    .option("--base <model>", `base model to talk to: ${BASE_FORMS}`)
    .option("--system <text>", "system message")
    .option("--temperature <number>", "sampling temperature (default: the service's)", nonNegative)
    .option("--max-tokens <number>", "max tokens of an answer (default: the service's)", integer(1))
    .option("--seed <number>", "seed of sampling", integer(0))
    .option("--tools <file>", "JSON file with a list of tools, as in the field `tools` of a chat request; shows the calls, runs none")
    .option("--logprobs [alternatives]", "show each token's log-probability, and so many of the most likely tokens", parseAlternatives)
    .action(chat);
}

/** Parses the number of alternatives of `--logprobs`. */
function parseAlternatives(value: string): number {
  const count = integer(0)(value);
  if (count > MAX_ALTERNATIVES) throw new InvalidArgumentError(`Expected at most ${MAX_ALTERNATIVES} alternatives.`);
  return count;
}

/**
 * Returns base model, name of a model and message. With `--base` the first argument is the message; without it, the first is the model,
 * which may be a base model too, and the second the message.
 */
function argumentsOf(command: Command, first: string | undefined, second: string | undefined, base: string | undefined) {
  if (base !== undefined && second !== undefined) command.error("error: expected a model or --base <model>, got both", { exitCode: 2 });
  if (base !== undefined) return { base, name: null, message: first };
  if (first === undefined) command.error("error: expected a model, such as project/name, or --base <model>", { exitCode: 2 });
  return { base: null, name: first, message: second };
}

/** Runs the command: reads arguments and files, then sends one message or starts a conversation. */
async function chat(this: Command, first: string | undefined, second: string | undefined, options: ChatOptions): Promise<void> {
  const { base, name, message } = argumentsOf(this, first, second, options.base);
  const tools = options.tools === undefined ? undefined : await readTools(options.tools);
  await withService(options, async (connected) => {
    const settings: ChatSettings = {
      model: name === null ? await requestedBase(connected, base) : await servedName(connected, name),
      ...(options.temperature === undefined ? {} : { temperature: options.temperature }),
      ...(options.maxTokens === undefined ? {} : { max_completion_tokens: options.maxTokens }),
      ...(options.seed === undefined ? {} : { seed: options.seed }),
      ...(tools === undefined ? {} : { tools }),
      ...(options.logprobs === undefined ? {} : { logprobs: true, top_logprobs: options.logprobs === true ? 0 : options.logprobs }),
    };
    const messages: RequestMessage[] = options.system === undefined ? [] : [{ role: "system", content: options.system }];
    const isJson = options.json === true;
    if (message === undefined && isInteractive()) return converse(connected, { settings, messages, isJson });
    const content = message ?? (await text(process.stdin)).trimEnd();
    await printAnswer(connected, { settings, messages: [...messages, { role: "user", content }], isJson });
  });
}

/** Returns the name that chat requests use for a base model or a checkpoint. */
async function servedName(connected: Connected, name: string): Promise<string> {
  const baseModels = await connected.service.baseModels({ signal: connected.signal });
  if (baseModels.includes(name)) return name;
  const spec = parseBaseModel(name, "model");
  // Without `hf:`, two names with a slash are a project and a model.
  if (spec.kind === "path" || spec.kind === "ollama" || name.startsWith("hf:"))
    return connected.service.addBaseModel(name, { signal: connected.signal });
  return (await checkpointByName(connected, name, baseModels)).policy.id;
}

/** Reads the file of `--tools`. @throws DataError `E_DATA` for another form than a list of tools. */
async function readTools(path: string): Promise<RequestTool[]> {
  const form = 'Expected a JSON list of tools, each with `type: "function"` and `function: {name, description, parameters}`';
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new DataError(`${form} in ${path}: ${(cause as Error).message}`, { cause, param: "--tools" });
  }
  const parsed = z.array(requestTool).safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new DataError(`${form} in ${path}; at \`${issue?.path.join(".")}\`: ${issue?.message}`, { param: "--tools" });
}

/**
 * Answers the lines that a user enters until the end of the input. After an answer with tool calls, the next line per call is its result.
 */
async function converse(connected: Connected, { messages: initialMessages, ...options }: ChatTurn): Promise<void> {
  const messages = [...initialMessages];
  const lines = createInterface({ input: process.stdin, output: process.stderr, prompt: "> " });
  // Ctrl-C in a dialog does not reach the process; it is sent on, so that the command stops as without a dialog.
  lines.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
  connected.signal.addEventListener("abort", () => lines.close(), { once: true });
  const prompt = (question: string) => {
    lines.setPrompt(question);
    lines.prompt();
  };
  /** Tool calls of the last answer without a result. */
  let pendingCalls: { readonly id: string; readonly text: string }[] = [];
  prompt("> ");
  for await (const line of lines) {
    const call = pendingCalls.shift();
    messages.push(call === undefined ? { role: "user", content: line } : { role: "tool", tool_call_id: call.id, content: line });
    if (pendingCalls.length === 0) {
      const answer = await printAnswer(connected, { messages, ...options });
      messages.push(answer);
      pendingCalls = (answer.tool_calls ?? []).map((toolCall) => ({ id: toolCall.id ?? "", text: describeCall(toolCall) }));
    }
    const [nextCall] = pendingCalls;
    prompt(nextCall === undefined ? "> " : `result of ${nextCall.text} > `);
  }
  connected.signal.throwIfAborted();
}
