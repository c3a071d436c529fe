/** Append-only JSON Lines file, to which a run writes its records and from which it resumes after a crash. */
import { open, type FileHandle } from "node:fs/promises";
import { DataError } from "../../base/errors.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Block size in bytes of the backward search for a file's last line end. */
const TAIL_BYTES = 64 * 1024;
/** Byte of `\n`. */
const NEW_LINE = 0x0a;

/**
 * Append-only JSON Lines file with one `write` per value. A crash leaves at most one torn line at the end, which the next
 * {@link JsonLog.open} truncates. A value survives the end of the process once `append` resolves, and a crash of the machine once
 * {@link JsonLog.sync} resolves.
 */
export class JsonLog {
  readonly path: string;
  readonly #file: FileHandle;
  /** Settles when the last queued operation has ended; never rejects. */
  #lastOperation: Promise<void> = Promise.resolve();

  private constructor(path: string, file: FileHandle) {
    this.path = path;
    this.#file = file;
  }

  /**
   * Opens or creates the file, and removes a torn last line (one without a line end). The caller must ensure that the file has one writer
   * at a time.
   */
  static async open(path: string): Promise<JsonLog> {
    // Not "a+": Linux then ignores the position of every read and write, and truncating requires reading first.
    const file = await open(path, "r+").catch((error: unknown) => {
      if (isMissingFile(error)) return open(path, "w+");
      throw error;
    });
    try {
      const { size } = await file.stat();
      const end = await lastLineEnd(file, size);
      if (end < size) await file.truncate(end);
      return new JsonLog(path, file);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /**
   * Appends one line. Lines are written in call order.
   *
   * @throws DataError `E_DATA` for a value that has no JSON form; nothing is written.
   */
  append(value: unknown): Promise<void> {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined) return Promise.reject(new DataError(`${this.path}: expected a value with a JSON form, got ${typeof value}`));
    return this.#inTurn(async () => {
      const { size } = await this.#file.stat();
      const bytes = Buffer.from(`${text}\n`);
      try {
        await writeAll(this.#file, bytes, size);
      } catch (error) {
        // A full disk must not leave half a line in the middle of the file.
        await this.#file.truncate(size).catch(() => undefined);
        throw error;
      }
    });
  }

  /** Resolves when everything appended so far is on disk. */
  sync(): Promise<void> {
    return this.#inTurn(() => this.#file.datasync());
  }

  /** Waits for pending operations and closes the file. The log cannot be used afterwards. */
  close(): Promise<void> {
    return this.#inTurn(() => this.#file.close());
  }

  /** Runs an operation after all earlier ones. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#lastOperation.then(work);
    this.#lastOperation = turn.catch(() => undefined);
    return turn;
  }
}

/** Writes all bytes at `position`; a single write may be partial. */
async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  let writtenBytes = 0;
  while (writtenBytes < bytes.length) {
    const { bytesWritten } = await file.write(bytes, writtenBytes, bytes.length - writtenBytes, position + writtenBytes);
    writtenBytes += bytesWritten;
  }
}

/** Returns the offset after the last complete line of a file with `size` bytes; all later bytes are a torn line. */
async function lastLineEnd(file: FileHandle, size: number): Promise<number> {
  const block = Buffer.alloc(Math.min(TAIL_BYTES, size));
  let blockEnd = size;
  while (blockEnd > 0) {
    const blockStart = Math.max(0, blockEnd - block.length);
    const { bytesRead } = await file.read(block, 0, blockEnd - blockStart, blockStart);
    const newLine = block.subarray(0, bytesRead).lastIndexOf(NEW_LINE);
    if (newLine >= 0) return blockStart + newLine + 1;
    blockEnd = blockStart;
  }
  return 0;
}
