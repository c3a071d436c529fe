/**
 * Leases of rollout tasks. Workers wait for pending tasks, lease them, extend the leases while they play, and release the leases of tasks that
 * they do not finish. `LeaseExpiry` ends the leases of workers that have died.
 */
import { currentMs, transact, transactLocking } from "../store/database.ts";
import { randomUUID } from "node:crypto";
import type {
  ExtendedLeases,
  ExtendLeasesRequest,
  LeasedRollouts,
  LeaseRolloutsRequest,
  ReleaseLeasesRequest,
} from "../../base/schema/index.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { Changes } from "../jobs/changes.ts";
import { claimTasks, extendLeases, otherVersion, releaseLeases, type Claim, type NamedLease } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";
import { LeaseExpiry } from "./lease-expiry.ts";
import { namedRollout, requireEnvironment, requireUnfinished, type NamedRollout } from "./named-rollout.ts";
import { PlanWatch } from "./plan-watch.ts";
import { planToWire } from "./wire.ts";

/** Default of `lease_seconds`. */
const DEFAULT_LEASE_SECONDS = 60;
/** Milliseconds for which a client counts as following a plan after each request for the plan's finished tasks. */
const FOLLOW_MS = 60_000;

/** Leases of the tasks of all plans. */
export class RolloutLeases {
  readonly #store: Store;
  /** Notifies waiting requests of pending and finished tasks. */
  readonly changes = new Changes();
  /** Times of the last requests for the finished tasks of plans, by `performance.now()`. */
  readonly #followedAtMs = new Map<string, number>();
  readonly #expiry: LeaseExpiry;
  readonly #watch: PlanWatch;
  #isClosed = false;

  constructor({ store, logger }: { readonly store: Store; readonly logger: ServiceLogger }) {
    this.#store = store;
    const onChange = () => this.changes.notify();
    this.#expiry = new LeaseExpiry({ store, logger, onChange });
    this.#watch = new PlanWatch({ store, logger, onChange });
  }

  /** Whether {@link close} was called; long polls must then end. */
  get isClosing(): boolean {
    return this.#isClosed;
  }

