/** Streaming of large responses that are made of pieces of text. */
import { setImmediate } from "node:timers/promises";

const encoder = new TextEncoder();

/** Min length of the text that is sent after each turn of the event loop, in UTF-16 units; the last part may be shorter. */
const TURN_LENGTH = 64 * 1024;

/** Returns a text as a response body. Pieces are generated on demand and joined to parts, with a turn of the event loop between parts. */
export function textStream(pieces: Iterable<string>): ReadableStream<Uint8Array> {
  return ReadableStream.from(parts(pieces));
}

async function* parts(pieces: Iterable<string>): AsyncGenerator<Uint8Array> {
  let part = "";
  await setImmediate();
  for (const piece of pieces) {
    part += piece;
    if (part.length < TURN_LENGTH) continue;
    yield encoder.encode(part);
    part = "";
    await setImmediate();
  }
  if (part !== "") yield encoder.encode(part);
}
