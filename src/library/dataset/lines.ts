/** Reading of the lines of a text file as bytes, with line numbers and offsets. */
import { isAscii, isUtf8 } from "node:buffer";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream";
import { createGunzip } from "node:zlib";
import { InternalError } from "../../base/errors.ts";

/** Line of a text file. */
export interface TextLine {
  /** Line number, from 1. */
  readonly line: number;
  /** Text including its line end, so that callers need not copy a long text to add one; null for invalid UTF-8. */
  readonly text: string | null;
  /** Whether the line has a line end; false for a last line without one. */
  readonly isWhole: boolean;
  /** Offset in bytes after the line, in the decompressed text. */
  readonly end: number;
}

/** Position in a text file between two lines. A {@link TextLine} is the position after it. */
export interface LinePosition {
  /** Number of lines before the position. */
  readonly line: number;
  /** Offset of the position in bytes. */
  readonly end: number;
}

/** Byte of `\n`. */
const NEWLINE = 0x0a;
/** Character at the start of a file that some editors add. */
const BYTE_ORDER_MARK = "\u{feff}";
/** Read size in bytes: large enough that few lines span chunks, small enough to keep memory use low. */
const CHUNK_BYTES = 1 << 18;

/**
 * Reads the lines of a file, lazily, from the start or from a position of an earlier reading. Decompresses `.gz` and removes a byte order
 * mark. Leaving the loop or aborting the signal closes the file.
 *
 * Works on bytes: an ASCII line, as most are, becomes a string of one byte per character, which `JSON.parse` reads fastest, even if other
 * lines of the file are not ASCII.
 */
export async function* readLines(
  path: string,
  { signal, from = { line: 0, end: 0 } }: { readonly signal?: AbortSignal | undefined; readonly from?: LinePosition | undefined } = {},
): AsyncGenerator<TextLine, void, undefined> {
  if (from.end > 0 && path.endsWith(".gz")) throw new InternalError(`Expected a file that is not compressed, got ${path}`);
  // Set only for a later position: a file without positions, such as a pipe, can only be read from its start.
  const startOption = from.end === 0 ? {} : { start: from.end };
  const file = createReadStream(path, { ...startOption, highWaterMark: CHUNK_BYTES, ...(signal === undefined ? {} : { signal }) });
  // The callback form of `pipeline` passes an error of the file to the decompressed stream, and reading that stream throws it.
  const source = path.endsWith(".gz") ? pipeline(file, createGunzip({ chunkSize: CHUNK_BYTES }), () => {}) : file;
  let { line, end: offset } = from;
  /** Pieces of the current line in earlier chunks. */
  let pieces: Buffer[] = [];
  /** Returns the line that ends with `piece`. */
  const completeLine = (piece: Buffer, isWhole: boolean): TextLine => {
    const bytes = pieces.length === 0 ? piece : Buffer.concat([...pieces, piece]);
    pieces = [];
    line++;
    offset += bytes.length;
    const decoded = decode(bytes);
    const text = line === 1 && decoded?.startsWith(BYTE_ORDER_MARK) ? decoded.slice(1) : decoded;
    return { line, text, isWhole, end: offset };
  };
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      let lineStart = 0;
      for (let newLine = chunk.indexOf(NEWLINE); newLine !== -1; newLine = chunk.indexOf(NEWLINE, lineStart)) {
        yield completeLine(chunk.subarray(lineStart, newLine + 1), true);
        lineStart = newLine + 1;
      }
      if (lineStart < chunk.length) pieces.push(chunk.subarray(lineStart));
    }
    if (pieces.length > 0) yield completeLine(Buffer.alloc(0), false);
  } finally {
    source.destroy();
    file.destroy();
  }
}

/** Decodes UTF-8; null for invalid bytes. */
function decode(bytes: Buffer): string | null {
  if (isAscii(bytes)) return bytes.toString("latin1");
  return isUtf8(bytes) ? bytes.toString("utf8") : null;
}
