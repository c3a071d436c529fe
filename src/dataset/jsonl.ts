import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream";
import { pipeline as pipelineAsync } from "node:stream/promises";
import { createGunzip, createGzip } from "node:zlib";
import ndjson from "ndjson";
import { DataError } from "../errors.ts";

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
 * rows already parsed or skips bad ones in silence. So each line goes in as `[number,line]` and bad ones are noticed by the gap they leave.
 *
 * @throws DataError `E_DATA` with file and line for text that is no JSON.
 */
export async function* readJsonLines(
  path: string,
  { tornLine = "error", signal }: ReadOptions = {},
): AsyncGenerator<JsonLine, void, undefined> {
  signal?.throwIfAborted();
  /** Numbers of the lines handed to the parser whose rows have not come out yet. */
  const pending: number[] = [];
  let isEndTorn = false;
  const numbered = async function* (source: AsyncIterable<Uint8Array>) {
    let number = 0;
    const wrap = (line: string): string => {
      number++;
      const text = line.endsWith("\r") ? line.slice(0, -1) : line;
      if (text.trim() === "") return "";
      pending.push(number);
      return `[${number},${text}]\n`;
    };
    const decoder = new TextDecoder("utf-8", { fatal: true });
    let rest = "";
    for await (const chunk of source) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      const block = lines.map(wrap).join("");
      if (block !== "") yield block;
    }
    try {
      rest += decoder.decode();
    } catch {
      // A character cut in two belongs to a torn line: with this at its end it cannot pass for JSON.
      rest += "\u{fffd}";
    }
    isEndTorn = rest !== "";
    const last = wrap(rest);
    if (last !== "") yield last;
  };
  const notJson = (line: number): DataError => {
    const hint =
      isEndTorn && pending.length === 0
        ? '. The last line has no line end: its writer was probably interrupted; `tornLine: "skip"` leaves it out'
        : "";
    return new DataError(`${path}:${line}: expected one JSON value on the line${hint}`);
  };
  const parser = ndjson.parse({ strict: false });
  const file = createReadStream(path, { highWaterMark: 1 << 20 });
  const done = () => {};
  // The callback form: errors of every stage reach the parser, whose reader throws them.
  if (path.endsWith(".gz")) pipeline(file, createGunzip(), numbered, parser, done);
  else pipeline(file, numbered, parser, done);
  const onAbort = () => parser.destroy(signal?.reason as Error);
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    for await (const row of parser as AsyncIterable<[number, unknown]>) {
      const expected = pending.shift() as number;
      if (row[0] !== expected || row.length !== 2) throw notJson(expected);
      yield { line: expected, value: row[1] };
    }
    const bad = pending.shift();
    const isTorn = isEndTorn && pending.length === 0;
    if (bad !== undefined && !(isTorn && tornLine === "skip")) throw notJson(bad);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof DataError) throw error;
    throw new DataError(`${path}: cannot be read: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  } finally {
    signal?.removeEventListener("abort", onAbort);
    parser.destroy();
    file.destroy();
  }
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
    const text = JSON.stringify(value, (key, inner: unknown) => {
      if (typeof inner === "number" && !Number.isFinite(inner)) throw new Error(`\`${key}\` is ${inner}, which JSON cannot hold`);
      return inner;
    }) as string | undefined;
    if (text === undefined) throw new Error(`${typeof value} has no JSON form`);
    return text;
  } catch (error) {
    throw new DataError(`${path}: item ${line} cannot be written: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
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
