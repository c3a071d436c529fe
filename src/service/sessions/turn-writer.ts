/**
 * Recording of turns. Turns that end in one round of the event loop share a transaction. A recorded turn survives the end of the process at
 * once, and a failure of the system after five seconds: synchronizing the disk for each turn would block the event loop for milliseconds.
 */
import { NoSpaceError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { synchronize, unsynchronized } from "../store/database.ts";
import { insertTurns, type NewTurn, type SessionCounts } from "../store/sessions.ts";
import type { Store } from "../store/tables.ts";
import { zip } from "../../base/util/values.ts";

/** Turn that waits for a transaction, and the functions that settle its promise. */
interface WaitingTurn {
  readonly turn: NewTurn;
  readonly resolve: (counts: SessionCounts | null) => void;
  readonly reject: (error: unknown) => void;
}

/** Max turns in one transaction, which blocks the event loop while it runs. */
const MAX_TURNS = 64;
/** Milliseconds after a transaction at which the disk is synchronized. */
const SYNCHRONIZE_MS = 5000;

/** Writer of turns to the database. */
export class TurnWriter {
  readonly #store: Store;
  readonly #waiting: WaitingTurn[] = [];
  #isWriting = false;
  #synchronization: NodeJS.Timeout | null = null;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Resolves when the turn survives the end of the process.
   *
   * @returns Counts of the session with the turn; null for a deleted session.
   * @throws NoSpaceError `E_NO_SPACE` if the disk is full.
   */
  record(turn: NewTurn): Promise<SessionCounts | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ turn, resolve, reject });
      if (this.#isWriting) return;
      this.#isWriting = true;
      setImmediate(() => void this.#writeAll());
    });
  }

  /** Writes turns in batches until none waits. */
  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_TURNS);
      try {
        const turns = batch.map(({ turn }) => turn);
        const counts = await unsynchronized(this.#store, (execute) => insertTurns(execute, turns));
        for (const [{ resolve }, count] of zip(batch, counts)) resolve(count);
        this.#synchronization ??= setTimeout(() => this.#synchronize(), SYNCHRONIZE_MS).unref();
      } catch (error) {
        for (const { reject } of batch) reject(storageError(error));
      }
    }
    this.#isWriting = false;
  }

  #synchronize(): void {
    this.#synchronization = null;
    // The next synchronized transaction includes all earlier ones, so that a failure here loses no turns.
    synchronize(this.#store).catch(() => {});
  }

  /** Cancels the next synchronization; closing the store synchronizes everything. */
  close(): void {
    if (this.#synchronization !== null) clearTimeout(this.#synchronization);
  }
}

/** Returns the error of a turn that could not be written; on a full disk, an error that names the remedy. */
function storageError(error: unknown): unknown {
  if (!isNoSpace(error)) return error;
  return new NoSpaceError("The service's disk is full: the turn was not recorded. Make room and send the request again", { cause: error });
}
