/** The complete service on a scripted engine, for tests that need HTTP, jobs and checkpoints, and no model. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConfigError } from "../base/errors.ts";
import { startService, type RequestRecord, type RunningService, type ServiceOptions } from "../service/index.ts";
import { SHIPPED_BASE, shippedDirectory } from "../service/models/shipped-base.ts";
import { loadTokenizer } from "../text/tokenizer/index.ts";
import { createScriptedEngine, type SampleScriptInput, type ScriptedEngine, type ScriptedEngineOptions } from "./scripted-engine.ts";
import { getOrThrow } from "../base/util/values.ts";

/** Context length of the default base model in tokens: room for long conversations, of which the scripted engine computes nothing. */
const CONTEXT_LENGTH = 16_384;

/** Input of {@link TestServiceOptions.answer}. */
export interface TestAnswerInput extends Omit<SampleScriptInput, "prompt"> {
  /** Prompt as text: the conversation as the chat template renders it, special tokens included. */
  readonly prompt: string;
}

/** Options of {@link startTestService}: options of the service, and the script of its engine. */
export interface TestServiceOptions extends Pick<
  ServiceOptions,
  "host" | "port" | "dataDir" | "database" | "storage" | "apiKey" | "runs" | "upstream" | "limits" | "metrics" | "auditLog" | "tls"
> {
  /**
   * Returns the text of an answer. A tool call is written as the base model writes it; for the default base model
   * `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Excludes `engine.script`.
   *
   * @default the tokens of `engine.script`
   */
  readonly answer?: ((input: TestAnswerInput) => string) | undefined;
  /** Options of the scripted engine. @default the shipped base model `whetstone-tiny` with its tokenizer, without its weights */
  readonly engine?: ScriptedEngineOptions | undefined;
}

/** Line of the service's log. */
export interface TestLogLine {
  /** Severity: `info`, `warn` or `error`. */
  readonly level: string;
  /** Text of the line. */
  readonly message: string;
  /** Values of the line by name; undefined without any. */
  readonly fields: unknown;
}

/**
 * Service started by {@link startTestService}, with a record of its work.
 *
 * @example
 * ```ts
 * import { startTestService } from "whetstone/testing";
 *
 * await using test = await startTestService();
 * console.log(test.url, test.requests.length, test.log);
 * await test.close({ graceMs: 0 });
 * ```
 */
export interface TestService extends RunningService {
  /** Engine with a record of its calls. */
  readonly engine: ScriptedEngine;
  /** Lines of the log so far, oldest first. */
  readonly log: readonly TestLogLine[];
  /** Requests answered so far, oldest first. */
  readonly requests: readonly RequestRecord[];
  /**
   * Closes the service as {@link RunningService.close} does, then removes the data directory if it is a temporary one.
   *
   * @param options - `graceMs`: milliseconds that running requests may take. @default 10 000
   */
  close(options?: { readonly graceMs?: number | undefined }): Promise<void>;
  /** Closes the service with a `graceMs` of 0 at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Starts the complete service with a scripted engine, for tests of an agent, an environment or a training run without a model: requests,
 * jobs and checkpoints are real, sampling follows a script, and training is instant.
 *
 * @param options - Answers, options of the engine and of the service. Without `dataDir`, a temporary directory is used.
 * @returns the service, listening on a free port of 127.0.0.1 unless the options say otherwise.
 * @throws ConfigError `E_CONFIG` if both `answer` and `engine.script` are given, and the errors of `startService`.
 * @example
 * ```ts
 * import { connect } from "whetstone";
 *
 * await using test = await startTestService({ answer: ({ prompt }) => (prompt.includes("1 + 2") ? "3" : "no idea") });
 * const service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
 * ```
 */
export async function startTestService({ answer, engine: engineOptions = {}, ...options }: TestServiceOptions = {}): Promise<TestService> {
  if (answer !== undefined && engineOptions.script !== undefined)
    throw new ConfigError("Expected `answer` or `engine.script`, got both; leave one out", { param: "answer" });
  const { bases = [await defaultBase()] } = engineOptions;
  const script = answer === undefined ? engineOptions.script : await textScript(bases, answer);
  const engine = createScriptedEngine({ ...engineOptions, bases, script });
  const log: TestLogLine[] = [];
  const requests: RequestRecord[] = [];
  const write = (level: string) => (message: string, fields?: unknown) => {
    log.push({ level, message, fields });
  };
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), "whetstone-test-")));
  const removeTemporary = async () => {
    if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
  };
  const service = await startService({
    ...options,
    dataDir,
    engine,
    logger: { info: write("info"), warn: write("warn"), error: write("error") },
    onRequest: (record) => requests.push(record),
  }).catch(async (error: unknown) => {
    await removeTemporary();
    throw error;
  });
  const close: TestService["close"] = async (closeOptions) => {
    await service.close(closeOptions);
    await removeTemporary();
  };
  return { ...service, engine, log, requests, close, [Symbol.asyncDispose]: () => close({ graceMs: 0 }) };
}

/** Base models of a scripted engine. */
type Bases = NonNullable<ScriptedEngineOptions["bases"]>;

/** Returns the shipped base model with its tokenizer, which answers need. Its weights are not read. */
async function defaultBase(): Promise<Bases[number]> {
  const directory = shippedDirectory();
  const { vocabularySize } = await loadTokenizer(directory);
  return { id: SHIPPED_BASE, directory, vocabularySize, contextLength: CONTEXT_LENGTH, parameters: 1 };
}

/** Converts a script of texts to a script of tokens, with the tokenizer of the sampled base model. */
async function textScript(bases: Bases, answer: NonNullable<TestServiceOptions["answer"]>): Promise<ScriptedEngineOptions["script"]> {
  const tokenizers = new Map(await Promise.all(bases.map(async ({ id, directory }) => [id, await loadTokenizer(directory)] as const)));
  return (input) => {
    const tokenizer = getOrThrow(tokenizers, input.policy.base);
    return [...tokenizer.encode(answer({ ...input, prompt: tokenizer.decode(input.prompt) }))];
  };
}
