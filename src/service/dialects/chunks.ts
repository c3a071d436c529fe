/** Conversion of chat completion streams to the event stream of a dialect. */
import { createParser } from "eventsource-parser";
import type { ChatCompletionChunk, ErrorBody } from "../../schema/index.ts";
import type { EventShaper, ServerEvent } from "./dialect.ts";

/** Milliseconds without an event after which a connection gets a ping. */
const PING_MS = 10_000;

const encoder = new TextEncoder();

/** Returns the text of events. */
export function eventText(events: readonly ServerEvent[]): string {
  return events
    .map(({ name, data }) => `${name === undefined ? "" : `event: ${name}\n`}data: ${data === "[DONE]" ? data : JSON.stringify(data)}\n\n`)
    .join("");
}

/** Reader of one chat completion stream. */
class ChunkReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  readonly #parser = createParser({ onEvent: ({ data }) => this.#take(data) });
  #chunks: ChatCompletionChunk[] = [];
  failure: ErrorBody | null = null;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  #take(data: string): void {
    if (data === "[DONE]") return;
    const event = JSON.parse(data) as ChatCompletionChunk | ErrorBody;
    if ("error" in event) this.failure = event as ErrorBody;
    else this.#chunks.push(event);
  }

  /** Returns the chunks of the next read; null at the end. */
  async next(): Promise<readonly ChatCompletionChunk[] | null> {
    const { done, value } = await this.#reader.read();
    if (done) return null;
    this.#chunks = [];
    this.#parser.feed(this.#decoder.decode(value, { stream: true }));
    return this.#chunks;
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }
}

/** Resolves with the text of the next events of all streams, which run concurrently; null at the end. */
class MergedEvents {
  readonly #readers: readonly ChunkReader[];
  readonly #pending = new Map<number, Promise<{ readonly call: number; readonly chunks: readonly ChatCompletionChunk[] | null }>>();
  readonly #shaper: EventShaper;
  #isEnded = false;

  constructor(streams: readonly ReadableStream<Uint8Array>[], shaper: EventShaper) {
    this.#readers = streams.map((stream) => new ChunkReader(stream));
    this.#shaper = shaper;
    for (const call of this.#readers.keys()) this.#request(call);
  }

  #request(call: number): void {
    this.#pending.set(
      call,
      this.#readers[call]!.next().then((chunks) => ({ call, chunks })),
    );
  }

  async next(): Promise<string | null> {
    if (this.#isEnded) return null;
    if (this.#pending.size === 0) {
      this.#isEnded = true;
      return eventText(await this.#shaper.end());
    }
    const { call, chunks } = await Promise.race(this.#pending.values());
    this.#pending.delete(call);
    const events = (chunks ?? []).flatMap((chunk) => this.#shaper.push(chunk, call));
    const { failure } = this.#readers[call]!;
    if (failure !== null) {
      this.#isEnded = true;
      await this.cancel();
      return eventText([...events, ...this.#shaper.fail(failure)]);
    }
    if (chunks !== null) this.#request(call);
    return eventText(events);
  }

  async cancel(): Promise<void> {
    await Promise.all(this.#readers.map((reader) => reader.cancel()));
  }
}

/** Options of {@link shapedStream}. */
export interface ShapedStreamOptions {
  readonly shaper: EventShaper;
  /** Event that keeps an idle connection open. @default a comment */
  readonly ping?: ServerEvent | undefined;
  /** @default 10 000 */
  readonly pingMs?: number | undefined;
  /** Returns the error body of a failure. */
  readonly explain: (error: unknown) => ErrorBody;
}

/**
 * Returns the event stream of a dialect. Events are generated at the rate of the reader; a reader that waits gets a ping after each
 * `pingMs`.
 *
 * @param streams - Streams of chat completions with `stream: true`.
 */
export function shapedStream(
  streams: readonly ReadableStream<Uint8Array>[],
  { shaper, ping, pingMs = PING_MS, explain }: ShapedStreamOptions,
): ReadableStream<Uint8Array> {
  const events = new MergedEvents(streams, shaper);
  const pingText = ping === undefined ? ": ping\n\n" : eventText([ping]);
  let pending: Promise<string | null> | null = null;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (let text: string | null = ""; text === "";) {
            pending ??= events.next();
            text = await withPing(pending, pingMs, pingText);
            if (text !== pingText) pending = null;
            if (text === null) controller.close();
            else if (text !== "") controller.enqueue(encoder.encode(text));
          }
        } catch (error) {
          controller.enqueue(encoder.encode(eventText(shaper.fail(explain(error)))));
          controller.close();
        }
      },
      cancel: () => events.cancel(),
    },
    { highWaterMark: 0 },
  );
}

/** Resolves with the pending text, or with `pingText` if it takes longer than `pingMs`. */
async function withPing(pending: Promise<string | null>, pingMs: number, pingText: string): Promise<string | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(pingText), pingMs);
  });
  try {
    return await Promise.race([pending, late]);
  } finally {
    clearTimeout(timer);
  }
}
