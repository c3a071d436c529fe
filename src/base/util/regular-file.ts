/**
 * Reading of untrusted files: only regular files inside their directory, up to a size limit. Messages name a file without its directory,
 * because they reach clients, which know the object by another name.
 */
import { constants } from "node:fs";
import { type FileHandle, open, realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path";
import { DataError } from "../errors.ts";

/** Max size in bytes of a configuration file of a base model. */
export const MAX_CONFIG_BYTES = 4 * 1024 * 1024;
/** Max size in bytes of the index of weights that are split into several files. */
export const MAX_INDEX_BYTES = 16 * 1024 * 1024;

/** Pattern of file names in the `blobs` folder of a model hub's cache: a Git or SHA-256 digest. */
const BLOB_NAME = /^[0-9a-f]{40,64}$/u;

/** Flag that keeps opening a FIFO from waiting for a writer. Windows has neither FIFOs nor the flag. */
const NON_BLOCKING = constants.O_NONBLOCK ?? 0;

/**
 * Opens a regular file for reading. Symbolic links are followed only to a file below `root`, or, in the layout of a model hub's cache, from
 * `snapshots/<revision>` to the neighboring `blobs`.
 *
 * @param root - Directory that the file must lie in, also after following links. @default the file's directory
 * @throws DataError `E_DATA` for a link that leads elsewhere, and for a directory, FIFO, socket or device.
 * @throws the system's error, such as `ENOENT`.
 */
export async function openRegularFile(path: string, root: string = dirname(path)): Promise<FileHandle> {
  const [directory, target] = await Promise.all([realpath(root), realpath(path)]);
  if (!isBelow(directory, target) && !isBlobOf(directory, target)) {
    throw new DataError(
      `${basename(path)}: expected a file inside its directory, got a link that leads out of it. Copy the file to this place`,
    );
  }
  const file = await open(target, constants.O_RDONLY | NON_BLOCKING | (constants.O_NOFOLLOW ?? 0));
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw new DataError(`${basename(path)}: expected a regular file, got a directory, FIFO, socket or device`);
}

/** Options of {@link readRegularFile}. */
export interface ReadRegularFileOptions {
  /** Max size of the file. */
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads a UTF-8 text file; see {@link openRegularFile}.
 *
 * @throws DataError `E_DATA` for a file larger than `maxBytes`.
 */
export async function readRegularFile(path: string, options: ReadRegularFileOptions): Promise<string> {
  return (await readRegularFileBytes(path, options)).toString("utf8");
}

/** Reads the bytes of a file; otherwise as {@link readRegularFile}. */
export async function readRegularFileBytes(path: string, { maxBytes, signal }: ReadRegularFileOptions): Promise<Buffer> {
  const file = await openRegularFile(path);
  try {
    const { size } = await file.stat();
    if (size > maxBytes) throw new DataError(`${basename(path)}: expected at most ${maxBytes} bytes, got ${size}`);
    return await file.readFile(signal === undefined ? {} : { signal });
  } finally {
    await file.close();
  }
}

/**
 * Parses JSON. Unlike the error of `JSON.parse`, the error message contains no part of the text.
 *
 * @throws DataError `E_DATA` naming the file.
 */
export function parseFileJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const [position] = /position \d+/u.exec((error as Error).message) ?? ["its end"];
    throw new DataError(`${basename(path)}: expected JSON, it does not parse at ${position}`);
  }
}

/** Returns the message of a system error without its paths: `ENOENT: no such file or directory`. */
export function reasonOf(error: unknown): string {
  const { message } = error instanceof Error ? error : { message: String(error) };
  return message.replace(/, \w+ '.*$/su, "");
}

/** Whether an absolute path lies below a directory. */
function isBelow(directory: string, path: string): boolean {
  const relativePath = relative(directory, path);
  // On Windows, the relative path to another drive is absolute.
  return relativePath !== "" && relativePath !== ".." && !relativePath.startsWith(`..${sep}`) && !isAbsolute(relativePath);
}

/** Whether a path is in the `blobs` of the model hub's cache that has `directory` in its `snapshots`. */
function isBlobOf(directory: string, path: string): boolean {
  const snapshots = dirname(directory);
  return basename(snapshots) === "snapshots" && dirname(path) === join(snapshots, "..", "blobs") && BLOB_NAME.test(basename(path));
}