  /**
   * Leases pending tasks. Waits up to `wait` seconds for one.
   *
   * @param store - Store of the request.
   * @throws ConflictError `E_CONFLICT` without a pending task, if a client follows a plan for an environment of the same name with another
   *   content hash, and for a named rollout that needs no worker any more. NotFoundError `E_NOT_FOUND` for a named rollout that does not
   *   exist. ArgumentError `E_ARGUMENT` for a named rollout without a plan.
   */
  async lease(store: Store, request: LeaseRolloutsRequest, signal: AbortSignal): Promise<LeasedRollouts> {
    const endsAtMs = performance.now() + (request.wait ?? 0) * 1000;
    for (;;) {
      this.#expiry.start();
      const { revision } = this.changes;
      const leased = await this.#claim(store, request);
      if (leased.data.length > 0) {
        // The client has gone: releases the tasks, so that other workers need not wait until the leases expire.
        if (signal.aborted) await this.release(store, { leases: leased.data.map(({ id, lease_token }) => ({ id, lease_token })) });
        return leased;
      }
      const remainingMs = endsAtMs - performance.now();
      if (remainingMs <= 0 || signal.aborted || this.#isClosed) return leased;
      await this.waitForChange(revision, { timeoutMs: remainingMs, signal });
    }
  }

  /** Waits as {@link Changes.wait}, also for changes by other processes of the database. */
  async waitForChange(...args: Parameters<Changes["wait"]>): Promise<void> {
    const stop = this.#watch.start();
    try {
      await this.changes.wait(...args);
    } finally {
      await stop();
    }
  }

  /** Claims pending tasks within one transaction; the answer has no tasks if none is pending. */
  async #claim(
    store: Store,
    { worker, environments, plan_id, rollout, max, lease_seconds: seconds }: LeaseRolloutsRequest,
  ): Promise<LeasedRollouts> {
    const namedTask = namedRollout(plan_id, rollout);
    const claim: Omit<Claim, "until"> = {
      worker,
      environments,
      planId: plan_id ?? null,
      rollout: namedTask?.rollout ?? null,
      max: max ?? 1,
      token: randomUUID(),
    };
    const { tasks, plans } = await transactLocking(store, async (transaction) =>
      claimTasks(transaction, { ...claim, until: await this.#endTime(transaction, seconds) }),
    );
    // The search for expired leases may have ended since the start of the request, when no task was leased.
    if (tasks.length > 0) this.#expiry.start();
    else await this.#requirePlayable(store, environments, namedTask);
    return {
      data: tasks.map(({ id, plan_id, group_index, rollout_index, scenario }) => ({
        id,
        plan_id,
        lease_token: claim.token,
        group: group_index,
        index: rollout_index,
        scenario: JSON.parse(scenario) as LeasedRollouts["data"][number]["scenario"],
      })),
      plans: plans.map(planToWire),
    };
  }

  /**
   * Checks that a worker without a task does not wait in vain. Other environments are an error only while a client follows the plan:
   * otherwise an abandoned plan of an older version would stop every worker of a newer one.
   *
   * @throws ConflictError `E_CONFLICT` if its named rollout is over, or a client waits for other environments than the worker plays.
   */
  async #requirePlayable(store: Store, environments: LeaseRolloutsRequest["environments"], named: NamedRollout | null): Promise<void> {
    if (named === null) return this.#requireSameVersions(store, environments);
    const plan = await requireUnfinished(store, named);
    if (this.#isFollowed(plan.id)) requireEnvironment(plan, environments);
  }

  /** Checks that no client waits for another version of an environment that the worker plays. @throws ConflictError `E_CONFLICT` */
  async #requireSameVersions(store: Store, environments: LeaseRolloutsRequest["environments"]): Promise<void> {
    for (const { name, hash } of environments) {
      const outdatedPlan = await otherVersion(store, { name, hash });
      if (outdatedPlan !== undefined && this.#isFollowed(outdatedPlan.id)) requireEnvironment(outdatedPlan, [{ name, hash }]);
    }
  }

  /** Records that a client follows a plan: it has just requested the plan's finished tasks. */
  follow(planId: string): void {
    const nowMs = performance.now();
    for (const [id, requestedMs] of this.#followedAtMs) if (nowMs - requestedMs > FOLLOW_MS) this.#followedAtMs.delete(id);
    this.#followedAtMs.set(planId, nowMs);
  }

  /** Whether a client follows a plan. */
  #isFollowed(planId: string): boolean {
    return performance.now() - (this.#followedAtMs.get(planId) ?? -Infinity) <= FOLLOW_MS;
  }

  /** Extends leases, and reports the ones that are lost. */
  async extend(store: Store, { leases, lease_seconds: seconds }: ExtendLeasesRequest): Promise<ExtendedLeases> {
    this.#expiry.start();
    if (leases.length === 0) return { held: [], lost: [] };
    const held = await transact(store, async (transaction) => extendLeases(transaction, leases, await this.#endTime(transaction, seconds)));
    const leaseKey = ({ id, lease_token: token }: NamedLease) => `${id} ${token}`.toLowerCase();
    const heldKeys = new Set(held.map(leaseKey));
    return { held: held.map(({ id }) => id), lost: leases.filter((lease) => !heldKeys.has(leaseKey(lease))).map(({ id }) => id) };
  }

  /** Returns the end of a lease that starts now, ISO 8601, by the clock of the database. */
  async #endTime(transaction: Store, seconds: number | null | undefined): Promise<string> {
    return new Date((await currentMs(this.#store, transaction)) + (seconds ?? DEFAULT_LEASE_SECONDS) * 1000).toISOString();
  }

  /** Releases leases; returns their number. */
  async release(store: Store, { leases }: ReleaseLeasesRequest): Promise<number> {
    if (leases.length === 0) return 0;
    const released = await transact(store, (transaction) => releaseLeases(transaction, leases));
    if (released > 0) this.changes.notify();
    return released;
  }

  /** Ends long polls and the search for expired leases. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.changes.notify();
    await this.#expiry.close();
  }
}
