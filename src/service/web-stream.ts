import type { Readable } from "node:stream";

/**
 * A Node stream as the body of a response. Nothing is read ahead of the reader, and when the reader leaves the source is destroyed.
 *
 * Not `Readable.toWeb`: on Node 20 it hands on what a source pushes after the reader has left, and ends the process with that.
 */
export function webStream(source: Readable): ReadableStream<Uint8Array> {
  const chunks = source[Symbol.asyncIterator]() as AsyncIterableIterator<Uint8Array>;
  // What fails before the first read fails that read; without a listener it would end the process.
  source.on("error", () => undefined);
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel() {
        // Not through the iterator: that would wait for a read under way, and do nothing before the first one.
        source.destroy();
      },
    },
    { highWaterMark: 0 },
  );
}
