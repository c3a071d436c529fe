/**
 * Processing of requests and training data: small inputs on the serving thread, large ones on a work thread. Both run the same functions,
 * so the result does not depend on the thread.
 */
import type { Grammar } from "../../grammar/expression.ts";
import type { RlBatch } from "../../learner/index.ts";
import { createTokenizer, type ChatTokenizer, type TokenizerData } from "../../tokenizer/index.ts";
import { Lru, remember } from "../../util/lru.ts";
import { encodePrompt, type PromptText } from "../chat/prompt/encode-prompt.ts";
import type { PromptRequest } from "../chat/request/prompt-request.ts";
import { renderText } from "../chat/prompt/render-text.ts";
import { readChat, type ChatBody, type ParsedChat } from "../chat/request/request.ts";
import { compileOutput, type CompiledOutput, type OutputGrammarOptions } from "../chat/generate/output-grammar.ts";
import type { OutputRequest } from "../chat/request/output-request.ts";
import { translateBody, type Translated, type TranslationName } from "../dialects/translations.ts";
import { groupsBytes } from "../training-data/job-files.ts";
import { readSftData, sftBytes, type SftData, type SftSource } from "../training-data/sft-data.ts";
import { createTokenizers, MAX_TOKENIZERS, type TokenizerSource } from "../training-data/tokenizers.ts";
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "../requests.ts";
import { WorkPool, type WorkThread } from "./pool.ts";
import { acceptGroups, batchOf, readRlRequest, type AcceptedGroups, type RlHead, type RlJobPlan } from "./rl-request.ts";
import { unpackSftData } from "./sft-examples.ts";
import { isLongText, isSlowForm } from "../chat/request/size.ts";
import type { TaskInput, TaskName, TaskOutput } from "./tasks.ts";

/** Max bytes of JSON processed on the serving thread, where it takes a few milliseconds. */
const SMALL_JSON_BYTES = 128 * 1024;

/** Max bytes of a chat body processed on the serving thread. Lower than for other JSON, because validating its fields takes longer. */
const SMALL_CHAT_BYTES = 64 * 1024;

/** Max characters of a text encoded on the serving thread. */
const SMALL_TEXT_LENGTH = 16_384;

/** Max milliseconds for preparing a chat request on a work thread. */
const CHAT_TIMEOUT_MS = 30_000;

/** Max work threads for chat requests and for training data, started on demand. */
const [CHAT_THREADS, DATA_THREADS] = [2, 4];

/** Parsed RL request. Its groups stay on the thread that parsed them. */
export interface OpenRlRequest {
  readonly head: RlHead;
  /** Validates and stores the groups; see `acceptGroups`. */
  readonly accept: (plan: RlJobPlan) => Promise<AcceptedGroups>;
}

/** Returns a buffer with exactly the contents of `bytes`, copying only if `bytes` is a view of a part. */
function ownBuffer(bytes: Uint8Array): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = bytes;
  return byteOffset === 0 && byteLength === buffer.byteLength
    ? (buffer as ArrayBuffer)
    : (buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
}

/** Dispatcher of request processing to the serving thread or a work thread. */
export class RequestWork {
  /** Tokenizers of the serving thread. */
  readonly tokenizers: TokenizerSource;
  /** Data of the tokenizers that a work thread has read. */
  readonly #tokenizerData = new Lru<string, Promise<TokenizerData>>({ maxEntries: MAX_TOKENIZERS });
  readonly #chat = new WorkPool(CHAT_THREADS);
  readonly #data = new WorkPool(DATA_THREADS);

