/** Changes of rollout plans that other processes of the database make. */
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import { isShared } from "../store/database.ts";
import { progressOfPlans } from "../store/rollout-plans.ts";
import { hasPendingTasks } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";

/** Milliseconds between two queries. */
const POLL_MS = 1000;

/** Context of {@link PlanWatch}. */
interface WatchContext {
  readonly store: Store;
  readonly logger: ServiceLogger;
  /** Called after a change, and also while no change can be excluded. */
  readonly onChange: () => void;
}

/**
 * Watch for changes of rollout plans and their tasks by other processes of the same database, while requests wait for them. Runs one query
 * per second for all waiting requests of the process; none on a database that only this process uses.
 */
export class PlanWatch {
  readonly #context: WatchContext;
  /** Number of waiting requests. */
  #waitingRequests = 0;
  /** Progress of all plans at the last query, as JSON; null before the first one. */
  #lastProgress: string | null = null;
  /** Stops the watch; null while no request waits. */
  #stopPolling: (() => Promise<void>) | null = null;

  constructor(context: WatchContext) {
    this.#context = context;
  }

  /** Watches until the returned function is called, which resolves when a running query has ended. */
  start(): () => Promise<void> {
    const { store, logger } = this.#context;
    if (!isShared(store)) return () => Promise.resolve();
    this.#waitingRequests++;
    this.#stopPolling ??= repeatEvery(() => this.#poll().catch(logFailure(logger, "Changes of rollout plans could not be read")), POLL_MS);
    return async () => {
      this.#waitingRequests--;
      if (this.#waitingRequests > 0) return;
      const stop = this.#stopPolling;
      this.#stopPolling = null;
      this.#lastProgress = null;
      await stop?.();
    };
  }

  /** Compares the progress of all plans with the last query. */
  async #poll(): Promise<void> {
    const { store, onChange } = this.#context;
    const progress = JSON.stringify(await progressOfPlans(store));
    const isChanged = progress !== this.#lastProgress;
    this.#lastProgress = progress;
    // Pending tasks count as a change: the sums of `progressOfPlans` stay the same when another process releases a task.
    if (isChanged || (await hasPendingTasks(store))) onChange();
  }
}
