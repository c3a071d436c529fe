/** Recording of turns: all turns that end in one round of the event loop share a transaction, and with it one synchronization of the disk. */
import { NoSpaceError } from "../../errors.ts";
import { isNoSpace } from "../../util/no-space.ts";
import { insertTurns, type NewTurn } from "../store/sessions.ts";
import type { Store } from "../store/tables.ts";

interface Waiting {
  readonly turn: NewTurn;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Max turns in one transaction, which blocks the event loop while it runs. */
const MAX_TURNS = 64;

export class TurnWriter {
  readonly #store: Store;
  #waiting: Waiting[] = [];
  #isWriting = false;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Resolves when the turn is durable.
   *
   * @throws NoSpaceError `E_NO_SPACE` if the disk is full.
   */
  record(turn: NewTurn): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ turn, resolve, reject });
      if (this.#isWriting) return;
      this.#isWriting = true;
      setImmediate(() => void this.#writeAll());
    });
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_TURNS);
      try {
        const turns = batch.map(({ turn }) => turn);
        await this.#store.transaction().execute((transaction) => insertTurns(transaction, turns));
        for (const { resolve } of batch) resolve();
      } catch (error) {
        const reason = isNoSpace(error)
          ? new NoSpaceError("The service's disk is full: the turn was not recorded. Make room and send the request again", {
              cause: error,
            })
          : error;
        for (const { reject } of batch) reject(reason);
      }
    }
    this.#isWriting = false;
  }
}
