import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Transform } from "node:stream";
import { pipeline as pipelineAsync } from "node:stream/promises";
import { createGzip } from "node:zlib";
import type { ParseOptions } from "ndjson";
import { DataError } from "../errors.ts";
import { readLines } from "./lines.ts";

/** Options of the readers. */
export interface ReadOptions {
  /** A last line that was cut off while being written (no line end, no JSON): refuse the file or leave the line out. @default "error" */
  readonly tornLine?: "error" | "skip" | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of the writers. */
export interface WriteOptions {
  readonly signal?: AbortSignal | undefined;
}

/** One line of a file. */
export interface JsonLine {
  /** From 1. */
  readonly line: number;
  readonly value: unknown;
}

/** What was written. */
export interface WrittenFile {
  readonly path: string;
  /** Lines. */
  readonly count: number;
  readonly sizeBytes: number;
  /** Of the bytes on disk, lower-case hexadecimal. */
  readonly sha256: string;
}

/**
 * The values of a JSON Lines file, lazily; `.gz` is unpacked, a byte order mark and blank lines are passed over.
 *
 * ndjson does the parsing. Left to itself it ends the stream at a `null` line, has no line numbers, and either throws away
 * rows already parsed or skips bad ones in silence. So it gets one line at a time and must give one row for it.
 *
 * @throws DataError `E_DATA` with file and line for text that is no JSON.
 */
export async function* readJsonLines(
  path: string,
  { tornLine = "error", signal }: ReadOptions = {},
): AsyncGenerator<JsonLine, void, undefined> {
  signal?.throwIfAborted();
  const parse = await jsonParser();
  try {
    for await (const { line, text, isWhole } of readLines(path, signal)) {
      signal?.throwIfAborted();
      if (text?.trim() === "") continue;
      const row = text === null ? null : parse(text);
      if (row !== null) yield { line, value: row.value };
      else if (isWhole || tornLine === "error") throw notJson({ path, line, isWhole, isText: text !== null });
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof DataError || !isSystemError(error)) throw error;
    throw new DataError(`${path}: cannot be read: ${error.message}`, { cause: error });
  }
}

/** Parses one line, with or without its line end; null for text that is no JSON. */
async function jsonParser(): Promise<(text: string) => { readonly value: unknown } | null> {
  // Loaded with the first file: importing the package takes a tenth less without.
  const { default: ndjson } = await import("ndjson");
  // `decodeStrings` off: the text is taken as it is, not made into bytes and back.
  const parser = ndjson.parse({ strict: false, decodeStrings: false } as ParseOptions) as unknown as Transform & { matcher?: unknown };
  // What ends a line within the parser. Its regular expression takes a third as long as parsing does.
  parser.matcher = "\n";
  // The parser holds no row when the next line comes, and so answers at once.
  const rowOf = (line: string): unknown => (parser.write(line), parser.read());
  return (text) => {
    if (text.startsWith("{") && text.endsWith("\n")) {
      const value = rowOf(text);
      return value === null ? null : { value };
    }
    // Other values are wrapped: a row of null would end the parser.
    const row = rowOf(`[${text.replace(/\r?\n$/u, "")}]\n`) as unknown[] | null;
    return row?.length === 1 ? { value: row[0] } : null;
  };
}

function notJson(at: { readonly path: string; readonly line: number; readonly isWhole: boolean; readonly isText: boolean }): DataError {
  const came = at.isText ? "" : "; it is no UTF-8 text";
  const hint = at.isWhole ? "" : '. The last line has no line end: its writer was probably interrupted; `tornLine: "skip"` leaves it out';
  return new DataError(`${at.path}:${at.line}: expected one JSON value on the line${came}${hint}`);
}

/** Errors of the file system and of unpacking have a code; what a consumer throws into the loop does not pass through here. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).code === "string";
}

/**
 * Writes values as JSON Lines, all or nothing: into a temporary file beside `path`, synced, then renamed over it. `.gz` is packed.
 *
 * @throws DataError `E_DATA` for a value that JSON cannot hold (a number that is not finite, a cycle); then `path` is as it was.
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
      yield Buffer.from(`${encode(value, path, count)}\n`);
    }
  };
  const measured = async function* (source: AsyncIterable<Buffer>) {
    for await (const chunk of source) {
      sizeBytes += chunk.length;
      hash.update(chunk);
      yield chunk;
    }
  };
  const sink = createWriteStream(temporary, { flags: "wx", flush: true });
  try {
    const options = signal === undefined ? {} : { signal };
    if (path.endsWith(".gz")) await pipelineAsync(lines, createGzip(), measured, sink, options);
    else await pipelineAsync(lines, measured, sink, options);
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    // The pipeline may reject while the file is still being opened: removed before that, it would come back.
    if (!sink.closed) await new Promise<void>((resolve) => sink.once("close", () => resolve()));
    await rm(temporary, { force: true });
    throw signal?.aborted ? signal.reason : error;
  }
  return { path, count, sizeBytes, sha256: hash.digest("hex") };
}

function encode(value: unknown, path: string, line: number): string {
  try {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) throw new Error(`${typeof value} has no JSON form`);
    // A number that is not finite is written as null: text without a null has none.
    if (text.includes("null")) refuseNonFinite(value, "");
    return text;
  } catch (error) {
    throw new DataError(`${path}: item ${line} cannot be written: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}

/** Walks by hand: a replacer given to `JSON.stringify` sees the same, several times slower. */
function refuseNonFinite(value: unknown, key: string): void {
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Error(`\`${key}\` is ${value}, which JSON cannot hold`);
  } else if (Array.isArray(value)) {
    for (const inner of value) refuseNonFinite(inner, key);
  } else if (typeof value === "object" && value !== null) {
    const { toJSON } = value as { readonly toJSON?: unknown };
    if (typeof toJSON === "function") return refuseNonFinite(toJSON.call(value, key), key);
    for (const name in value) refuseNonFinite((value as Record<string, unknown>)[name], name);
  }
}

/** Makes the rename itself durable. Not possible on every platform, and then not needed. */
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
