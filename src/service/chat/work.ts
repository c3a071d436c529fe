/**
 * Processing of chat requests: small inputs on the serving thread, large ones on a work thread. Both run the same functions, so the result
 * does not depend on the thread.
 */
import type { MethodInput, MethodName, MethodOutput } from "../../base/util/worker-rpc.ts";
import type { Grammar } from "../../text/grammar/expression.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import type { SharedTokenizers, TokenizerTasks } from "../models/shared-tokenizers.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import { compileOutput, type CompiledOutput, type OutputGrammarOptions } from "./generate/output-grammar.ts";
import { encodePrompt, type PromptText } from "./prompt/encode-prompt.ts";
import { renderText } from "./prompt/render-text.ts";
import type { OutputRequest } from "./request/output-request.ts";
import type { PromptRequest } from "./request/prompt-request.ts";
import { isLongText, isSlowForm } from "./request/size.ts";
import type { ChatTasks } from "./tasks.ts";

/** Max bytes of a chat body processed on the serving thread. Lower than for other JSON, because validating its fields takes longer. */
export const SMALL_CHAT_BYTES = 64 * 1024;

/** Max milliseconds for preparing a chat request on a work thread. */
export const CHAT_TIMEOUT_MS = 30_000;

/** Max characters of a text encoded on the serving thread. */
const SMALL_TEXT_LENGTH = 16_384;

/** Options of {@link ChatWork}. */
export interface ChatWorkOptions {
  readonly pool: WorkPool;
  /** Threads that compile grammars, separate from `pool` so that prompts do not wait for grammars. */
  readonly grammars: WorkPool;
  readonly tokenizers: SharedTokenizers;
}

type TaskName = MethodName<ChatTasks>;
type TaskOutput<N extends TaskName> = Promise<MethodOutput<ChatTasks, N>>;

/** Runs the slow steps of chat requests, on the serving thread or a work thread depending on the size of the input. */
export class ChatWork {
  readonly #options: ChatWorkOptions;

  constructor(options: ChatWorkOptions) {
    this.#options = options;
  }

  /** Renders a prompt; see `renderText`. */
  async renderText(tokenizer: ChatTokenizer, directory: string, request: PromptRequest, signal?: AbortSignal): Promise<string> {
    // A template from a request may take unbounded time on any input, so it always runs on a work thread.
    if (request.template === null && !isLongText(request, SMALL_TEXT_LENGTH)) return renderText(tokenizer, request);
    return this.#runWithTokenizer("renderText", { directory, request }, signal);
  }

  /** Encodes a prompt; see `encodePrompt`. */
  async encode(tokenizer: ChatTokenizer, prompt: PromptText, signal?: AbortSignal): Promise<Int32Array> {
    if (prompt.text.length <= SMALL_TEXT_LENGTH) return encodePrompt(tokenizer, prompt);
    return this.#runWithTokenizer("encode", prompt, signal);
  }

  /** Compiles the output constraint of a request; see `compileOutput`. Also checks that validators of its schemas can be created. */
  async compileOutput(request: OutputRequest, options: OutputGrammarOptions, signal?: AbortSignal): Promise<CompiledOutput> {
    const compiled = await this.#compile(request, options, signal);
    if (compiled.check !== null) await runTask(this.#options.grammars, "checkValidators", compiled.check, signal);
    return compiled;
  }

  async #compile(request: OutputRequest, options: OutputGrammarOptions, signal?: AbortSignal): Promise<CompiledOutput> {
    if (!isSlowForm(request)) return compileOutput(request, options);
    // A grammar crosses threads as JSON text, which is much faster than cloning its many small objects.
    const { text, states, check } = await runTask(this.#options.grammars, "grammar", { request, options }, signal);
    return { grammar: JSON.parse(text) as Grammar, states, check };
  }

  /**
   * Validates an output text; see `violationOf`. Validators are cached on the work threads, because creating one takes many milliseconds.
   */
  async validate(schema: string, text: string): Promise<string | null> {
    return runTask(this.#options.pool, "validate", { schema, text });
  }

  /** Runs a task on a thread that has the tokenizer of its model, or gets it first. */
  #runWithTokenizer<N extends "renderText" | "encode">(
    name: N,
    input: MethodInput<ChatTasks, N>,
    signal: AbortSignal | undefined,
  ): TaskOutput<N> {
    const { pool, tokenizers } = this.#options;
    return pool.use(async (thread: TaskThread<ChatTasks & TokenizerTasks>) => {
      await tokenizers.share(thread, input.directory);
      return (await thread.run(name, input, { signal, timeoutMs: CHAT_TIMEOUT_MS })) as Awaited<TaskOutput<N>>;
    }, signal);
  }
}

/** Runs a task on a thread of a pool. */
function runTask<N extends TaskName>(pool: WorkPool, name: N, input: MethodInput<ChatTasks, N>, signal?: AbortSignal): TaskOutput<N> {
  return pool.use((thread: TaskThread<ChatTasks>) => thread.run(name, input, { signal, timeoutMs: CHAT_TIMEOUT_MS }), signal);
}
