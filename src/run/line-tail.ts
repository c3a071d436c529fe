/** Incremental reading of a JSON Lines file that a running process appends to, for the dashboard. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { readJsonLines } from "../library/dataset/jsonl.ts";
import type { LinePosition } from "../library/dataset/lines.ts";
import { parseLine } from "./rows.ts";
import { type FoundRun, isInside } from "./find-runs.ts";

/** Position at the start of a file. */
const START: LinePosition = { line: 0, end: 0 };

/** JSON Lines file that another process appends to: each read adds only the lines completed since the previous read. */
export class LineTail<T> {
  /** Rows read so far. A caller that needs only new rows removes them after each read. */
  rows: T[] = [];
  readonly #path: string;
  readonly #root: string;
  readonly #schema: z.ZodType<T>;
  #position: LinePosition;
  /** Inode at the last read, which shows that the file was replaced; null before the first read and without a file. */
  #inode: number | null = null;
  /** Size of the file at the last read, in bytes; null before the first read and without a file. */
  #size: number | null = null;

  /**
   * @param root - Directory that the file may not leave by a symbolic link.
   * @param from - Position of an earlier tail of the same file. @default the start
   */
  constructor(path: string, { root, schema, from = START }: { root: string; schema: z.ZodType<T>; from?: LinePosition | undefined }) {
    this.#path = path;
    this.#root = root;
    this.#schema = schema;
    this.#position = from;
  }

  /** Offset in bytes after the last complete line. */
  get end(): number {
    return this.#position.end;
  }

  /** Whether the file has changed since the last read; costs one `stat`. */
  async hasChanged(): Promise<boolean> {
    const file = await stat(this.#path).catch(() => null);
    return (file?.size ?? null) !== this.#size || (file?.ino ?? null) !== this.#inode;
  }

  /**
   * Reads the new lines. A file that was replaced or truncated is read again from its start, after `rows` is emptied. A last line without a
   * line end is left for the next read.
   *
   * @returns whether `rows` has changed.
   * @throws DataError `E_DATA` with file and line for a line that does not match its schema; every further call throws it again.
   */
  async read(): Promise<boolean> {
    const file = await stat(this.#path).catch(() => null);
    // A tail that starts at a given position knows no inode before its first read.
    const isReplaced = file === null || file.size < this.#position.end || (this.#inode !== null && file.ino !== this.#inode);
    const isReset = this.#position.end > 0 && isReplaced;
    if (isReset) {
      this.rows = [];
      this.#position = START;
    }
    this.#inode = file?.ino ?? null;
    this.#size = file?.size ?? null;
    if (file === null || file.size === this.#position.end || !(await isInside(this.#root, this.#path))) return isReset;
    const previousCount = this.rows.length;
    for await (const { line, value, isWhole, end } of readJsonLines(this.#path, { tornLine: "skip", from: this.#position })) {
      if (!isWhole) break;
      this.rows.push(parseLine(this.#path, line, { value, schema: this.#schema }));
      this.#position = { line, end };
    }
    return isReset || this.rows.length > previousCount;
  }
}

/** Creates a {@link LineTail} of one file of a run directory. @param from - Position of an earlier tail of the file. @default the start */
export function tailOf<T>({ root, path }: FoundRun, file: string, options: { schema: z.ZodType<T>; from?: LinePosition }): LineTail<T> {
  return new LineTail(join(path, file), { root, ...options });
}
