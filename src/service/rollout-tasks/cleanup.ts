/** Deletion of rollout plans: expired ones, and the rows and outcomes of deleted ones. */
import { setImmediate } from "node:timers/promises";
import { removeBlob, type BlobContext } from "../artifacts/remove-blob.ts";
import { logFailure } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import type { DiskSpace } from "../disk/space.ts";
import { deleteSomeTasks, expirePlans, nextDeletedPlan } from "../store/rollout-plans.ts";

/** Milliseconds between two searches for expired plans. */
const CLEANUP_MS = 60_000;
/** Tasks deleted per transaction, few enough for other requests in between. */
const TASKS_AT_ONCE = 200;

/** Context of {@link RolloutCleanup}. */
export interface CleanupContext extends BlobContext {
  readonly space: Pick<DiskSpace, "freeing">;
}

/**
 * Removes the rows and outcomes of deleted plans in the background, in small transactions. An interrupted removal continues at the next
 * start.
 */
export class RolloutCleanup {
  readonly #context: CleanupContext;
  /** Current removals; never rejects. */
  #removals: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(context: CleanupContext) {
    this.#context = context;
  }

  /** Starts the removal of all plans that are marked as deleted, after a running one. */
  wake(): void {
    this.#removals = this.#removals
      .then(() => this.#removeAll())
      .catch(logFailure(this.#context.logger, "Deleted rollout plans could not be removed"));
  }

  /** Deletes expired plans, now and every minute. Returns a function that ends this and waits for a running removal. */
  start(): () => Promise<void> {
    const stop = repeatEvery(() => this.#expire(), CLEANUP_MS);
    return async () => {
      this.#isClosed = true;
      await stop();
      await this.#removals;
    };
  }

  /** Marks expired plans as deleted, and starts the removal of deleted plans. */
  async #expire(): Promise<void> {
    const { store, logger } = this.#context;
    const expired = await expirePlans(store).catch((error: unknown) => {
      logFailure(logger, "Expired rollout plans could not be deleted")(error);
      return 0;
    });
    if (expired > 0) logger.info("Expired rollout plans were deleted", { plans: expired });
    this.wake();
  }

  /** Removes the rows and outcomes of all plans that are marked as deleted. */
  async #removeAll(): Promise<void> {
    const { store, space } = this.#context;
    let planId = await nextDeletedPlan(store);
    while (planId !== undefined && !this.#isClosed) {
      const id = planId;
      // Digests of the outcomes of deleted tasks; null once the plan had no more tasks and was deleted itself.
      const removedOutcomes = await space.freeing(() => deleteSomeTasks(store, id, TASKS_AT_ONCE));
      for (const sha256 of removedOutcomes ?? []) await removeBlob(this.#context, sha256);
      if (removedOutcomes === null) planId = await nextDeletedPlan(store);
      await setImmediate();
    }
  }
}