  /**
   * @param tokenizers - Tokenizers of the serving thread; work threads then load their own. @default each is read once, on a work thread, and
   *   its tables are shared by all threads
   */
  constructor(tokenizers?: TokenizerSource) {
    this.tokenizers = tokenizers ?? createTokenizers(async (directory) => createTokenizer(await this.#readTokenizer(directory)));
  }

  /** Reads a tokenizer on a work thread, because reading one with a large vocabulary takes hundreds of milliseconds. */
  #readTokenizer(directory: string): Promise<TokenizerData> {
    return remember(this.#tokenizerData, directory, () => this.#chat.use((thread) => thread.run("readTokenizer", directory)));
  }

  /** Sends a thread the tokenizer of a task, if it has been read. */
  async #share(thread: WorkThread, directory: string): Promise<void> {
    const data = this.#tokenizerData.get(directory);
    if (data === undefined || thread.tokenizers.has(directory)) return;
    await thread.run("shareTokenizer", await data);
    thread.tokenizers.add(directory);
  }

  /** Reads a JSON body; see `readBody` of `requests.ts`. Transfers the buffer of `bytes`. */
  async readBody<K extends PlainKind>(kind: K, bytes: Uint8Array, signal?: AbortSignal): Promise<JsonBody<PlainBody<K>>> {
    if (bytes.length <= SMALL_JSON_BYTES) return readBody(kind, bytes);
    const own = ownBuffer(bytes);
    const task = { kind, bytes: new Uint8Array(own) };
    const read = await this.#data.use((thread) => thread.run("readBody", task, { transfer: [own] }), signal);
    return read as JsonBody<PlainBody<K>>;
  }

  /** Parses a chat body; see `readChat`. Transfers the buffer of `body.bytes`. */
  async readChat(body: ChatBody, signal?: AbortSignal): Promise<ParsedChat> {
    if (body.bytes.length <= SMALL_CHAT_BYTES) return readChat(body);
    const own = ownBuffer(body.bytes);
    return this.#onChatThread("readChat", { ...body, bytes: new Uint8Array(own) }, signal, [own]);
  }

  /** Translates a request of a dialect; see `translateBody`. Transfers the buffer of `bytes`. */
  async translate<N extends TranslationName>(name: N, bytes: Uint8Array, signal?: AbortSignal): Promise<Translated<N>> {
    if (bytes.length <= SMALL_CHAT_BYTES) return translateBody(name, bytes);
    const own = ownBuffer(bytes);
    return (await this.#onChatThread("translate", { name, bytes: new Uint8Array(own) }, signal, [own])) as Translated<N>;
  }

  /** Renders a prompt; see `renderText`. */
  async renderText(tokenizer: ChatTokenizer, directory: string, request: PromptRequest, signal?: AbortSignal): Promise<string> {
    // A template from a request may take unbounded time on any input, so it always runs on a work thread.
    if (request.template === null && !isLongText(request, SMALL_TEXT_LENGTH)) return renderText(tokenizer, request);
    return this.#withTokenizer("renderText", { directory, request }, signal);
  }

  /** Encodes a prompt; see `encodePrompt`. */
  async encode(tokenizer: ChatTokenizer, prompt: PromptText, signal?: AbortSignal): Promise<Int32Array> {
    if (prompt.text.length <= SMALL_TEXT_LENGTH) return encodePrompt(tokenizer, prompt);
    return this.#withTokenizer("encode", prompt, signal);
  }

  /** Compiles the output constraint of a request; see `compileOutput`. Also checks that validators of its schemas can be created. */
  async compileOutput(request: OutputRequest, options: OutputGrammarOptions): Promise<CompiledOutput> {
    const compiled = await this.#compiled(request, options);
    if (compiled.check !== null) await this.#onChatThread("checkValidators", compiled.check, undefined);
    return compiled;
  }

  async #compiled(request: OutputRequest, options: OutputGrammarOptions): Promise<CompiledOutput> {
    if (!isSlowForm(request)) return compileOutput(request, options);
    // A grammar crosses threads as JSON text, which is much faster than cloning its many small objects.
    const { text, states, check } = await this.#onChatThread("grammar", { request, options }, undefined);
    return { grammar: JSON.parse(text) as Grammar, states, check };
  }

  /**
   * Validates an output text; see `violationOf`. Validators are cached on the work threads, because creating one takes many milliseconds.
   */
  async validate(schema: string, text: string): Promise<string | null> {
    return this.#onChatThread("validate", { schema, text }, undefined);
  }

  /** Parses the body of an RL job and calls `use` with the result. Transfers the buffer of `bytes`. */
  async withRlRequest<T>(bytes: Uint8Array, use: (request: OpenRlRequest) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (bytes.length <= SMALL_JSON_BYTES) {
      const { head, groups } = await readRlRequest(bytes);
      return use({ head, accept: (plan) => acceptGroups(groups, plan, this.tokenizers) });
    }
    const own = ownBuffer(bytes);
    return this.#data.use(async (thread) => {
      const head = await thread.run("readRl", new Uint8Array(own), { transfer: [own], signal });
      const accept = async (plan: RlJobPlan): Promise<AcceptedGroups> => {
        await this.#share(thread, plan.base.directory);
        return thread.run("acceptRl", plan);
      };
      return use({ head, accept });
    }, signal);
  }

  /** Builds the training batch of an RL job; see `batchOf`. */
  async rlBatch(plan: RlJobPlan, signal: AbortSignal): Promise<RlBatch> {
    if ((await groupsBytes(plan.directory, plan.jobId)) <= SMALL_JSON_BYTES) return batchOf(plan, this.tokenizers, signal);
    return this.#data.use(async (thread) => {
      await this.#share(thread, plan.base.directory);
      return thread.run("rlBatch", plan, { signal });
    }, signal);
  }

  /** Reads training data; see `readSftData`. */
  async sftData(source: SftSource, signal?: AbortSignal): Promise<SftData> {
    if (sftBytes(source) <= SMALL_JSON_BYTES)
      return readSftData(source, { tokenizer: await this.tokenizers(source.base.directory), signal });
    const packed = await this.#data.use(async (thread) => {
      await this.#share(thread, source.base.directory);
      return thread.run("sftData", source, { signal });
    }, signal);
    return unpackSftData(packed);
  }

  /** Terminates all threads. Work in progress fails. */
  async close(): Promise<void> {
    await Promise.all([this.#chat.close(), this.#data.close()]);
  }

  #withTokenizer<N extends "renderText" | "encode">(name: N, input: TaskInput<N>, signal: AbortSignal | undefined): Promise<TaskOutput<N>> {
    return this.#chat.use(async (thread) => {
      await this.#share(thread, input.directory);
      return thread.run(name, input, { signal, timeoutMs: CHAT_TIMEOUT_MS });
    }, signal);
  }

  #onChatThread<N extends TaskName>(
    name: N,
    input: TaskInput<N>,
    signal: AbortSignal | undefined,
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<TaskOutput<N>> {
    return this.#chat.use((thread) => thread.run(name, input, { transfer, signal, timeoutMs: CHAT_TIMEOUT_MS }), signal);
  }
}
