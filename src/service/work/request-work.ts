/**
 * Work on requests and training data, done at once on the serving thread while it is small, and on a thread of its own when it is not.
 * Either way it is the same function of the same input.
 */
import type { Grammar } from "../../engine/grammar/expression.ts";
import type { RlBatch } from "../../learner/index.ts";
import type { ChatTokenizer } from "../../tokenizer/index.ts";
import { encodePrompt, type PromptText } from "../chat/encode-prompt.ts";
import type { PromptRequest } from "../chat/prompt-request.ts";
import { renderText } from "../chat/render-text.ts";
import { readChat, type ChatBody, type ParsedChat } from "../chat/request.ts";
import { compileOutput, type CompiledOutput, type OutputGrammarOptions } from "../chat/structured/output-grammar.ts";
import type { OutputRequest } from "../chat/structured/output-request.ts";
import { groupsBytes } from "../jobs/job-files.ts";
import { readSftData, sftBytes, type SftData, type SftSource } from "../jobs/sft-data.ts";
import type { TokenizerSource } from "../jobs/tokenizers.ts";
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "../requests.ts";
import { WorkPool } from "./pool.ts";
import { acceptGroups, batchOf, readRlRequest, type AcceptedGroups, type RlHead, type RlJobPlan } from "./rl-request.ts";
import { unpackSftData } from "./sft-examples.ts";
import { isLongText, isSlowForm } from "./size.ts";
import type { TaskInput, TaskName, TaskOutput } from "./tasks.ts";

/** Bytes up to which JSON is read on the serving thread: some milliseconds at most. */
const SMALL_JSON_BYTES = 128 * 1024;

/** Bytes up to which a chat body is read there; its fields take longer than plain JSON. */
const SMALL_CHAT_BYTES = 64 * 1024;

/** Characters up to which a text is encoded on the serving thread. */
const SMALL_TEXT_LENGTH = 16_384;

/** Seconds that preparing a chat request may take on its thread. */
const CHAT_TIMEOUT_MS = 30_000;

/** Threads for chat requests, and for training data; they are started when there is work for them. */
const [CHAT_THREADS, DATA_THREADS] = [2, 4];

/** An RL request that was read; its groups stay where they were read. */
export interface OpenRlRequest {
  readonly head: RlHead;
  /** See `acceptGroups`. */
  readonly accept: (plan: RlJobPlan) => Promise<AcceptedGroups>;
}

/** The buffer of `bytes`, which holds nothing else. */
function ownBuffer(bytes: Uint8Array): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = bytes;
  return byteOffset === 0 && byteLength === buffer.byteLength
    ? (buffer as ArrayBuffer)
    : (buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
}

/** See the file header. */
export class RequestWork {
  readonly #tokenizers: TokenizerSource;
  readonly #chat = new WorkPool(CHAT_THREADS);
  readonly #data = new WorkPool(DATA_THREADS);

  /** @param tokenizers - Tokenizers of the serving thread; others load their own. */
  constructor(tokenizers: TokenizerSource) {
    this.#tokenizers = tokenizers;
  }

  /** See `readBody` of `requests.ts`. Takes the bytes over. */
  async readBody<K extends PlainKind>(kind: K, bytes: Uint8Array, signal?: AbortSignal): Promise<JsonBody<PlainBody<K>>> {
    if (bytes.length <= SMALL_JSON_BYTES) return readBody(kind, bytes);
    const own = ownBuffer(bytes);
    const task = { kind, bytes: new Uint8Array(own) };
    const read = await this.#data.use((thread) => thread.run("readBody", task, { transfer: [own] }), signal);
    return read as JsonBody<PlainBody<K>>;
  }

  /** See `readChat`. Takes the bytes over. */
  async readChat(body: ChatBody, signal?: AbortSignal): Promise<ParsedChat> {
    if (body.bytes.length <= SMALL_CHAT_BYTES) return readChat(body);
    const own = ownBuffer(body.bytes);
    return this.#onChatThread("readChat", { ...body, bytes: new Uint8Array(own) }, signal, [own]);
  }

  /** See `renderText`. */
  async renderText(tokenizer: ChatTokenizer, directory: string, request: PromptRequest, signal?: AbortSignal): Promise<string> {
    // A template that a request brings may do any amount of work on any input.
    if (request.template === null && !isLongText(request, SMALL_TEXT_LENGTH)) return renderText(tokenizer, request);
    return this.#onChatThread("renderText", { directory, request }, signal);
  }

  /** See `encodePrompt`. */
  async encode(tokenizer: ChatTokenizer, prompt: PromptText, signal?: AbortSignal): Promise<Int32Array> {
    if (prompt.text.length <= SMALL_TEXT_LENGTH) return encodePrompt(tokenizer, prompt);
    return this.#onChatThread("encode", prompt, signal);
  }

  /** See `compileOutput`. A schema that must be validated is one that can be. */
  async compileOutput(request: OutputRequest, options: OutputGrammarOptions): Promise<CompiledOutput> {
    const compiled = await this.#compiled(request, options);
    if (compiled.check !== null) await this.#onChatThread("checkValidators", compiled.check, undefined);
    return compiled;
  }

  async #compiled(request: OutputRequest, options: OutputGrammarOptions): Promise<CompiledOutput> {
    if (!isSlowForm(request)) return compileOutput(request, options);
    // A text crosses between threads in no time, unlike the many small objects of a grammar.
    const { text, states, check } = await this.#onChatThread("grammar", { request, options }, undefined);
    return { grammar: JSON.parse(text) as Grammar, states, check };
  }

  /** See `violationOf`. Validators are kept on the threads: making one takes many milliseconds. */
  async validate(schema: string, text: string): Promise<string | null> {
    return this.#onChatThread("validate", { schema, text }, undefined);
  }

  /** Reads the body of an RL job and calls `use` with it. Takes the bytes over. */
  async withRlRequest<T>(bytes: Uint8Array, use: (request: OpenRlRequest) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (bytes.length <= SMALL_JSON_BYTES) {
      const { head, groups } = await readRlRequest(bytes);
      return use({ head, accept: (plan) => acceptGroups(groups, plan, this.#tokenizers) });
    }
    const own = ownBuffer(bytes);
    return this.#data.use(async (thread) => {
      const head = await thread.run("readRl", new Uint8Array(own), { transfer: [own], signal });
      return use({ head, accept: (plan) => thread.run("acceptRl", plan) });
    }, signal);
  }

  /** See `batchOf`. */
  async rlBatch(plan: RlJobPlan, signal: AbortSignal): Promise<RlBatch> {
    if ((await groupsBytes(plan.directory, plan.jobId)) <= SMALL_JSON_BYTES) return batchOf(plan, this.#tokenizers, signal);
    return this.#data.use((thread) => thread.run("rlBatch", plan, { signal }), signal);
  }

  /** See `readSftData`. */
  async sftData(source: SftSource, signal?: AbortSignal): Promise<SftData> {
    if (sftBytes(source) <= SMALL_JSON_BYTES)
      return readSftData(source, { tokenizer: await this.#tokenizers(source.base.directory), signal });
    return unpackSftData(await this.#data.use((thread) => thread.run("sftData", source, { signal }), signal));
  }

  /** Ends all threads; work under way fails. */
  async close(): Promise<void> {
    await Promise.all([this.#chat.close(), this.#data.close()]);
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
