/** Lines of training data in an artifact version, from its verified files to parsed values. */
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { z } from "zod";
import { ArgumentError, ConflictError, DataError, WhetstoneError } from "../../base/errors.ts";
import type { FieldLimits } from "../../base/schema/chat-fields.ts";
import { parseNestedJson } from "../../base/util/json-size.ts";
import { loneSurrogateIn } from "../../base/util/lone-surrogate.ts";
import { messageOf } from "../../base/util/values.ts";
import { artifactUrl } from "../common/names.ts";
import { checkFieldLimits, MAX_DATA_LINE_BYTES } from "../http/request-limits.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { ArtifactFileRow } from "../store/tables.ts";

/** Name of the data file that every kind of data may have. */
const PLAIN_FILE = "train.jsonl";
/** Name of the optional file with the number of lines. */
const METADATA_FILE = "metadata.json";
/** Milliseconds of reading after which the event loop gets a turn, because reading shares a thread with other work. */
const YIELD_AFTER_MS = 8;
/** Bytes that are read at one time. */
const READ_BYTES = 256 * 1024;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Kind of training data: its file, and the names of its lines. */
export interface LineFormat {
  /** Name of the data file in an upload with metadata. An artifact version has exactly one of this file and `train.jsonl`. */
  readonly file: string;
  /** Member of the metadata with the number of lines. */
  readonly countKey: string;
  /** Limits of the fields of a line. */
  readonly limits: FieldLimits;
}

/** Artifact version to read, as structured-cloneable data. */
export interface LineSource {
  readonly artifact: StoredArtifact;
  /** File paths by the digests of their contents. */
  readonly paths: Readonly<Record<string, string>>;
  /** Request field that names the artifact. */
  readonly param: string;
}

/**
 * Calls `use` with the verified files of an artifact version.
 *
 * @param param - Request field that names the artifact.
 * @throws ConflictError `E_CONFLICT` for a version that is still open.
 * @throws ArgumentError `E_ARGUMENT` for a version without training data of this format.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that differs from the upload.
 */
export async function useLines<T>(
  artifact: StoredArtifact,
  format: LineFormat,
  { files, param }: { readonly files: Pick<StoredFiles, "useBlobs">; readonly param: string },
  use: (source: LineSource) => Promise<T>,
): Promise<T> {
  const metadata = artifact.files.filter(({ path }) => path === METADATA_FILE);
  return files.useBlobs(artifact, [dataFile(artifact, format, param), ...metadata], (paths) => use({ artifact, paths, param }));
}

/** Returns the size of a version's data file in bytes; 0 for a version without one. */
export function dataBytes({ artifact }: Pick<LineSource, "artifact">, format: LineFormat): number {
  return artifact.files.reduce((sum, file) => sum + (isDataFile(file, format) ? file.size_bytes : 0), 0);
}

/** Whether a file may be the data file of a version. */
function isDataFile({ path }: ArtifactFileRow, format: LineFormat): boolean {
  return path === format.file || path === PLAIN_FILE;
}

/**
 * Reads the lines of an artifact version that are not blank. At the end, compares their number with the metadata.
 *
 * @param read - Converts the parsed JSON of a line; `where` is its location for error messages.
 * @returns the name of the data file, and the results in the order of the lines.
 * @throws DataError `E_DATA` naming file and line of data that cannot be parsed or converted.
 */
export function readDataLines<T>(
  source: LineSource,
  format: LineFormat,
  read: (value: unknown, where: string) => T,
  signal?: AbortSignal,
): { readonly file: string; readonly lines: AsyncIterable<T> } {
  const file = dataFile(source.artifact, format, source.param);
  async function* lines(): AsyncGenerator<T> {
    let count = 0;
    let yieldedMs = performance.now();
    for await (const { text, number } of numberedLines(source.paths[file.sha256] ?? "", file.path, source.param)) {
      if (text?.trim() === "") continue;
      count++;
      yield readLine(text, `${file.path} line ${number}`, { read, format, param: source.param });
      if (performance.now() - yieldedMs < YIELD_AFTER_MS) continue;
      await setImmediate();
      signal?.throwIfAborted();
      yieldedMs = performance.now();
    }
    await checkMetadata(source, format, file, count);
  }
  return { file: file.path, lines: lines() };
}

/** Returns the data file of an artifact version. @throws the errors of {@link useLines} */
function dataFile(artifact: StoredArtifact, format: LineFormat, param: string): ArtifactFileRow {
  const url = artifactUrl(artifact);
  if (artifact.state === "open") {
    throw new ConflictError(`Artifact '${url}' is not committed yet. Commit it with POST /v1/preview/artifacts/${artifact.id}/commit`, {
      param,
    });
  }
  const candidates = artifact.files.filter((file) => isDataFile(file, format));
  const [file] = candidates;
  if (file === undefined || candidates.length > 1) {
    const names = artifact.files
      .map((other) => other.path)
      .slice(0, 10)
      .join(", ");
    throw new ArgumentError(
      `Expected artifact '${url}' to hold either ${format.file} (with ${METADATA_FILE}) or ${PLAIN_FILE}, found: ${names}`,
      { param },
    );
  }
  return file;
}

