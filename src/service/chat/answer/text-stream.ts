import { setImmediate } from "node:timers/promises";

const encoder = new TextEncoder();

/** Length of the text that is generated in one turn of the event loop, in UTF-16 units. */
const TURN_LENGTH = 64 * 1024;

/** Returns a text as a response body that is generated on demand, with a turn of the event loop between its parts. */
export function textStream(pieces: Iterator<string>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        await setImmediate();
        let part = "";
        while (part.length < TURN_LENGTH) {
          const { done, value } = pieces.next();
          if (done === true) {
            if (part !== "") controller.enqueue(encoder.encode(part));
            controller.close();
            return;
          }
          part += value;
        }
        controller.enqueue(encoder.encode(part));
      },
    },
    { highWaterMark: 0 },
  );
}
