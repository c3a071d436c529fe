/** Reserve of disk space. `space.ts` releases and refills it. */
import { randomBytes } from "node:crypto";
import { open, rm } from "node:fs/promises";
import { closing, sizeOf } from "./files.ts";

/** Size of the reserve in bytes: room for SQLite to record deletions on a full disk, and for the small files written at start. */
export const RESERVE_BYTES = 4 * 1024 * 1024;

/** Bytes per write. */
const PIECE_BYTES = 1024 * 1024;

/** File that occupies disk space until a deletion needs it. Nothing is written before {@link Reserve.fill}. */
export class Reserve {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** Writes the file unless it is complete. @throws a system error if the disk is full; a partial file is removed. */
  async fill(): Promise<void> {
    if ((await sizeOf(this.#path)) === RESERVE_BYTES) return;
    try {
      await closing(await open(this.#path, "w", 0o600), async (file) => {
        // Random bytes, because a compressing file system would store zeros in no space.
        const piece = randomBytes(PIECE_BYTES);
        for (let written = 0; written < RESERVE_BYTES; written += PIECE_BYTES) await file.writeFile(piece);
      });
    } catch (error) {
      await rm(this.#path, { force: true });
      throw error;
    }
  }

  /** Removes the file. @returns whether the file existed, so that space was freed. */
  async release(): Promise<boolean> {
    const wasThere = (await sizeOf(this.#path)) > 0;
    await rm(this.#path, { force: true });
    return wasThere;
  }
}
