/** Background verification of stored files, which finds damage in files that nobody reads. */
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { WhetstoneError } from "../../base/errors.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { PIECE_BYTES } from "../disk/digests.ts";
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLimits } from "../common/limits.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { Storage } from "../storage/storage.ts";
import type { Store } from "../store/tables.ts";
import { eachStoredFile, isInStorage, stillReferenced, type StoredFile } from "./inventory.ts";
import type { StoredFiles } from "./stored-files.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Default milliseconds between the starts of two rounds of {@link keepScrubbing}. */
const ROUND_MS = 24 * 60 * 60_000;
/** Min milliseconds between two confirmations of missing files, because each lists all stored files. */
const CONFIRMATION_MS = 60_000;
/** Max milliseconds of a timer of Node. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** Parts of the service that {@link keepScrubbing} needs. */
export interface ScrubContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Pick<Storage, "remote">;
  readonly files: Pick<StoredFiles, "recheck">;
  readonly limits: Pick<ServiceLimits, "scrubBytesPerSecond">;
  readonly logger: ServiceLogger;
}

/**
 * Verifies every file with a digest in the data directory, one after another, now and every day, reading at most `scrubBytesPerSecond` on
 * average. Damage is logged, and fails every later use of the file; a copy of a file in an S3 storage is fetched again instead.
 *
 * @param roundMs - Milliseconds between the starts of two rounds, unless a round takes longer.
 * @returns a function that stops the verification and waits for the current read.
 */
export function keepScrubbing(context: ScrubContext, roundMs = ROUND_MS): () => Promise<void> {
  if (context.limits.scrubBytesPerSecond === 0) return () => Promise.resolve();
  const stopController = new AbortController();
  // Rejects only because of the abort.
  const scrubbing = scrub(context, roundMs, stopController.signal).catch(() => undefined);
  return async () => {
    stopController.abort();
    await scrubbing;
  };
}

/** Verifies all files in every round. */
async function scrub(context: ScrubContext, roundMs: number, signal: AbortSignal): Promise<void> {
  for (;;) {
    const startedMs = performance.now();
    await scrubOnce(context, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      context.logger.warn("Stored files could not be verified until the next round", { error: messageOf(error) });
    });
    await pause(startedMs + roundMs - performance.now(), signal);
  }
}

/** Verifies every file once. */
async function scrubOnce(context: ScrubContext, signal: AbortSignal): Promise<void> {
  const { store, directory, storage, files, limits, logger } = context;
  /** Waits as long as reading `bytes` takes at the limit. */
  const waitForBytes = (bytes: number) => pause((bytes / limits.scrubBytesPerSecond) * 1000, signal);
  const missing = new MissingFiles(context);
  const onDamagedRow = (error: Error) => logger.error("Stored files cannot be verified", { error: error.message });
  for await (const file of eachStoredFile(store, directory, { onDamagedRow })) {
    signal.throwIfAborted();
    if (missing.isDue) await missing.confirm();
    try {
      await files.recheck(file, waitForBytes);
    } catch (error) {
      signal.throwIfAborted();
      if (isMissingFile(error)) {
        // The data directory has copies of only some of the files in a storage.
        if (storage.remote === null || !isInStorage(file)) missing.add(file);
        continue;
      }
      // `recheck` has logged the damage of the files that it could open.
      if (!WhetstoneError.isInstance(error)) logDamage(context, file, messageOf(error));
      // `recheck` throws before it waits for the last piece of a damaged file.
      await waitForBytes(Math.min(file.digest?.size_bytes ?? 0, PIECE_BYTES));
    }
  }
  await missing.confirm();
}

/** Files of one round that were missing when they were read. They are damage only if they were not deleted meanwhile. */
class MissingFiles {
  readonly #context: ScrubContext;
  #unconfirmed: StoredFile[] = [];
  #lastConfirmationMs = -Infinity;

  constructor(context: ScrubContext) {
    this.#context = context;
  }

  /** Whether there are files to confirm, and the last confirmation was long enough ago. */
  get isDue(): boolean {
    return this.#unconfirmed.length > 0 && performance.now() - this.#lastConfirmationMs >= CONFIRMATION_MS;
  }

  add(file: StoredFile): void {
    this.#unconfirmed.push(file);
  }

  /** Logs the damage of the files that are still referenced, and forgets all files. */
  async confirm(): Promise<void> {
    const { store, directory } = this.#context;
    const unconfirmed = this.#unconfirmed;
    this.#unconfirmed = [];
    for (const file of await stillReferenced(store, directory, unconfirmed)) logDamage(this.#context, file, "the file is missing");
    this.#lastConfirmationMs = performance.now();
  }
}

/** Logs a damaged file. @param finding - Difference from the expected contents. */
function logDamage({ directory, logger }: ScrubContext, { path, digest }: StoredFile, finding: string): void {
  logger.error("A stored file is damaged", { path: join(directory.root, path), finding, expected: digest });
}

/** Waits without keeping the process alive. @throws an `AbortError` if `signal` aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await delay(Math.min(ms, MAX_DELAY_MS), undefined, { signal, ref: false });
}
