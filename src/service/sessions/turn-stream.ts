/** Stream of a turn: passes chunks to the client as they arrive, and holds back the final chunks until the turn is recorded. */
import type { ChatCompletion, ChatCompletionChunk, ErrorBody } from "../../base/schema/index.ts";
import { CompletionAssembler } from "../../base/trajectory/assemble.ts";
import type { ChunkBatch, ChunkSource } from "../chat/answer/chunk-source.ts";
import { chunkWithRequestedParts } from "./answers.ts";
import type { RequestedParts } from "../chat/request/effective-request.ts";

/** Options of {@link TurnStream}. */
export interface TurnStreamOptions {
  readonly requested: RequestedParts;
  /** Records the completion of a whole stream. A rejection becomes the error of the stream. */
  readonly onCompletion: (completion: ChatCompletion) => Promise<void>;
  /** Called with the error of a failed stream; returns the error to send. */
  readonly onFailure: (failure: ErrorBody) => ErrorBody;
  /** Returns the error body of a failure. */
  readonly explain: (error: unknown) => ErrorBody;
  /** Called when the client disconnects; the source is read to its end. */
  readonly onDisconnect: () => void;
}

/**
 * Chunks of a source for the client, without the parts that the client did not request.
 *
 * The source is read at the pace of the client until {@link drain}. Memory is one completion, and the chunks that the client has not read.
 */
export class TurnStream implements ChunkSource {
  readonly #options: TurnStreamOptions;
  readonly #source: ChunkSource;
  readonly #assembler = new CompletionAssembler();
  /** Chunks that the client may read now. */
  #readableChunks: ChatCompletionChunk[] = [];
  /** Chunks from the end of the last choice on, which the client may read once the turn is recorded. */
  #finalChunks: ChatCompletionChunk[] = [];
  #failure: ErrorBody | null = null;
  #isConnected = true;
  /** Whether the source has ended and its completion was recorded, or the stream has failed. */
  #isEnded = false;
  /** Last read of a batch. Reads by the client and by {@link drain} follow each other. */
  #lastRead: Promise<void> = Promise.resolve();
  /** Whether the source is read to its end regardless of the client. */
  #isDraining = false;

  constructor(source: ChunkSource, options: TurnStreamOptions) {
    this.#source = source;
    this.#options = options;
  }

  async next(): Promise<ChunkBatch> {
    while (this.#isConnected && this.#readableChunks.length === 0 && !this.#isEnded) await this.#read();
    const chunks = this.#readableChunks;
    this.#readableChunks = [];
    return { chunks, failure: this.#isEnded ? this.#failure : null, isLast: this.#isEnded || !this.#isConnected };
  }

  cancel(): Promise<void> {
    this.#isConnected = false;
    this.#readableChunks = [];
    this.#options.onDisconnect();
    this.drain();
    return Promise.resolve();
  }

  /** Reads the source to its end, whether or not the client reads. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    void (async () => {
      while (!this.#isEnded) await this.#read();
    })();
  }

  /** Reads one batch of the source after the previous one. */
  #read(): Promise<void> {
    this.#lastRead = this.#lastRead.then(() => this.#readBatch());
    return this.#lastRead;
  }

  async #readBatch(): Promise<void> {
    if (this.#isEnded) return;
    try {
      const { chunks, failure, isLast } = await this.#source.next();
      for (const chunk of chunks) this.#take(chunk);
      if (failure !== null) this.#fail(failure);
      if (isLast) await this.#end();
    } catch (error) {
      this.#fail(this.#options.explain(error));
      this.#isEnded = true;
    }
    if (!this.#isConnected) this.#readableChunks = [];
  }

  /** Adds a chunk of the source: to the completion, and with the requested parts to the chunks for the client. */
  #take(chunk: ChatCompletionChunk): void {
    this.#assembler.push(chunk);
    const shown = chunkWithRequestedParts(chunk, this.#options.requested);
    if (shown === null) return;
    if (this.#assembler.isComplete(this.#options.requested.n)) this.#finalChunks.push(shown);
    else this.#readableChunks.push(shown);
  }

  #fail(failure: ErrorBody): void {
    if (this.#failure !== null) return;
    this.#finalChunks = [];
    this.#failure = this.#options.onFailure(failure);
  }

  /** Records the completion, then releases the chunks of the end. */
  async #end(): Promise<void> {
    const completion = this.#failure === null ? this.#assembler.toCompletion() : null;
    try {
      if (completion !== null) await this.#options.onCompletion(completion);
    } catch (error) {
      this.#fail(this.#options.explain(error));
    }
    this.#readableChunks.push(...this.#finalChunks);
    this.#isEnded = true;
  }
}
