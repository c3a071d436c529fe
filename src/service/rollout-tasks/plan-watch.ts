import type { ServiceLogger } from "../common/logger.ts";
import { logFailure } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import { isShared } from "../store/database.ts";
import { progressOfPlans } from "../store/rollout-plans.ts";
import { hasPendingTasks } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";

/** Milliseconds between two looks for changes that other processes have made. */
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
 * per second for all waiting requests of the process; none on a database of this process alone.
 */
export class PlanWatch {
  readonly #context: WatchContext;
  #waiting = 0;
  #seen: string | null = null;
  /** Stops the watch; null while no request waits. */
  #stop: (() => Promise<void>) | null = null;

  constructor(context: WatchContext) {
    this.#context = context;
  }

  /** Watches until the returned function is called, which resolves when a running query has ended. */
  start(): () => Promise<void> {
    const { store, logger } = this.#context;
    if (!isShared(store)) return () => Promise.resolve();
    this.#waiting++;
    this.#stop ??= repeatEvery(() => this.#look().catch(logFailure(logger, "Changes of rollout plans could not be read")), POLL_MS);
    return async () => {
      if (--this.#waiting > 0) return;
      const stop = this.#stop;
      this.#stop = this.#seen = null;
      await stop?.();
    };
  }

  async #look(): Promise<void> {
    const { store, onChange } = this.#context;
    const seen = JSON.stringify(await progressOfPlans(store));
    const isChanged = seen !== this.#seen;
    this.#seen = seen;
    if (isChanged || (await hasPendingTasks(store))) onChange();
  }
}
