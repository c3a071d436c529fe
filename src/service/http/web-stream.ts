/** Node streams as bodies of responses. */
import type { Readable } from "node:stream";

/**
 * Returns a Node stream as the body of a response. Nothing is read ahead of the consumer, and canceling destroys the source.
 *
 * `Readable.toWeb` is not used: on Node 20 it forwards data that a source pushes after cancellation, which crashes the process.
 */
export function webStream(source: Readable): ReadableStream<Uint8Array> {
  const chunks = source[Symbol.asyncIterator]() as AsyncIterableIterator<Uint8Array>;
  // An error before the first read rejects that read; without a listener it would crash the process.
  source.on("error", () => undefined);
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel() {
        // The iterator's `return()` would wait for a pending read, and do nothing before the first read.
        source.destroy();
      },
    },
    { highWaterMark: 0 },
  );
}
