/** Reading of SFT training data: from the files of an artifact version to token sequences. */
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { z } from "zod";
import type { BaseModelInfo } from "../../engine/port.ts";
import { ArgumentError, ConflictError, DataError, WhetstoneError } from "../../base/errors.ts";
import { readSftExample, sftSequences, type TokenSequence } from "../../learner/index.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import { parseNestedJson } from "../../base/util/json-size.ts";
import { loneSurrogateIn } from "../../base/util/lone-surrogate.ts";
import { artifactUrl } from "../common/names.ts";
import { checkFieldLimits, MAX_DATA_LINE_BYTES, TRAJECTORY_LIMITS } from "../http/request-limits.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { ArtifactFileRow } from "../store/tables.ts";
import { messageOf } from "../../base/util/values.ts";

/** Request field that names the training artifact. */
const PARAM = "training_data_url";
/** Request field that names a validation artifact. */
export const VALIDATION_PARAM = "experimental_config.validation_data_url";
/** Names of the data file in the two supported layouts. An artifact version has exactly one of them. */
const DATA_FILES = ["trajectories.jsonl", "train.jsonl"];
const METADATA_FILE = "metadata.json";
/** Milliseconds of reading after which the event loop gets a turn, because reading shares a thread with other work. */
const YIELD_AFTER_MS = 8;
const [LINE_FEED, CARRIAGE_RETURN] = [0x0a, 0x0d];

const metadataSchema = z.looseObject({ num_trajectories: z.int().min(0).nullish() });

/** Tokenized data of an SFT job. */
export interface SftData {
  /** Sequences per example, without sequences longer than the context. */
  readonly examples: readonly (readonly TokenSequence[])[];
  /** Number of sequences dropped because they are longer than the context. */
  readonly droppedSequences: number;
  /** Number of trained tokens in the dropped sequences. */
  readonly droppedTokens: number;
  /** Number of examples without a remaining sequence. */
  readonly droppedExamples: number;
  /** Bytes of the texts that the vocabulary has no token for. */
  readonly missingBytes: number;
  /** Number of examples with such bytes. */
  readonly examplesWithMissingBytes: number;
}

/** Training data to read, as structured-cloneable data. */
export interface SftSource {
  readonly artifact: StoredArtifact;
  readonly base: BaseModelInfo;
  /** File paths by the digests of their contents. */
  readonly paths: Readonly<Record<string, string>>;
  readonly assistantTurns: "all" | "last";
  /** Request field that names the artifact. @default "training_data_url" */
  readonly param?: string | undefined;
}

/** Options of {@link readSftData}: the tokenizer of the source's base model, and an abort signal. */
export interface SftReading {
  readonly tokenizer: ChatTokenizer;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link sftSource}. */
export type SftSourceOptions = Pick<SftSource, "base" | "assistantTurns" | "param"> & { readonly files: Pick<StoredFiles, "blobPath"> };

/**
 * Finds the verified files of an artifact version.
 *
 * @throws ConflictError `E_CONFLICT` for a version that is still open.
 * @throws ArgumentError `E_ARGUMENT` for a version without training data.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that differs from the upload.
 */
export async function sftSource(
  artifact: StoredArtifact,
  { base, assistantTurns, param = PARAM, files }: SftSourceOptions,
): Promise<SftSource> {
  const metadata = artifact.files.filter(({ path }) => path === METADATA_FILE);
  const paths: Record<string, string> = {};
  for (const file of [dataFile(artifact, param), ...metadata]) paths[file.sha256] = await files.blobPath(artifact, file);
  return { artifact, base, paths, assistantTurns, param };
}

/** Returns the size of a source's data file in bytes; 0 for a version without one. */
export function sftBytes({ artifact }: SftSource): number {
  return artifact.files.reduce((sum, file) => sum + (DATA_FILES.includes(file.path) ? file.size_bytes : 0), 0);
}

/**
 * Reads and tokenizes every line of an artifact for training.
 *
 * @throws DataError `E_DATA` naming file and line of data that cannot be parsed or trained.
 * @throws ConflictError `E_CONFLICT` for a version that is still open.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that differs from the upload.
 */
