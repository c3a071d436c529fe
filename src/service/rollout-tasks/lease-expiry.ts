/** Search for expired leases of rollout tasks. It runs only while tasks are leased. */
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import { currentMs, transact } from "../store/database.ts";
import { expireLeases, hasLeases, TASKS_AT_ONCE } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";

/** Milliseconds between two searches. */
const EXPIRY_MS = 500;

/** Context of {@link LeaseExpiry}. */
interface ExpiryContext {
  readonly store: Store;
  readonly logger: ServiceLogger;
  /** Called after leases have been ended: their tasks are pending again, or have failed. */
  readonly onChange: () => void;
}

/** Periodic search for expired leases, which ends by itself when no task is leased. */
export class LeaseExpiry {
  readonly #context: ExpiryContext;
  /** Stops the search; null while it does not run. */
  #stop: (() => Promise<void>) | null = null;
  /** Number of calls of {@link start}. */
  #starts = 0;
  #isClosed = false;

  constructor(context: ExpiryContext) {
    this.#context = context;
  }

  /** Starts the search, or keeps it running. Call it before and after a task is leased. */
  start(): void {
    if (this.#isClosed) return;
    this.#starts++;
    const { logger } = this.#context;
    const search = () => this.#search().catch(logFailure(logger, "Expired leases of rollouts could not be ended"));
    this.#stop ??= repeatEvery(search, EXPIRY_MS);
  }

  /** Stops the search for good, and waits for a running one. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#stop?.();
  }

  /** Ends expired leases, and stops the search once no task is leased. */
  async #search(): Promise<void> {
    await this.#endExpired();
    const starts = this.#starts;
    const isAnyLeased = await hasLeases(this.#context.store);
    // A lease may have begun during the query, which its answer does not show.
    if (isAnyLeased || starts !== this.#starts) return;
    const stop = this.#stop;
    this.#stop = null;
    // Not awaited: `stop` waits for this call itself.
    void stop?.();
  }

  /** Ends all leases that have expired by now, in batches of {@link TASKS_AT_ONCE}. */
  async #endExpired(): Promise<void> {
    const { store, logger, onChange } = this.#context;
    for (;;) {
      const now = new Date(await currentMs(store, store)).toISOString();
      const { requeued, failed } = await transact(store, (transaction) => expireLeases(transaction, now));
      if (requeued + failed > 0) {
        logger.info("Leases of rollouts have expired", { requeued, failed });
        onChange();
      }
      if (requeued + failed < TASKS_AT_ONCE) return;
    }
  }
}