/**
 * Yields lines with their numbers from 1, without line endings and byte order mark. `text` is null for a line that is not UTF-8. Closes the
 * file if the iteration ends early.
 *
 * @throws DataError `E_DATA` for a line longer than {@link MAX_DATA_LINE_BYTES}.
 */
async function* numberedLines(
  path: string,
  name: string,
  param: string,
): AsyncGenerator<{ readonly text: string | null; readonly number: number }> {
  const stream = createReadStream(path, { highWaterMark: READ_BYTES });
  let number = 1;
  // Parts of the current line, which may begin in an earlier chunk than the one that ends it, and their total length.
  let parts: Buffer[] = [];
  let length = 0;
  const addPart = (part: Buffer): void => {
    parts.push(part);
    length += part.length;
    if (length > MAX_DATA_LINE_BYTES)
      throw new DataError(`${name} line ${number}: expected a line of at most ${MAX_DATA_LINE_BYTES} bytes, got more`, { param });
  };
  /** Returns the current line and begins the next one. */
  const endLine = () => {
    const [part, ...others] = parts;
    // Nearly every line lies in one chunk, and is read without a copy.
    const bytes = part !== undefined && others.length === 0 ? part : Buffer.concat(parts);
    const line = { text: textOfLine(bytes, number), number };
    parts = [];
    length = 0;
    number++;
    return line;
  };
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      let lineStart = 0;
      for (let lineEnd = chunk.indexOf(LINE_FEED); lineEnd !== -1; lineEnd = chunk.indexOf(LINE_FEED, lineStart)) {
        addPart(chunk.subarray(lineStart, lineEnd));
        yield endLine();
        lineStart = lineEnd + 1;
      }
      if (lineStart < chunk.length) addPart(chunk.subarray(lineStart));
    }
    if (length > 0) yield endLine();
  } finally {
    stream.destroy();
  }
}

/** Returns the text of a line without a carriage return at its end, and without the byte order mark of line 1; null if it is not UTF-8. */
function textOfLine(bytes: Buffer, number: number): string | null {
  const line = bytes.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes;
  if (!isUtf8(line)) return null;
  const text = line.toString("utf8");
  return number === 1 ? text.replace(/^\uFEFF/, "") : text;
}

/** Parses and converts one line; `text` is null for a line that is not UTF-8. Errors of the data name the line as `where`. */
function readLine<T>(
  text: string | null,
  where: string,
  { read, format, param }: { readonly read: (value: unknown, where: string) => T; readonly format: LineFormat; readonly param: string },
): T {
  if (text === null) throw new DataError(`${where}: not UTF-8. Write the file in UTF-8 and upload it as a new version`, { param });
  const loneSurrogate = loneSurrogateIn(text);
  if (loneSurrogate !== null)
    throw new DataError(`${where}: half of a surrogate pair, the escape sequence ${loneSurrogate} alone. Send both halves`, { param });
  try {
    const value = parseNestedJson(text);
    checkFieldLimits(value, format.limits);
    return read(value, where);
  } catch (cause) {
    // Only errors caused by the data get a line number; an internal error must not look like bad data.
    if (cause instanceof SyntaxError) throw new DataError(`${where}: not JSON: ${cause.message}`, { cause, param });
    if (!WhetstoneError.isInstance(cause) || cause.code === "E_INTERNAL") throw cause;
    throw new DataError(cause.message.startsWith(where) ? cause.message : `${where}: ${cause.message}`, { cause, param });
  }
}

/** Compares the number of lines in the metadata, if given, with the file's, which detects a truncated upload. */
async function checkMetadata(
  { artifact, paths, param }: LineSource,
  { countKey }: LineFormat,
  file: ArtifactFileRow,
  lines: number,
): Promise<void> {
  const metadata = artifact.files.find((other) => other.path === METADATA_FILE);
  if (metadata === undefined) return;
  if (metadata.size_bytes > MAX_DATA_LINE_BYTES)
    throw new DataError(`${METADATA_FILE}: expected at most ${MAX_DATA_LINE_BYTES} bytes, got ${metadata.size_bytes}`, { param });
  let parsed: unknown;
  try {
    parsed = parseNestedJson(await readFile(paths[metadata.sha256] ?? "", "utf8"));
  } catch (cause) {
    throw new DataError(`${METADATA_FILE}: not JSON: ${messageOf(cause)}`, { cause, param });
  }
  const result = z.looseObject({ [countKey]: z.int().min(0).nullish() }).safeParse(parsed);
  if (!result.success) throw new DataError(`${METADATA_FILE}: expected an object whose \`${countKey}\`, if any, is a number`, { param });
  const expected = result.data[countKey] ?? lines;
  if (expected !== lines) {
    throw new DataError(
      `${METADATA_FILE}: \`${countKey}\` is ${String(expected)}, but ${file.path} has ${lines}. Upload both files again as a new version`,
      { param },
    );
  }
}