export async function readSftData(source: SftSource, { tokenizer, signal }: SftReading): Promise<SftData> {
  const { artifact, base, paths, param = PARAM } = source;
  const file = dataFile(artifact, param);
  const examples: (readonly TokenSequence[])[] = [];
  let droppedSequences = 0;
  let droppedTokens = 0;
  let missingBytes = 0;
  let examplesWithMissingBytes = 0;
  let lines = 0;
  let yieldedMs = performance.now();
  for await (const { text, number } of numberedLines(paths[file.sha256] ?? "", file.path, param)) {
    if (text?.trim() === "") continue;
    lines++;
    const read = readLine(text, `${file.path} line ${number}`, source, tokenizer);
    droppedSequences += read.droppedSequences;
    droppedTokens += read.droppedTokens;
    missingBytes += read.missingBytes;
    if (read.missingBytes > 0) examplesWithMissingBytes++;
    if (read.sequences.length > 0) examples.push(read.sequences);
    if (performance.now() - yieldedMs < YIELD_AFTER_MS) continue;
    await setImmediate();
    signal?.throwIfAborted();
    yieldedMs = performance.now();
  }
  await checkMetadata(source, file, lines);
  if (examples.length === 0) {
    const why =
      lines === 0
        ? "the file is empty"
        : `all of its ${lines} trajectories are longer than the model's context of ${base.contextLength} tokens`;
    throw new DataError(`${file.path}: nothing to train: ${why}`, { param });
  }
  const droppedExamples = lines - examples.length;
  return { examples, droppedSequences, droppedTokens, droppedExamples, missingBytes, examplesWithMissingBytes };
}

/** Returns the data file of an artifact version. @throws the errors of {@link sftSource} */
function dataFile(artifact: StoredArtifact, param: string): ArtifactFileRow {
  const url = artifactUrl(artifact);
  if (artifact.state === "open") {
    throw new ConflictError(`Artifact '${url}' is not committed yet. Commit it with POST /v1/preview/artifacts/${artifact.id}/commit`, {
      param,
    });
  }
  const found = artifact.files.filter((file) => DATA_FILES.includes(file.path));
  const [file] = found;
  if (file === undefined || found.length > 1) {
    const names = artifact.files
      .map((other) => other.path)
      .slice(0, 10)
      .join(", ");
    throw new ArgumentError(
      `Expected artifact '${url}' to hold either trajectories.jsonl (with metadata.json) or train.jsonl, found: ${names}`,
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
  const stream = createReadStream(path, { highWaterMark: 1 << 18 });
  let number = 0;
  const lineOf = (bytes: Buffer) => {
    number++;
    const line = bytes.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes;
    const text = isUtf8(line) ? line.toString("utf8") : null;
    return { text: number === 1 ? (text?.replace(/^\uFEFF/, "") ?? null) : text, number };
  };
  let parts: Buffer[] = [];
  let length = 0;
  const keep = (part: Buffer): void => {
    parts.push(part);
    length += part.length;
    if (length > MAX_DATA_LINE_BYTES)
      throw new DataError(`${name} line ${number + 1}: expected a line of at most ${MAX_DATA_LINE_BYTES} bytes, got more`, { param });
  };
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      let start = 0;
      for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
        keep(chunk.subarray(start, end));
        yield lineOf(parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts));
        [parts, length, start] = [[], 0, end + 1];
      }
      if (start < chunk.length) keep(chunk.subarray(start));
    }
    if (length > 0) yield lineOf(Buffer.concat(parts));
  } finally {
    stream.destroy();
  }
}

/** Parses and tokenizes one line; `text` is null for a line that is not UTF-8. Errors of the data name the line as `where`. */
function readLine(
  text: string | null,
  where: string,
  { base, assistantTurns, param = PARAM }: SftSource,
  tokenizer: ChatTokenizer,
): ReturnType<typeof sftSequences> {
  if (text === null) throw new DataError(`${where}: not UTF-8. Write the file in UTF-8 and upload it as a new version`, { param });
  const lone = loneSurrogateIn(text);
  if (lone !== null)
    throw new DataError(`${where}: half of a surrogate pair, the escape sequence ${lone} alone. Send both halves`, { param });
  try {
    const value = parseNestedJson(text);
    checkFieldLimits(value, TRAJECTORY_LIMITS);
    return sftSequences(readSftExample(value, where), tokenizer, base, { assistantTurns, where });
  } catch (cause) {
    // Only errors caused by the data get a line number; an internal error must not look like bad data.
    if (cause instanceof SyntaxError) throw new DataError(`${where}: not JSON: ${cause.message}`, { cause, param });
    if (!WhetstoneError.isInstance(cause) || cause.code === "E_INTERNAL") throw cause;
    throw new DataError(cause.message.startsWith(where) ? cause.message : `${where}: ${cause.message}`, { cause, param });
  }
}

/** Compares the number of trajectories in the metadata, if given, with the number of lines, which detects a truncated upload. */
async function checkMetadata({ artifact, paths, param = PARAM }: SftSource, file: ArtifactFileRow, lines: number): Promise<void> {
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
  const result = metadataSchema.safeParse(parsed);
  if (!result.success)
    throw new DataError(`${METADATA_FILE}: expected an object whose \`num_trajectories\`, if any, is a number`, { param });
  const expected = result.data.num_trajectories ?? lines;
  if (expected !== lines) {
    throw new DataError(
      `${METADATA_FILE}: \`num_trajectories\` is ${expected}, but ${file.path} has ${lines}. Upload both files again as a new version`,
      { param },
    );
  }
}
