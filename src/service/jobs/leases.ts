/**
 * Leases of running jobs. A process that runs a job holds its lease and renews it. When the process dies, the lease expires and another
 * process of the same database resumes the job. Each claim increments the job's fencing token, and every transaction of the job checks it:
 * a process that has lost its lease without noticing cannot commit anything.
 */
import { randomUUID } from "node:crypto";
import type { ServiceLogger } from "../common/logger.ts";
import { currentMs, isShared, lockRows } from "../store/database.ts";
import { nextLiveJob } from "../store/jobs.ts";
import { messageOf } from "../../base/util/values.ts";
import type { JobRow, Store } from "../store/tables.ts";

/** Max milliseconds between two renewals. A renewal also reads requests to cancel or pause the job that other processes received. */
const MAX_RENEWAL_MS = 2000;

/** The job belongs to another process now, or has ended there. Nothing of it may be changed. */
export class LeaseLostError extends Error {
  constructor(jobId: string) {
    super(`The lease of training job '${jobId}' was lost: it runs in another process, or has ended`);
  }
}

/** Columns of a job that has no lease. */
export const NO_LEASE = { lease_owner: null, lease_expires_ms: null } as const;

/**
 * Checks within a transaction that this process still holds the lease of a job that it has claimed. Call it first: it locks the job's row,
 * so that a renewal of the lease waits for the transaction instead of conflicting with it, which slow connections would repeat for ever.
 *
 * @throws LeaseLostError if another process has claimed or ended the job since.
 */
export async function requireLease(transaction: Store, { id, lease_token: token }: Pick<JobRow, "id" | "lease_token">): Promise<void> {
  const row = await lockRows(transaction, transaction.selectFrom("jobs").select("lease_token").where("id", "=", id)).executeTakeFirst();
  if (row?.lease_token !== token) throw new LeaseLostError(id);
}

/** Requests to cancel or pause a job, as its row records them. */
type JobRequests = Pick<JobRow, "cancel_requested" | "is_paused">;

/** Callbacks of a lease that is kept. */
interface LeaseWatcher {
  /** Called once if the lease is lost. */
  readonly onLost: () => void;
  /** Called after each renewal. */
  readonly onRequests: (requests: JobRequests) => void;
}

/** Leases of one process. On a database that only this process uses, leases do not expire and are not renewed. */
export class JobLeases {
  readonly #store: Store;
  readonly #leaseMs: number;
  readonly #logger: ServiceLogger;
  readonly #owner = randomUUID();

  constructor({ store, leaseMs, logger }: { readonly store: Store; readonly leaseMs: number; readonly logger: ServiceLogger }) {
    this.#store = store;
    this.#leaseMs = leaseMs;
    this.#logger = logger;
  }

  /** Whether other processes may run jobs of the database. */
  get isShared(): boolean {
    return isShared(this.#store);
  }

  /** Returns the first job that this process may run, see {@link nextLiveJob}. */
  async next(except: ReadonlySet<string>): Promise<JobRow | undefined> {
    if (!this.isShared) return nextLiveJob(this.#store, { except, lease: null });
    return nextLiveJob(this.#store, { except, lease: { owner: this.#owner, nowMs: await currentMs(this.#store, this.#store) } });
  }

  /** Whether another process holds the lease of a running job. */
  async isHeldElsewhere(transaction: Store, job: JobRow): Promise<boolean> {
    if (job.status !== "running" || job.lease_expires_ms === null || job.lease_owner === this.#owner) return false;
    return job.lease_expires_ms >= (await currentMs(this.#store, transaction));
  }

  /** Returns the lease columns for a job that this process claims; the caller writes them in the same transaction. */
  async claimed(transaction: Store, job: JobRow): Promise<Pick<JobRow, "lease_token" | "lease_owner" | "lease_expires_ms">> {
    const expiresMs = this.isShared ? (await currentMs(this.#store, transaction)) + this.#leaseMs : null;
    return { lease_token: job.lease_token + 1, lease_owner: this.#owner, lease_expires_ms: expiresMs };
  }

  /** Renews the lease of a claimed job until it is lost or the returned function is called. */
  keep(job: JobRow, watcher: LeaseWatcher): () => void {
    if (!this.isShared) return () => undefined;
    const renew = () => this.#renew(job, this.#leaseMs);
    const kept = new KeptLease({ jobId: job.id, leaseMs: this.#leaseMs, renew, watcher, logger: this.#logger });
    return () => kept.stop();
  }

  /** Ends the lease of a running job, so that another process resumes it at once. A failure only delays this until the lease expires. */
  async release(job: JobRow): Promise<void> {
    // An expiry in the past.
    if (this.isShared) await this.#renew(job, -1).catch(() => undefined);
  }

  /** Sets the lease to expire in `leaseMs`. Returns the recorded requests; undefined if this process does not hold the lease. */
  async #renew({ id, lease_token: token }: JobRow, leaseMs: number): Promise<JobRequests | undefined> {
    const nowMs = await currentMs(this.#store, this.#store);
    return this.#store
      .updateTable("jobs")
      .set({ lease_expires_ms: nowMs + leaseMs })
      .where("id", "=", id)
      .where("lease_token", "=", token)
      .where("status", "=", "running")
      .returning(["cancel_requested", "is_paused"])
      .executeTakeFirst();
  }
}

/** Parts of a {@link KeptLease}. */
interface KeptLeaseOptions {
  readonly jobId: string;
  readonly leaseMs: number;
  /** Renews the lease in the database. Resolves to undefined if this process does not hold it. */
  readonly renew: () => Promise<JobRequests | undefined>;
  readonly watcher: LeaseWatcher;
  readonly logger: ServiceLogger;
}

/** Renews one lease at intervals, from its construction until the lease is lost or {@link stop} is called. */
class KeptLease {
  readonly #options: KeptLeaseOptions;
  #isStopped = false;
  #expiryTimer: NodeJS.Timeout;
  #renewalTimer: NodeJS.Timeout;

  constructor(options: KeptLeaseOptions) {
    this.#options = options;
    this.#expiryTimer = this.#loseIn(options.leaseMs);
    this.#renewalTimer = this.#renewLater();
  }

  /** Ends the renewals. No callback is called after this. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#expiryTimer);
    clearTimeout(this.#renewalTimer);
  }

  #loseIn(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#lose(), ms);
  }

  #lose(): void {
    if (this.#isStopped) return;
    this.stop();
    this.#options.watcher.onLost();
  }

  #renewLater(): NodeJS.Timeout {
    return setTimeout(() => void this.#renew(), Math.min(MAX_RENEWAL_MS, this.#options.leaseMs / 4));
  }

  async #renew(): Promise<void> {
    const { jobId, logger } = this.#options;
    try {
      await this.#renewOnce();
    } catch (error) {
      if (!this.#isStopped) logger.warn("The lease of a training job could not be renewed", { job: jobId, error: messageOf(error) });
    }
    if (!this.#isStopped) this.#renewalTimer = this.#renewLater();
  }

  async #renewOnce(): Promise<void> {
    const { leaseMs, renew, watcher } = this.#options;
    const startedMs = performance.now();
    const requests = await renew();
    if (this.#isStopped) return;
    if (requests === undefined) return this.#lose();
    clearTimeout(this.#expiryTimer);
    // The database computes the expiry after the renewal has started, so counting from its start does not overestimate the lease.
    this.#expiryTimer = this.#loseIn(leaseMs - (performance.now() - startedMs));
    watcher.onRequests(requests);
  }
}
