/** Recording of delivered outcomes: concurrent deliveries share a transaction, so that the disk is synchronized once for all of them. */
import { transact } from "../store/database.ts";
import { deferred, type Deferred } from "../../base/util/deferred.ts";
import { byPlan, finishTask, type NamedLease, type TaskEnd } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";
import type { RolloutTaskRow } from "../store/team-tables.ts";

/** Max deliveries of one transaction. */
const MAX_BATCH = 200;

/** Outcome to record. */
export interface Delivery {
  readonly lease: NamedLease;
  /** Plan of the task. */
  readonly plan_id: string;
  readonly end: TaskEnd;
}

/** Recorder of outcomes. */
export class OutcomeWriter {
  readonly #store: Store;
  readonly #waiting: { readonly delivery: Delivery; readonly result: Deferred<RolloutTaskRow | null> }[] = [];
  /** Whether a transaction is running. */
  #isWriting = false;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Finishes a task; see {@link finishTask}. Resolves when the change is durable. */
  finish(delivery: Delivery): Promise<RolloutTaskRow | null> {
    const result = deferred<RolloutTaskRow | null>();
    this.#waiting.push({ delivery, result });
    void this.#write();
    return result.promise;
  }

  async #write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting.splice(0, MAX_BATCH).toSorted((a, b) => byPlan(a.delivery, b.delivery));
        try {
          const rows = await transact(this.#store, async (transaction) => {
            const finished: (RolloutTaskRow | null)[] = [];
            for (const { delivery } of batch) finished.push(await finishTask(transaction, delivery.lease, delivery.end));
            return finished;
          });
          for (const [index, { result }] of batch.entries()) result.resolve(rows[index] ?? null);
        } catch (error) {
          for (const { result } of batch) result.reject(error);
        }
      }
    } finally {
      this.#isWriting = false;
    }
  }
}
