/** Options and results of the `rolloutPlans` resource; `rollout-plans.ts` has its methods. */
import type {
  CreateRolloutPlanRequest,
  LeasedRollout as WireLeasedRollout,
  RolloutPlan as WirePlan,
  RolloutTask as WireTask,
} from "../../base/schema/index.ts";
import type { CallOptions, CreateOptions } from "./api.ts";
import type { ListOptions } from "./pages.ts";
import type { CamelKeys } from "./wire.ts";

/** Plan of rollouts that workers play: environment, policy and settings, and the progress of its tasks. */
export type RolloutPlanInfo = CamelKeys<WirePlan>;
/** Rollout of a plan, as a unit that a worker leases. */
export type RolloutTaskInfo = CamelKeys<WireTask>;
/** Task that was leased, with its scenario. */
export type LeasedRolloutInfo = CamelKeys<WireLeasedRollout>;
/** Environment, policy and settings of the plan that `rolloutPlans.create` creates. */
export type CreateRolloutPlanOptions = CamelKeys<CreateRolloutPlanRequest> & CreateOptions;

/** Filters and number of the plans that `rolloutPlans.list` returns. */
export interface ListRolloutPlansOptions extends ListOptions {
  /** Only plans for this model. @default all */
  readonly modelId?: string | undefined;
}

/** Group of a plan: a scenario and its index, which determines the seeds of its rollouts. */
export interface RolloutGroupInput {
  /** Index of the scenario. */
  readonly group: number;
  /** Scenario, a JSON value. */
  readonly scenario: unknown;
}

/** Position and size of a page of finished tasks, and long polling. */
export interface FinishedRolloutsOptions extends CallOptions {
  /** `finished` of the last task already received. @default 0 */
  readonly after?: number | undefined;
  /** Tasks per page, 1 to 1000. @default 100 */
  readonly limit?: number | undefined;
  /** Max seconds to wait for a task, 0 to 30. @default 0 */
  readonly waitSeconds?: number | undefined;
}

/** Environment of a worker: only tasks of plans with the same values are leased. */
export interface WorkerEnvironment {
  /** Name of the environment. */
  readonly name: string;
  /** Content hash of the environment; see `contentHash` of `whetstone/environment`. */
  readonly hash: string;
}

/** Finished tasks of a plan, from `rolloutPlans.finished`. */
export interface FinishedRolloutsPage {
  /** The plan, with counts that include at least the listed tasks. */
  readonly plan: RolloutPlanInfo;
  /** Tasks in the order in which they finished. */
  readonly finished: RolloutTaskInfo[];
}

/** Leased tasks, from `rolloutPlans.lease`. */
export interface LeasedRolloutsPage {
  /** Leased tasks with their scenarios; none if there was nothing to lease. */
  readonly tasks: LeasedRolloutInfo[];
  /** Plans of the leased tasks. */
  readonly plans: RolloutPlanInfo[];
}

/** Result of a heartbeat, from `rolloutPlans.extend`. */
export interface ExtendedLeasesInfo {
  /** IDs of the tasks with extended leases. */
  readonly held: readonly string[];
  /** IDs of the tasks with lost leases. */
  readonly lost: readonly string[];
}

/** Duration of the leases that `rolloutPlans.extend` extends, signal and time limit. */
export interface ExtendLeasesOptions extends CallOptions {
  /** Duration of the leases from now, in seconds. @default 60 */
  readonly leaseSeconds?: number | undefined;
}

/** Position of a rollout in its plan. */
export interface RolloutPosition {
  /** Index of the scenario. */
  readonly group: number;
  /** Index of the rollout in its group, from 0. */
  readonly index: number;
}

/** Worker, its environments, and the tasks to lease. */
export interface LeaseRolloutsOptions extends CallOptions {
  /** Name of the worker, for people. */
  readonly worker: string;
  /** Names and content hashes of the environments that the worker plays. */
  readonly environments: readonly WorkerEnvironment[];
  /** Only tasks of this plan. @default all plans */
  readonly planId?: string | undefined;
  /** Only this rollout of the plan; requires `planId`. @default all rollouts */
  readonly rollout?: RolloutPosition | undefined;
  /** Max tasks to lease, 1 to 100. @default 1 */
  readonly max?: number | undefined;
  /** Duration of the leases in seconds, 1 to 3600. @default 60 */
  readonly leaseSeconds?: number | undefined;
  /** Max seconds to wait for a task, 0 to 30. @default 0 */
  readonly waitSeconds?: number | undefined;
}

/** Lease that a worker holds. */
export type RolloutLease = Pick<LeasedRolloutInfo, "id" | "leaseToken">;
