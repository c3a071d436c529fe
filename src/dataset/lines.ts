import { isAscii, isUtf8 } from "node:buffer";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream";
import { createGunzip } from "node:zlib";

/** One line of a text file. */
export interface TextLine {
  /** From 1. */
  readonly line: number;
  /** With its line end, so that nobody has to copy a long text to add one; null for bytes that are no UTF-8. */
  readonly text: string | null;
  /** Whether it has a line end: false for a last line without one. */
  readonly isWhole: boolean;
}

const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = "\u{feff}";
/** Large enough that few lines are pieced together, small enough that reading stays flat in memory. */
const CHUNK_BYTES = 1 << 18;

/**
 * The lines of a file, lazily; `.gz` is unpacked, a byte order mark left out. Leaving the loop closes the file, and so does the signal.
 *
 * Works on bytes: a line of ASCII, as most are, becomes a string of one byte per character, which `JSON.parse` reads fastest,
 * also where another line of the file has other letters.
 */
export async function* readLines(path: string, signal?: AbortSignal): AsyncGenerator<TextLine, void, undefined> {
  const file = createReadStream(path, { highWaterMark: CHUNK_BYTES, ...(signal === undefined ? {} : { signal }) });
  // The callback form: an error of the file reaches the unpacked stream, whose reader throws it.
  const source = path.endsWith(".gz") ? pipeline(file, createGunzip({ chunkSize: CHUNK_BYTES }), () => {}) : file;
  let line = 0;
  /** Beginning of a line whose end has not been read yet. */
  let pieces: Buffer[] = [];
  const take = (piece: Buffer, isWhole: boolean): TextLine => {
    const bytes = pieces.length === 0 ? piece : Buffer.concat([...pieces, piece]);
    pieces = [];
    line++;
    const text = decode(bytes);
    return { line, text: line === 1 && text?.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text, isWhole };
  };
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      let start = 0;
      for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
        yield take(chunk.subarray(start, end + 1), true);
        start = end + 1;
      }
      if (start < chunk.length) pieces.push(chunk.subarray(start));
    }
    if (pieces.length > 0) yield take(Buffer.alloc(0), false);
  } finally {
    source.destroy();
    file.destroy();
  }
}

function decode(bytes: Buffer): string | null {
  if (isAscii(bytes)) return bytes.toString("latin1");
  return isUtf8(bytes) ? bytes.toString("utf8") : null;
}
