/** Free disk space of a service: its minimum, waiting for it, and its reserve. */
import { statfs } from "node:fs/promises";
import { NoSpaceError } from "../../base/errors.ts";
import { delay } from "../../base/util/delay.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { RESERVE_BYTES, type Reserve } from "./reserve.ts";

/** Milliseconds between checks of the free space while work waits for it. */
const POLL_MS = 500;
/** Max milliseconds before work that ran out of space is retried, if the minimum is free. */
const MAX_PAUSE_MS = 5 * 60_000;
/** Min growth of the free space in bytes that triggers an early retry. */
const MIN_GROWTH_BYTES = 1024 * 1024;

/** Options of {@link DiskSpace}. */
export interface DiskSpaceOptions {
  readonly root: string;
  /** Min bytes that must stay free; 0 = no check. */
  readonly minFreeBytes: number;
  readonly reserve: Pick<Reserve, "fill" | "release">;
  readonly logger: ServiceLogger;
  /** Returns the bytes that this process may still write below `root`, or null if unknown. @default statfs */
  readonly probe?: ((root: string) => Promise<number | null>) | undefined;
}

/** Disk space of the data directory's file system: checks for new work, waits for running work, and a reserve for deletions. */
export class DiskSpace {
  readonly #options: DiskSpaceOptions;
  /** Whether the last check found too little space. */
  #wasLow = false;
  /** Whether the reserve is filled. */
  #hasReserve = false;
  /** Current {@link refill}; null while there is none. */
  #filling: Promise<void> | null = null;

  constructor(options: DiskSpaceOptions) {
    this.#options = options;
  }

  /** Returns the bytes that this process may still write; null if the platform does not report them. */
  async freeBytes(): Promise<number | null> {
    const bytes = await this.#measure();
    return Number.isFinite(bytes) ? bytes : null;
  }

  /** Returns whether less than the minimum is free. An unknown amount counts as enough. */
  async isLow(): Promise<boolean> {
    return (await this.#checkFree()).isLow;
  }

  /**
   * Rejects new work on a full disk.
   *
   * @param bytes - Bytes that the work will write, as far as known. @default 0
   * @throws NoSpaceError `E_NO_SPACE` if less than the minimum would remain free.
   */
  async requireSpace(bytes = 0): Promise<void> {
    const { freeBytes, isLow } = await this.#checkFree();
    if (!isLow && freeBytes - bytes >= this.#requiredBytes) return;
    const requestNote = bytes === 0 ? "" : `, and the request brings up to ${inMegabytes(bytes)}`;
    throw new NoSpaceError(
      `The service's disk has ${inMegabytes(freeBytes)} left, of which ${inMegabytes(this.#requiredBytes)} must stay free${requestNote}. Delete checkpoints, artifacts or jobs that are not needed, or make room on the file system of the data directory, and send the request again`,
    );
  }

  /**
   * Runs work that frees space, such as the transaction of a deletion. If even this work runs out of space, releases the reserve and runs
   * the work again, so `work` must be repeatable.
   */
  async freeing<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      this.#hasReserve = false;
      if (!(await this.#options.reserve.release())) throw error;
      this.#options.logger.warn("The disk is full: the reserve was given up so that a deletion can be recorded");
      return work();
    }
  }

  /**
   * Waits until work that ran out of space `failures` times in a row may be retried: the minimum is free, and either the free space has
   * grown or a pause has passed. The pause doubles with each failure, up to five minutes. With 0 failures, waits only for the minimum.
   * Resolves early, without an error, if `signal` aborts.
   */
  async waitForSpace({ failures, signal }: { readonly failures: number; readonly signal: AbortSignal }): Promise<void> {
    const startedMs = performance.now();
    const enoughBytes = (await this.#measure()) + Math.max(this.#options.minFreeBytes, MIN_GROWTH_BYTES);
    const pauseMs = failures === 0 ? 0 : Math.min(MAX_PAUSE_MS, POLL_MS * 2 ** (failures - 1));
    for (;;) {
      const mayRetry = performance.now() - startedMs >= pauseMs || (await this.#measure()) >= enoughBytes;
      if (signal.aborted || (mayRetry && !(await this.isLow()))) return;
      await delay(POLL_MS, { signal }).catch(() => undefined);
    }
  }

  /** Fills the reserve if there is room for it. Never throws. */
  refill(): Promise<void> {
    return (this.#filling ??= this.#fill().finally(() => (this.#filling = null)));
  }

  /** Bytes that must stay free. They include the size of a released reserve, which has to be filled again. */
  get #requiredBytes(): number {
    const { minFreeBytes } = this.#options;
    return minFreeBytes === 0 || this.#hasReserve ? minFreeBytes : minFreeBytes + RESERVE_BYTES;
  }

  /** Returns the free bytes; infinite if unknown. */
  async #measure(): Promise<number> {
    const { root, probe = freeBytesOf } = this.#options;
    return (await probe(root)) ?? Number.POSITIVE_INFINITY;
  }

  /** Measures the free space, and fills a released reserve once there is room for it; the result does not count its bytes as free. */
  async #checkFree(): Promise<{ readonly freeBytes: number; readonly isLow: boolean }> {
    const freeBytes = await this.#measure();
    const isRefilled = !this.#hasReserve && freeBytes >= this.#options.minFreeBytes + RESERVE_BYTES;
    if (isRefilled) await this.refill();
    const remainingBytes = isRefilled && this.#hasReserve ? freeBytes - RESERVE_BYTES : freeBytes;
    return { freeBytes: remainingBytes, isLow: this.#checkAndLog(remainingBytes) };
  }

  /** Returns whether the free bytes are fewer than {@link #requiredBytes}, and logs each change between enough and too little once. */
  #checkAndLog(freeBytes: number): boolean {
    const { minFreeBytes, logger } = this.#options;
    const isLow = freeBytes < this.#requiredBytes;
    if (isLow !== this.#wasLow) {
      this.#wasLow = isLow;
      const fields = { freeBytes, minFreeBytes };
      if (isLow) logger.warn("Disk space is low: uploads, new models and new jobs are refused, and queued jobs wait", fields);
      else logger.warn("There is enough disk space again", fields);
    }
    return isLow;
  }

  /** Fills the reserve. A full disk is not logged, because the low space is. */
  async #fill(): Promise<void> {
    const { reserve, logger } = this.#options;
    try {
      await reserve.fill();
      this.#hasReserve = true;
    } catch (error) {
      this.#hasReserve = false;
      if (!isNoSpace(error)) logger.warn("The reserve of disk space could not be written", { error: messageOf(error) });
    }
  }
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

/** Formats a number of bytes for messages. */
function inMegabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
