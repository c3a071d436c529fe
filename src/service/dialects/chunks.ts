/** Conversion of chat completion chunks to the event stream of a dialect. */
import type { ErrorBody } from "../../base/schema/index.ts";
import type { ChunkBatch, ChunkSource } from "../chat/answer/chunk-source.ts";
import type { EventShaper, ServerEvent } from "../../dialects/answer-builder.ts";
import { first } from "../../base/util/values.ts";

/** Milliseconds without an event after which a connection gets a ping. */
const PING_MS = 10_000;

const encoder = new TextEncoder();

/** Returns events in the format of server-sent events. */
function eventText(events: readonly ServerEvent[]): string {
  let text = "";
  for (const { name, data } of events)
    text += `${name === undefined ? "" : `event: ${name}\n`}data: ${data === "[DONE]" ? data : JSON.stringify(data)}\n\n`;
  return text;
}

/** Batch of one of several chat completions. */
interface CallBatch extends ChunkBatch {
  /** Index of the chat completion. @default 0 */
  readonly call?: number | undefined;
}

/**
 * Reader of chat completions that run concurrently. Each batch comes from one of them, in the order in which batches are available. The last
 * batch is the one after which no completion has more, or the first one with a failure.
 */
class MergedChunks {
  /** Next batch of each completion that has not ended, by the index of the completion. */
  readonly #pending = new Map<number, Promise<{ source: ChunkSource; call: number; batch: ChunkBatch }>>();

  constructor(sources: readonly ChunkSource[]) {
    for (const [call, source] of sources.entries()) this.#request(source, call);
  }

  #request(source: ChunkSource, call: number): void {
    this.#pending.set(
      call,
      source.next().then((batch) => ({ source, call, batch })),
    );
  }

  async next(): Promise<CallBatch> {
    const { source, call, batch } = await Promise.race(this.#pending.values());
    this.#pending.delete(call);
    if (!batch.isLast) this.#request(source, call);
    return { ...batch, call, isLast: batch.failure !== null || this.#pending.size === 0 };
  }
}

/** Options of {@link shapedStream}. */
export interface ShapedStreamOptions {
  readonly shaper: EventShaper;
  /** Event that keeps an idle connection open. @default a comment */
  readonly ping?: ServerEvent | undefined;
  /** Milliseconds without an event after which the connection gets a ping. @default 10 000 */
  readonly pingMs?: number | undefined;
  /** Returns the error body of a failure. */
  readonly explain: (error: unknown) => ErrorBody;
}

/**
 * Returns the event stream of a dialect. Events are generated at the rate of the reader; a reader that waits gets a ping after each
 * `pingMs`. A failure cancels all sources and ends the stream with the events of the failure.
 *
 * @param sources - Chunks of chat completions with `stream: true`; at least one.
 */
export function shapedStream(
  sources: readonly ChunkSource[],
  { shaper, ping, pingMs = PING_MS, explain }: ShapedStreamOptions,
): ReadableStream<Uint8Array> {
  const source: { next(): Promise<CallBatch> } = sources.length === 1 ? first(sources) : new MergedChunks(sources);
  const pingText = encoder.encode(ping === undefined ? ": ping\n\n" : eventText([ping]));
  /** Whether the reader waits for events. */
  let isWaiting = false;
  let isCancelled = false;
  /** Sends the pings. Set when the stream starts, before any other function here is called. */
  let timer: NodeJS.Timeout;
  const cancel = async (): Promise<void> => {
    isCancelled = true;
    clearInterval(timer);
    await Promise.all(sources.map((each) => each.cancel()));
  };
  /** Cancels all sources, and returns the events of a failure, which end the stream. */
  const failureText = async (failure: ErrorBody): Promise<string> => {
    await cancel();
    return eventText(shaper.fail(failure));
  };
  /** Reads batches until they result in events or the stream ends; null if the reader has cancelled the stream. */
  const nextEvents = async (): Promise<{ readonly text: string; readonly isLast: boolean } | null> => {
    let text = "";
    try {
      for (;;) {
        const { chunks, failure, call = 0, isLast } = await source.next();
        if (isCancelled) return null;
        for (const chunk of chunks) text += eventText(shaper.push(chunk, call));
        if (failure !== null) text += await failureText(failure);
        else if (isLast) text += eventText(await shaper.end());
        if (text !== "" || isLast) return { text, isLast };
      }
    } catch (error) {
      return { text: text + (await failureText(explain(error))), isLast: true };
    }
  };
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        timer = setInterval(() => {
          if (isWaiting) controller.enqueue(pingText);
        }, pingMs).unref();
      },
      async pull(controller) {
        isWaiting = true;
        timer.refresh();
        const events = await nextEvents();
        if (events === null) return;
        isWaiting = false;
        controller.enqueue(encoder.encode(events.text));
        if (!events.isLast) return;
        clearInterval(timer);
        controller.close();
      },
      cancel,
    },
    // Nothing is generated ahead of the reader.
    { highWaterMark: 0 },
  );
}
