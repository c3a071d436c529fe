import { statfs } from "node:fs/promises";
import { NoSpaceError } from "../../errors.ts";
import { delay } from "../../util/delay.ts";
import { isNoSpace } from "../../util/no-space.ts";
import { messageOf } from "../error-text.ts";
import type { ServiceLogger } from "../logger.ts";
import { RESERVE_BYTES, type Reserve } from "./reserve.ts";

/** Milliseconds between checks of the free space while work waits for it. */
const POLL_MS = 500;
/** Max milliseconds before work that ran out of space is retried. */
const MAX_PAUSE_MS = 5 * 60_000;
/** Min growth of the free space in bytes that triggers an early retry. */
const MIN_GROWTH_BYTES = 1024 * 1024;

/** Disk space of the data directory's file system: checks for new work, waits for running work, and a reserve for deletions. */
export interface DiskSpace {
  /** Returns whether less than the minimum is free. An unknown amount counts as enough. */
  isLow(): Promise<boolean>;
  /**
   * Rejects new work on a full disk.
   *
   * @param bytes - Bytes that the work will write, as far as known. @default 0
   * @throws NoSpaceError `E_NO_SPACE` if less than the minimum would remain free.
   */
  requireRoom(bytes?: number): Promise<void>;
  /**
   * Runs work that frees space. If even this work runs out of space, releases the reserve and runs the work again, so `work` must be
   * repeatable.
   */
  freeing<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Waits until work that ran out of space `failures` times in a row may be retried: the minimum is free, and either the free space has
   * grown or a pause has passed. The pause doubles with each failure, up to five minutes. With 0 failures, waits only for the minimum.
   * Resolves early, without an error, if `signal` aborts.
   */
  untilRoom(options: { readonly failures: number; readonly signal: AbortSignal }): Promise<void>;
  /** Fills the reserve if there is room for it. Never throws. */
  refill(): Promise<void>;
}

/** Options of {@link createDiskSpace}. */
export interface DiskSpaceOptions {
  readonly root: string;
  /** Min bytes that must stay free; 0 = no check. */
  readonly minFreeBytes: number;
  readonly reserve: Reserve;
  readonly logger: ServiceLogger;
  /** Returns the bytes that this process may still write below `root`, or null if unknown. @default statfs */
  readonly probe?: ((root: string) => Promise<number | null>) | undefined;
}

/** Returns the bytes that an unprivileged process may still write to the file system of `root`; null if the platform does not report it. */
async function freeBytesOf(root: string): Promise<number | null> {
  try {
    const { bavail, bsize } = await statfs(root);
    return bavail * bsize;
  } catch {
    return null;
  }
}

function inMegabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Creates the {@link DiskSpace} of a data directory. */
export function createDiskSpace({ root, minFreeBytes, reserve, logger, probe = freeBytesOf }: DiskSpaceOptions): DiskSpace {
  let wasLow = false;
  let hasReserve = false;

  async function measure(): Promise<number> {
    return (await probe(root)) ?? Number.POSITIVE_INFINITY;
  }

  /** Returns the bytes that must stay free. They include the size of a released reserve, which has to be filled again. */
  function requiredBytes(): number {
    return minFreeBytes === 0 || hasReserve ? minFreeBytes : minFreeBytes + RESERVE_BYTES;
  }

  /** Compares the free bytes with the minimum and logs each change between enough and too little once. */
  function note(freeBytes: number): boolean {
    const isLow = freeBytes < requiredBytes();
    if (isLow !== wasLow) {
      wasLow = isLow;
      const fields = { freeBytes, minFreeBytes };
      if (isLow) logger.warn("Disk space is low: uploads, new models and new jobs are refused, and queued jobs wait", fields);
      else logger.warn("There is enough disk space again", fields);
    }
    return isLow;
  }

  let filling: Promise<void> | null = null;

  async function look(): Promise<{ readonly freeBytes: number; readonly isLow: boolean }> {
    const freeBytes = await measure();
    const isRefilled = !hasReserve && freeBytes >= minFreeBytes + RESERVE_BYTES;
    if (isRefilled) await space.refill();
    const left = isRefilled && hasReserve ? freeBytes - RESERVE_BYTES : freeBytes;
    return { freeBytes: left, isLow: note(left) };
  }

  async function fill(): Promise<void> {
    try {
      await reserve.fill();
      hasReserve = true;
    } catch (error) {
      hasReserve = false;
      if (!isNoSpace(error)) logger.warn("The reserve of disk space could not be written", { error: messageOf(error) });
    }
  }

  const space: DiskSpace = {
    isLow: async () => (await look()).isLow,
    async requireRoom(bytes = 0) {
      const { freeBytes, isLow } = await look();
      if (!isLow && freeBytes - bytes >= requiredBytes()) return;
      const asked = bytes === 0 ? "" : `, and the request brings up to ${inMegabytes(bytes)}`;
      throw new NoSpaceError(
        `The service's disk has ${inMegabytes(freeBytes)} left, of which ${inMegabytes(requiredBytes())} must stay free${asked}. Delete checkpoints, artifacts or jobs that are not needed, or make room on the file system of the data directory, and send the request again`,
      );
    },
    async freeing(work) {
      try {
        return await work();
      } catch (error) {
        if (!isNoSpace(error)) throw error;
        hasReserve = false;
        if (!(await reserve.release())) throw error;
        logger.warn("The disk is full: the reserve was given up so that a deletion can be recorded");
        return work();
      }
    },
    async untilRoom({ failures, signal }) {
      const startedMs = performance.now();
      const before = await measure();
      const pauseMs = failures === 0 ? 0 : Math.min(MAX_PAUSE_MS, POLL_MS * 2 ** (failures - 1));
      for (;;) {
        const mayTry = performance.now() - startedMs >= pauseMs || (await measure()) >= before + Math.max(minFreeBytes, MIN_GROWTH_BYTES);
        if (signal.aborted || (mayTry && !(await space.isLow()))) return;
        await delay(POLL_MS, { signal }).catch(() => undefined);
      }
    },
    refill: () => (filling ??= fill().finally(() => (filling = null))),
  };
  return space;
}
