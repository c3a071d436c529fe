/** Streamed answers of chat completions, as chunks (`ChunkSource`) and as the server-sent events that carry them. */
import { createParser } from "eventsource-parser";
import type { ChatCompletionChunk, ErrorBody } from "../../../base/schema/index.ts";

/** Chunks that a stream has generated since the previous batch. */
export interface ChunkBatch {
  readonly chunks: readonly ChatCompletionChunk[];
  /** Error that ends the stream after the chunks; null for none. */
  readonly failure: ErrorBody | null;
  /** Whether the stream ends after this batch. */
  readonly isLast: boolean;
}

/** Chunks of a streamed answer, generated at the rate of the reader. */
export interface ChunkSource {
  /** Resolves with the next batch. To be called after the previous batch, and not after the last one. */
  next(): Promise<ChunkBatch>;
  /** Ends the request. A pending call of `next` resolves with an empty last batch. */
  cancel(): Promise<void>;
}

/** A streamed answer, to be read once: either as chunks, or as server-sent events. */
export interface AnswerStream {
  chunks(): ChunkSource;
  events(): ReadableStream<Uint8Array>;
}

/** Last event of every stream of chat completions. */
const DONE = "data: [DONE]\n\n";
const encoder = new TextEncoder();

/** Returns the answer with the chunks of a source; its events are made of them. */
export function chunkStream(source: ChunkSource): AnswerStream {
  return { chunks: () => source, events: () => eventsOf(source) };
}

/** Returns the answer with server-sent events, which stay unchanged unless they are read as chunks. */
export function eventStream(events: ReadableStream<Uint8Array>): AnswerStream {
  return { chunks: () => new ChunkReader(events), events: () => events };
}

/** Returns the event of a chunk or an error. */
function eventText(data: ChatCompletionChunk | ErrorBody): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

/** Returns the server-sent events of chunks. One write carries one batch. */
function eventsOf(source: ChunkSource): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { chunks, failure, isLast } = await source.next();
        let text = "";
        for (const chunk of chunks) text += eventText(chunk);
        if (failure !== null) text += eventText(failure);
        if (isLast) text += DONE;
        controller.enqueue(encoder.encode(text));
        if (isLast) controller.close();
      },
      cancel: () => source.cancel(),
    },
    // Nothing is generated ahead of the reader.
    { highWaterMark: 0 },
  );
}

/** Chunks parsed from the server-sent events of another server. */
class ChunkReader implements ChunkSource {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  readonly #parser = createParser({ onEvent: ({ data }) => this.#addEvent(data) });
  /** Chunks of the next batch. */
  #chunks: ChatCompletionChunk[] = [];
  #failure: ErrorBody | null = null;

  constructor(events: ReadableStream<Uint8Array>) {
    this.#reader = events.getReader();
  }

  #addEvent(data: string): void {
    // The end of the bytes ends the stream; `[DONE]` adds nothing. Events after an error are ignored.
    if (data === "[DONE]" || this.#failure !== null) return;
    const event = JSON.parse(data) as ChatCompletionChunk | ErrorBody;
    if ("error" in event) this.#failure = event as ErrorBody;
    else this.#chunks.push(event);
  }

  async next(): Promise<ChunkBatch> {
    this.#chunks = [];
    let isLast = false;
    while (this.#chunks.length === 0 && !isLast) {
      const { done, value } = await this.#reader.read();
      if (!done) this.#parser.feed(this.#decoder.decode(value, { stream: true }));
      isLast = done || this.#failure !== null;
    }
    return { chunks: this.#chunks, failure: this.#failure, isLast };
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }
}
