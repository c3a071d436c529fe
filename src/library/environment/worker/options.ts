/** Options, events and result of `runWorker`. */
import type { RolloutException } from "../../../base/schema/index.ts";
import type { Service, WorkerEnvironment } from "../../client/index.ts";
import type { AnyEnvironment } from "../environment.ts";
import type { RolloutBroker } from "./broker.ts";

/** Event of a worker, as `onEvent` receives it. */
export type WorkerEvent =
  | {
      /** The worker waits for tasks. */
      readonly type: "worker-start";
      /** Name of the worker. */
      readonly worker: string;
      /** Environments that it plays, with their content hashes. */
      readonly environments: readonly WorkerEnvironment[];
    }
  | {
      /** A rollout is played and its outcome delivered. */
      readonly type: "rollout-deliver";
      /** UUID of the plan. */
      readonly planId: string;
      /** UUID of the task. */
      readonly taskId: string;
      /** Index of the scenario. */
      readonly group: number;
      /** Index of the rollout in its group, from 0. */
      readonly index: number;
      /** Reward before group rewards; null for a failed rollout. */
      readonly reward: number | null;
      /** Failure of the rollout; null without one. */
      readonly exception: RolloutException | null;
      /** Duration from the lease to the delivery, in seconds. */
      readonly seconds: number;
    }
  | {
      /** The outcome of a rollout is dropped: another worker has the task, or the plan was cancelled or deleted. */
      readonly type: "rollout-lose";
      /** UUID of the plan. */
      readonly planId: string;
      /** UUID of the task. */
      readonly taskId: string;
    }
  | {
      /** A request failed because the service, or the broker, is unavailable. It is repeated. */
      readonly type: "service-unavailable";
      /** Description of the failed request. */
      readonly message: string;
    };

/** Options of {@link runWorker}. */
export interface WorkerOptions {
  /** Service with the plans, from `connect`; it samples the rollouts, too. */
  readonly service: Pick<Service, "rolloutPlans" | "chat">;
  /** Environments to play, with a `source`, and with different names. */
  readonly environments: readonly AnyEnvironment[];
  /** Max concurrent rollouts. @default 8 */
  readonly concurrency?: number | undefined;
  /** Name of the worker, for people. @default host name and process id */
  readonly name?: string | undefined;
  /**
   * Broker that assigns rollouts to the worker, such as `bullmq({ connection })` of `whetstone/brokers/bullmq`. Needs a training run whose
   * `workers` are the same broker. @default none: the service assigns rollouts
   */
  readonly broker?: RolloutBroker | undefined;
  /** Plays only this plan; not with `broker`. @default all plans for the environments */
  readonly planId?: string | undefined;
  /**
   * Duration of a lease in seconds, 3 to 3600. The worker extends its leases three times in this period; after a crash, other workers get
   * its rollouts when the leases expire. With a broker, also the duration of its locks. @default 60
   */
  readonly leaseSeconds?: number | undefined;
  /** Ends the worker after so many milliseconds without a task. @default never */
  readonly idleExitMs?: number | undefined;
  /** Milliseconds that rollouts may take after `signal` has aborted; others are then released. @default 30 000 */
  readonly graceMs?: number | undefined;
  /** Stops the worker: it leases no further task. */
  readonly signal?: AbortSignal | undefined;
  /** Called with each event. An error thrown here ends the worker. */
  readonly onEvent?: ((event: WorkerEvent) => void) | undefined;
}

/** Result of {@link runWorker}. */
export interface WorkerResult {
  /** Reason for the end: `signal` aborted, or there was no task for `idleExitMs`. */
  readonly reason: "stopped" | "idle";
  /** Number of delivered rollouts, including failed ones. */
  readonly delivered: number;
  /** Number of delivered rollouts that have failed. */
  readonly failed: number;
  /** Number of rollouts with a dropped outcome. */
  readonly lost: number;
  /** Number of rollouts that were released when the worker stopped. */
  readonly released: number;
}
