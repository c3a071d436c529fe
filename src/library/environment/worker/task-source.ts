/** Sources of a worker's tasks: the leases of the service, or the messages of a broker. */
import type { LeasedRolloutInfo, LeasedRolloutsPage, Service, WorkerEnvironment } from "../../client/index.ts";

/** Identity of a worker in its requests to the service. */
export interface WorkerInit {
  readonly service: Pick<Service, "rolloutPlans">;
  readonly environments: readonly WorkerEnvironment[];
  readonly name: string;
  /** Only plan to play; undefined for all plans. */
  readonly planId: string | undefined;
  readonly leaseSeconds: number;
}

/** Number of tasks to lease, and max wait for one. */
export interface NextTasks {
  readonly max: number;
  readonly waitSeconds: number;
  readonly signal: AbortSignal;
}

/** End of a worker's claim on a task. `over`: the task is delivered or lost. `released`: another worker may get it. */
export type ClaimEnd = "over" | "released";

/** Source of a worker's tasks. */
export interface TaskSource {
  /** Leases up to `max` tasks; returns none if there was none. @throws HttpError and ConnectionError of the failed request. */
  lease(next: NextTasks): Promise<LeasedRolloutsPage>;
  /** Extends the claims on all leased tasks, besides their leases. */
  extend(): Promise<void>;
  /** Ends the claim on a leased task, once per task. */
  settle(task: LeasedRolloutInfo, end: ClaimEnd): Promise<void>;
  /** Ends the connection of the source. */
  close(): Promise<void>;
}

/** Creates the source that leases any pending tasks of the service. */
export function serviceSource({ service, environments, name: worker, planId, leaseSeconds }: WorkerInit): TaskSource {
  return {
    lease: (next) => service.rolloutPlans.lease({ worker, environments, planId, leaseSeconds, ...next }),
    extend: () => Promise.resolve(),
    settle: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
}
