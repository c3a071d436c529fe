import { randomBytes } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";

/** Size of the reserve in bytes: room for SQLite to record deletions on a full disk, and for the small files written at start. */
export const RESERVE_BYTES = 4 * 1024 * 1024;

const PIECE_BYTES = 1024 * 1024;

/** File that occupies disk space until a deletion needs it. */
export interface Reserve {
  /** Writes the file unless it is complete. @throws a system error if the disk is full; a partial file is removed. */
  fill(): Promise<void>;
  /** Removes the file. @returns whether the file existed, so that space was freed. */
  release(): Promise<boolean>;
}

/** Creates the reserve at `path`. Nothing is written before {@link Reserve.fill}. */
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
          // Random bytes, because a compressing file system would store zeros in no space.
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
