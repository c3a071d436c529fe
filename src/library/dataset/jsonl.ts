/** Reading and writing of JSON Lines files, plain or compressed: values in, values out. `lines.ts` splits the bytes into lines. */
import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Transform } from "node:stream";
import { pipeline as pipelineAsync } from "node:stream/promises";
import { createGzip } from "node:zlib";
import type { ParseOptions } from "ndjson";
import { DataError } from "../../base/errors.ts";
import { readLines, type LinePosition } from "./lines.ts";
import { messageOf } from "../../base/util/values.ts";

/** Options of the readers. */
export interface ReadOptions {
  /**
   * Handling of a last line that was cut off while being written (no line end, invalid JSON): reject the file or skip the line.
   *
   * @default "error"
   */
  readonly tornLine?: "error" | "skip" | undefined;
  /** Stops reading: the iteration throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of the writers. */
export interface WriteOptions {
  /** Stops writing: the call rejects with the signal's reason and leaves no file. */
  readonly signal?: AbortSignal | undefined;
}

/** Parsed line of a JSON Lines file. */
export interface JsonLine {
  /** Line number, from 1. */
  readonly line: number;
  readonly value: unknown;
  /** Whether the line has a line end; false for a last line that its writer may not have finished. */
  readonly isWhole: boolean;
  /** Offset in bytes after the line, in the decompressed text. */
  readonly end: number;
}

/** Description of a written file. */
export interface WrittenFile {
  /** Path of the file as given. */
  readonly path: string;
  /** Number of lines. */
  readonly count: number;
  /** Size on disk in bytes, after compression. */
  readonly sizeBytes: number;
  /** SHA-256 of the bytes on disk, in lowercase hexadecimal. */
  readonly sha256: string;
}

/**
 * Reads the values of a JSON Lines file, lazily. Decompresses `.gz`; skips a byte order mark and blank lines.
 *
 * The package ndjson parses the lines, one at a time. Given a whole stream, it would report no line numbers, end at a line `null`, and
 * either discard rows that are already parsed or skip invalid lines silently.
 *
 * @param options - `from`: position to start at, with the number of lines before it; not for compressed files. @default the start
 * @throws DataError `E_DATA` with file and line for text that is not JSON.
 */
export async function* readJsonLines(
  path: string,
  { tornLine = "error", signal, from }: ReadOptions & { readonly from?: LinePosition | undefined } = {},
): AsyncGenerator<JsonLine, void, undefined> {
  signal?.throwIfAborted();
  const parse = await jsonParser();
  try {
    for await (const { line, text, isWhole, end } of readLines(path, { signal, from })) {
      signal?.throwIfAborted();
      if (text?.trim() === "") continue;
      const row = text === null ? null : parse(text);
      if (row !== null) yield { line, value: row.value, isWhole, end };
      else if (isWhole || tornLine === "error") throw notJson({ path, line, isWhole, isText: text !== null });
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof DataError || !isSystemError(error)) throw error;
    throw new DataError(`${path}: cannot be read: ${error.message}`, { cause: error });
  }
}

/** Creates a parser for one line with or without its line end; the parser returns null for invalid JSON. */
async function jsonParser(): Promise<(text: string) => { readonly value: unknown } | null> {
  // Loaded with the first file, so that importing the package stays fast.
  const { default: ndjson } = await import("ndjson");
  // `decodeStrings: false` passes the text on without encoding it to bytes and decoding it again.
  const parser = ndjson.parse({ strict: false, decodeStrings: false } as ParseOptions) as unknown as Transform & { matcher?: unknown };
  // Line separator of the parser. A plain string is much faster than its default regular expression.
  parser.matcher = "\n";
  // The parser holds no row when the next line arrives, so that the row of a line can be read at once.
  const rowOf = (line: string): unknown => {
    parser.write(line);
    return parser.read();
  };
  return (text) => {
    if (text.startsWith("{") && text.endsWith("\n")) {
      const value = rowOf(text);
      return value === null ? null : { value };
    }
    // Other values than objects are wrapped in an array, because a row of null would end the parser.
    const row = rowOf(`[${text.replace(/\r?\n$/u, "")}]\n`) as unknown[] | null;
    return row?.length === 1 ? { value: row[0] } : null;
  };
}

/** Returns the error of a line that is not JSON; `isText` is false for bytes that are not UTF-8. */
function notJson(line: { readonly path: string; readonly line: number; readonly isWhole: boolean; readonly isText: boolean }): DataError {
  const detail = line.isText ? "" : "; it is not UTF-8";
  const hint = line.isWhole ? "" : '. The last line has no line end: its writer was probably interrupted; `tornLine: "skip"` leaves it out';
  return new DataError(`${line.path}:${line.line}: expected one JSON value on the line${detail}${hint}`);
}

/** Whether an error comes from the file system or from decompression, which set a code. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).code === "string";
}

/**
 * Writes values as JSON Lines atomically: to a temporary file in the same directory, synced, then renamed to `path`. Compresses if `path`
 * ends in `.gz`.
 *
 * @throws DataError `E_DATA` for a value that JSON cannot represent (a number that is not finite, a cycle); `path` is then unchanged.
 */
export async function writeJsonLines(
  path: string,
  values: Iterable<unknown> | AsyncIterable<unknown>,
  { signal }: WriteOptions = {},
): Promise<WrittenFile> {
  signal?.throwIfAborted();
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`);
  let count = 0;
  let sizeBytes = 0;
  const hash = createHash("sha256");
  const lines = async function* () {
    for await (const value of values) {
      count++;
      yield Buffer.from(`${toJson(value, path, count)}\n`);
    }
  };
  /** Passes on the bytes of the file and computes their size and hash. */
  const measured = async function* (source: AsyncIterable<Buffer>) {
    for await (const chunk of source) {
      sizeBytes += chunk.length;
      hash.update(chunk);
      yield chunk;
    }
  };
  // `flush` syncs the file before the stream closes, so that the rename never publishes a file without its data.
  const sink = createWriteStream(temporary, { flags: "wx", flush: true });
  try {
    const options = signal === undefined ? {} : { signal };
    if (path.endsWith(".gz")) await pipelineAsync(lines, createGzip(), measured, sink, options);
    else await pipelineAsync(lines, measured, sink, options);
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    // The pipeline may reject while the file is still being opened. Opening would create a file again that was removed before.
    if (!sink.closed) await new Promise<void>((resolve) => sink.once("close", () => resolve()));
    await rm(temporary, { force: true });
    throw signal?.aborted ? signal.reason : error;
  }
  return { path, count, sizeBytes, sha256: hash.digest("hex") };
}

/** Returns the JSON of an item. @throws DataError `E_DATA` for a value that JSON cannot represent. */
function toJson(value: unknown, path: string, line: number): string {
  try {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) throw new Error(`${typeof value} has no JSON form`);
    // `JSON.stringify` writes a non-finite number as null, so text without `null` has no such number.
    if (text.includes("null")) refuseNonFinite(value, "");
    return text;
  } catch (error) {
    const message = `${path}: item ${line} cannot be written: ${messageOf(error)}`;
    throw new DataError(message, { cause: error });
  }
}

/**
 * Checks a value for non-finite numbers recursively. A replacer of `JSON.stringify` could do this, but would take several times as long.
 *
 * @param key - Key of the value in its object, for the message.
 */
function refuseNonFinite(value: unknown, key: string): void {
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Error(`\`${key}\` is ${value}, which JSON cannot hold`);
  } else if (Array.isArray(value)) {
    for (const item of value) refuseNonFinite(item, key);
  } else if (typeof value === "object" && value !== null) {
    const { toJSON } = value as { readonly toJSON?: unknown };
    if (typeof toJSON === "function") return refuseNonFinite(toJSON.call(value, key), key);
    for (const name in value) refuseNonFinite((value as Record<string, unknown>)[name], name);
  }
}

/** Syncs a directory to make a rename durable. Platforms that cannot sync a directory do not need it. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r").catch(() => null);
  try {
    await directory?.sync();
  } catch {
    // Windows refuses to sync a directory.
  } finally {
    await directory?.close();
  }
}
