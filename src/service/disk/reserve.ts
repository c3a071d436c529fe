import { randomBytes } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";

/** Size of the reserve: room for SQLite to record deletions on a full disk, and for the small files of a start. */
export const RESERVE_BYTES = 4 * 1024 * 1024;

const PIECE_BYTES = 1024 * 1024;

/** A file that occupies disk space until a deletion needs it. */
export interface Reserve {
  /** Writes the file unless it is whole. @throws a system error when there is no room; then no part of it is left. */
  fill(): Promise<void>;
  /** Removes the file. @returns whether it was there, so that there is room now that was not. */
  release(): Promise<boolean>;
}

/** Creates the reserve at `path`; nothing is written before {@link Reserve.fill}. */
export function createReserve(path: string): Reserve {
  const size = () =>
    stat(path).then(
      (facts) => facts.size,
      () => 0,
    );
  return {
    async fill() {
      if ((await size()) === RESERVE_BYTES) return;
      try {
        const file = await open(path, "w", 0o600);
        try {
          // Random, because a file system that compresses would store zeros in no space at all.
          const piece = randomBytes(PIECE_BYTES);
          for (let written = 0; written < RESERVE_BYTES; written += PIECE_BYTES) await file.writeFile(piece);
        } finally {
          await file.close();
        }
      } catch (error) {
        await rm(path, { force: true });
        throw error;
      }
    },
    async release() {
      const wasThere = (await size()) > 0;
      await rm(path, { force: true });
      return wasThere;
    },
  };
}
