/** Recording of delivered outcomes: concurrent deliveries share a transaction, so that the disk is synchronized once for all of them. */
import { transact } from "../store/database.ts";
import { BlobRemovedError, requireBlob, type BlobContext } from "../artifacts/remove-blob.ts";
import type { BlobStore, WrittenBlob } from "../artifacts/blob-store.ts";
import { deferred, type Deferred } from "../../base/util/deferred.ts";
import { zip } from "../../base/util/values.ts";
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
  /** Contents of the outcome. */
  readonly blob: WrittenBlob;
  readonly end: TaskEnd;
}

/** Delivery that waits for a transaction, and its result: the finished task, see {@link finishTask}. */
interface WaitingDelivery {
  readonly delivery: Delivery;
  readonly result: Deferred<RolloutTaskRow | null>;
}

/** Recorder of outcomes. */
export class OutcomeWriter {
  readonly #store: Store;
  readonly #blobs: BlobStore;
  /** Deliveries that are not part of a transaction yet, in order of arrival. */
  readonly #queue: WaitingDelivery[] = [];
  /** Whether a transaction is running. */
  #isWriting = false;

  constructor({ store, blobs }: Pick<BlobContext, "store" | "blobs">) {
    this.#store = store;
    this.#blobs = blobs;
  }

  /**
   * Finishes a task; see {@link finishTask}. Resolves when the change is durable.
   *
   * @throws BlobRemovedError `E_UNAVAILABLE` if another process has removed the contents of the outcome.
   */
  finish(delivery: Delivery): Promise<RolloutTaskRow | null> {
    const result = deferred<RolloutTaskRow | null>();
    this.#queue.push({ delivery, result });
    void this.#write();
    return result.promise;
  }

  /** Records all queued deliveries, in batches. Returns at once if another call is doing so. */
  async #write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      while (this.#queue.length > 0) await this.#writeBatch(this.#queue.splice(0, MAX_BATCH));
    } finally {
      this.#isWriting = false;
    }
  }

  /** Records deliveries in one transaction, and settles their results. Never rejects. */
  async #writeBatch(waiting: readonly WaitingDelivery[]): Promise<void> {
    // In the order of plans: transactions of several processes that lock the rows of plans in the same order cannot deadlock.
    const batch = waiting.toSorted((a, b) => byPlan(a.delivery, b.delivery));
    try {
      const outcomes = await transact(this.#store, async (transaction) => {
        const finished: (RolloutTaskRow | BlobRemovedError | null)[] = [];
        for (const { delivery } of batch) finished.push(await this.#finish(transaction, delivery));
        return finished;
      });
      for (const [{ result }, outcome] of zip(batch, outcomes)) {
        if (outcome instanceof BlobRemovedError) result.reject(outcome);
        else result.resolve(outcome);
      }
    } catch (error) {
      for (const { result } of batch) result.reject(error);
    }
  }

  /** Finishes a task within a transaction. Returns the error if the contents of its outcome were removed, which concerns no other task. */
  async #finish(transaction: Store, { lease, blob, end }: Delivery): Promise<RolloutTaskRow | BlobRemovedError | null> {
    try {
      await requireBlob(transaction, this.#blobs, blob);
    } catch (error) {
      if (error instanceof BlobRemovedError) return error;
      throw error;
    }
    return finishTask(transaction, lease, end);
  }
}
