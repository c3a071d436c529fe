/**
 * Schemas of rollout plans and their tasks: a trainer creates a plan and adds groups, workers lease the tasks, extend the leases and
 * deliver outcomes, and the trainer reads finished tasks. All routes and fields are extensions of the interface that the service
 * implements.
 */

import { z } from "zod";
import { jsonObject, jsonValue, listOf, newestFirstQuery, uuid } from "./common.ts";
import { rolloutException, trajectory } from "./trajectory.ts";

/** A SHA-256 digest, hexadecimal. */
const sha256 = z.string().regex(/^[0-9a-f]{64}$/u, "must be 64 hexadecimal digits");
/** Value of a label. */
const scalar = z.union([z.number(), z.string(), z.boolean(), z.null()]);

/** Fields of a plan that its creator sets. */
const settings = {
  /** Name of the environment that plays the rollouts. */
  environment: z.string().min(1),
  /** Content hash of the environment, SHA-256, hexadecimal. Only workers with the same name and hash get tasks of the plan. */
  environment_hash: sha256,
  /** Model in the chat requests of the rollouts: the name of a checkpoint, or a base model. */
  policy: z.string().min(1),
  /** Rollouts per scenario. */
  group_size: z.int().min(1).max(4096),
  /** Seed from which the seeds of the rollouts are derived. */
  seed: z.int(),
};

/** Schema of {@link CreateRolloutPlanRequest}. */
export const createRolloutPlanRequest = z.strictObject({
  ...settings,
  /** UUID of the model that the rollouts are for; the plan gets the model's entity. @default null, none */
  model_id: uuid.nullish(),
  /** Step of the sampled checkpoint. @default null, for a base model */
  policy_step: z.int().min(0).nullish(),
  /** Sampling temperature of the rollouts. @default 1 */
  temperature: z.number().min(0).nullish(),
  /** Variables of the chat template. @default null, none */
  chat_template_kwargs: jsonObject.nullish(),
  /** Timeout of one attempt of a rollout in milliseconds. @default null, no limit */
  timeout_ms: z.number().positive().max(2_147_483_647).nullish(),
  /** Max retries of a rollout that failed with a transient error. @default 0 */
  retries: z.int().min(0).max(1000).nullish(),
  /** Max replacements, with other seeds, of a rollout that failed after its retries. @default 0 */
  replacements: z.int().min(0).max(1000).nullish(),
  /** Whether a rollout that reaches its timeout is scored instead of failing. @default false */
  score_timeouts: z.boolean().nullish(),
  /** Max leases of a task. A task fails when its last lease expires. @default 5 */
  max_leases: z.int().min(1).max(1000).nullish(),
  /** Seconds after the creation at which the plan is deleted with its tasks and outcomes. @default 604800 */
  expires_in_seconds: z.number().min(1).max(31_536_000).nullish(),
  /** Labels of the plan by name. @default {} */
  metadata: z.record(z.string(), scalar).nullish(),
});
/** Body of `POST /v1/preview/rollout-plans`. Extension. @interface */
export type CreateRolloutPlanRequest = z.infer<typeof createRolloutPlanRequest>;

/** Schema of {@link RolloutPlan}. */
export const rolloutPlan = z.object({
  /** UUID that addresses the plan in its routes. */
  id: uuid,
  /** Owner of the plan: the entity of its model. */
  entity: z.string(),
  ...settings,
  /** UUID of the model that the rollouts are for; null for none. */
  model_id: uuid.nullable(),
  /** Step of the sampled checkpoint; null for a base model. */
  policy_step: z.int().nullable(),
  /** Sampling temperature of the rollouts. */
  temperature: z.number(),
  /** Variables of the chat template; null for none. */
  chat_template_kwargs: jsonObject.nullable(),
  /** Timeout of one attempt of a rollout in milliseconds; null for no limit. */
  timeout_ms: z.number().nullable(),
  /** Max retries of a rollout that failed with a transient error. */
  retries: z.int(),
  /** Max replacements of a rollout that failed after its retries. */
  replacements: z.int(),
  /** Whether a rollout that reaches its timeout is scored instead of failing. */
  score_timeouts: z.boolean(),
  /** Max leases of a task. */
  max_leases: z.int(),
  /** Labels of the plan by name. */
  metadata: z.record(z.string(), scalar),
  /** `open`, or `cancelled`: no further task is leased, and no outcome is accepted. */
  status: z.literal(["open", "cancelled"]),
  /** Number of tasks: the rollouts of all added groups. */
  tasks: z.int(),
  /** Number of finished tasks, including failed ones. */
  finished: z.int(),
  /** Number of failed tasks. */
  failed: z.int(),
  /** Size of all outcomes in bytes. */
  outcome_bytes: z.int(),
  /** Creation time, ISO 8601. */
  created_at: z.string(),
  /** Time at which the plan is deleted, ISO 8601. */
  expires_at: z.string(),
});
/** Plan of rollouts that workers play: environment, policy and settings, and the progress of its tasks. Extension. @interface */
export type RolloutPlan = z.infer<typeof rolloutPlan>;

/** Schema of {@link RolloutPlanQuery}. */
export const rolloutPlanQuery = newestFirstQuery.extend({
  /** Only plans for this model. */
  model_id: uuid.optional(),
});
/** Query parameters of `GET /v1/preview/rollout-plans`. Extension. @interface */
export type RolloutPlanQuery = z.infer<typeof rolloutPlanQuery>;

/** Schema of {@link RolloutPlanList}. */
export const rolloutPlanList = listOf(rolloutPlan);
/** Answer of `GET /v1/preview/rollout-plans`: a page of plans, newest first. Extension. @interface */
export type RolloutPlanList = z.infer<typeof rolloutPlanList>;

/** Schema of {@link AddRolloutGroupsRequest}. */
export const addRolloutGroupsRequest = z.strictObject({
  /** Groups to add; the plan gets `group_size` tasks for each. A group that the plan has already is left unchanged. */
  groups: z
    .array(
      z.strictObject({
        /** Index of the scenario, which determines the seeds of the group. */
        group: z.int().min(0),
        /** Scenario of the environment. */
        scenario: jsonValue,
      }),
    )
    .min(1),
});
/** Body of `POST /v1/preview/rollout-plans/{plan_id}/groups`. Extension. @interface */
export type AddRolloutGroupsRequest = z.infer<typeof addRolloutGroupsRequest>;

/** Schema of {@link RolloutTask}. */
export const rolloutTask = z.object({
  /** UUID that addresses the task in its routes; `stored_rollout` of RL jobs. */
  id: uuid,
  /** UUID of the plan. */
  plan_id: uuid,
  /** Index of the scenario. */
  group: z.int(),
  /** Index of the rollout in its group, from 0. */
  index: z.int(),
  /** `done` has a trajectory as its outcome, `failed` an exception. Tasks of a cancelled plan that are not finished are `cancelled`. */
  status: z.literal(["pending", "leased", "done", "failed", "cancelled"]),
  /** Number of leases so far, without released ones. */
  leases: z.int(),
  /** Name of the worker that has, or last had, the lease; null before the first. */
  worker: z.string().nullable(),
  /** End of the lease unless it is extended, ISO 8601; null without a lease. */
  lease_expires_at: z.string().nullable(),
  /** Position in the order in which the plan's tasks finished, from 1; null for an unfinished task. */
  finished: z.int().nullable(),
  /** Size of the outcome in bytes; null without one. */
  outcome_bytes: z.int().nullable(),
});
/** Rollout of a plan, as a unit that a worker leases. Extension. @interface */
export type RolloutTask = z.infer<typeof rolloutTask>;

/** Schema of {@link FinishedRolloutsQuery}. */
export const finishedRolloutsQuery = z.strictObject({
  /** `finished` of the last task already received. @default 0 */
  after: z.coerce.number().int().min(0).default(0),
  /** Tasks per page, 1 to 1000. @default 100 */
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** Max seconds to wait for a task (long polling), 0 to 30. @default 0 */
  wait: z.coerce.number().min(0).max(30).default(0),
});
/** Query parameters of `GET /v1/preview/rollout-plans/{plan_id}/finished`. Extension. @interface */
export type FinishedRolloutsQuery = z.infer<typeof finishedRolloutsQuery>;

/** Schema of {@link FinishedRollouts}. */
export const finishedRollouts = z.object({
  /** The plan, with counts that include at least the listed tasks. */
  plan: rolloutPlan,
  /** Finished tasks in the order in which they finished. */
  data: z.array(rolloutTask),
});
/** Answer of `GET /v1/preview/rollout-plans/{plan_id}/finished`. Extension. @interface */
export type FinishedRollouts = z.infer<typeof finishedRollouts>;

/** Schema of {@link LeaseRolloutsRequest}. */
export const leaseRolloutsRequest = z.strictObject({
  /** Name of the worker, for people. */
  worker: z.string().min(1),
  /** Environments that the worker plays. */
  environments: z
    .array(
      z.strictObject({
        /** Name of the environment. */
        name: z.string().min(1),
        /** Content hash of the environment. */
        hash: sha256,
      }),
    )
    .min(1),
  /** Only tasks of this plan. @default null, all plans */
  plan_id: uuid.nullish(),
  /** Only this rollout of the plan; requires `plan_id`. @default null, all rollouts */
  rollout: z
    .strictObject({
      /** Index of the scenario. */
      group: z.int().min(0),
      /** Index of the rollout in its group, from 0. */
      index: z.int().min(0),
    })
    .nullish(),
  /** Max tasks to lease. @default 1 */
  max: z.int().min(1).max(100).nullish(),
  /** Duration of the leases in seconds. @default 60 */
  lease_seconds: z.number().min(1).max(3600).nullish(),
  /** Max seconds to wait for a task (long polling). @default 0 */
  wait: z.number().min(0).max(30).nullish(),
});
/** Body of `POST /v1/preview/rollout-tasks/lease`. Extension. @interface */
export type LeaseRolloutsRequest = z.infer<typeof leaseRolloutsRequest>;

/** Schema of {@link LeasedRollout}. */
export const leasedRollout = z.object({
  /** UUID of the task. */
  id: uuid,
  /** UUID of the plan. */
  plan_id: uuid,
  /** Token of the lease, which heartbeats, releases and the delivery name. A later lease of the task has another one. */
  lease_token: uuid,
  /** Index of the scenario. */
  group: z.int(),
  /** Index of the rollout in its group, from 0. */
  index: z.int(),
  /** Scenario that the worker plays. */
  scenario: jsonValue,
});
/** Task that was leased, with its scenario. Extension. @interface */
export type LeasedRollout = z.infer<typeof leasedRollout>;

/** Schema of {@link LeasedRollouts}. */
export const leasedRollouts = z.object({
  /** Leased tasks; empty if there was none. */
  data: z.array(leasedRollout),
  /** Plans of the leased tasks. */
  plans: z.array(rolloutPlan),
});
/** Answer of `POST /v1/preview/rollout-tasks/lease`. Extension. @interface */
export type LeasedRollouts = z.infer<typeof leasedRollouts>;

/** Leases that a worker holds. */
const heldLeases = z.array(
  z.strictObject({
    /** UUID of the task. */
    id: uuid,
    /** Token that the worker got with the lease. */
    lease_token: uuid,
  }),
);

/** Schema of {@link ExtendLeasesRequest}. */
export const extendLeasesRequest = z.strictObject({
  /** Leases that do not end yet. */
  leases: heldLeases,
  /** Duration of the leases from now, in seconds. @default 60 */
  lease_seconds: z.number().min(1).max(3600).nullish(),
});
/** Body of `POST /v1/preview/rollout-tasks/heartbeat`. Extension. @interface */
export type ExtendLeasesRequest = z.infer<typeof extendLeasesRequest>;

/** Schema of {@link ExtendedLeases}. */
export const extendedLeases = z.object({
  /** UUIDs of the tasks with extended leases. */
  held: z.array(uuid),
  /** UUIDs of the tasks with lost leases: expired and leased again, or the plan was cancelled or deleted. */
  lost: z.array(uuid),
});
/** Answer of `POST /v1/preview/rollout-tasks/heartbeat`. Extension. @interface */
export type ExtendedLeases = z.infer<typeof extendedLeases>;

/** Schema of {@link ReleaseLeasesRequest}. */
export const releaseLeasesRequest = z.strictObject({
  /** Leases to end. Their tasks can be leased again at once. */
  leases: heldLeases,
});
/** Body of `POST /v1/preview/rollout-tasks/release`. Extension. @interface */
export type ReleaseLeasesRequest = z.infer<typeof releaseLeasesRequest>;

/** Schema of {@link ReleasedLeases}. */
export const releasedLeases = z.object({
  /** Number of released leases. */
  released: z.int(),
});
/** Answer of `POST /v1/preview/rollout-tasks/release`. Extension. @interface */
export type ReleasedLeases = z.infer<typeof releasedLeases>;

/** Schema of {@link DeliverRolloutQuery}. */
export const deliverRolloutQuery = z.strictObject({
  /** Token that the worker got with the lease. */
  lease_token: uuid.optional(),
});
/** Query parameters of `PUT /v1/preview/rollout-tasks/{task_id}/outcome`; `lease_token` is required. Extension. @interface */
export type DeliverRolloutQuery = z.infer<typeof deliverRolloutQuery>;

/** Schema of {@link RolloutOutcome}. */
export const rolloutOutcome = z.strictObject({
  /** Finished rollout. Excludes `exception`. */
  trajectory: trajectory.nullish(),
  /** Failure of the rollout after its retries and replacements. Excludes `trajectory`. */
  exception: rolloutException.nullish(),
  /** Failures of replaced rollouts, oldest first. @default [] */
  replaced: z.array(rolloutException).nullish(),
  /** Number of the last attempt, from 0. @default 0 */
  attempt: z.int().min(0).nullish(),
});
/** Result of a rollout: its trajectory or its failure. Body and answer of the route `…/outcome`. Extension. @interface */
export type RolloutOutcome = z.infer<typeof rolloutOutcome>;

/** Schema of {@link DeleteRolloutPlanResponse}. */
export const deleteRolloutPlanResponse = z.object({
  /** UUID of the deleted plan. */
  plan_id: uuid,
  /** Number of tasks deleted with the plan. */
  deleted_tasks: z.int(),
});
/** Answer of `DELETE /v1/preview/rollout-plans/{plan_id}`. Extension. @interface */
export type DeleteRolloutPlanResponse = z.infer<typeof deleteRolloutPlanResponse>;

/** Schema of {@link StoredRollout}. */
export const storedRollout = z.strictObject({
  /** UUID of a rollout task that is `done`. */
  stored_rollout: uuid,
  /** Reward instead of the stored one. */
  reward: z.number().optional(),
  /** Metrics instead of the stored ones. */
  metrics: z.record(z.string(), z.union([z.number(), z.boolean()])).optional(),
  /** Labels instead of the stored ones. */
  metadata: z.record(z.string(), scalar).optional(),
  /** Lines of text instead of the stored ones. */
  logs: z.array(z.string()).optional(),
});
/** Trajectory of an RL job that the service has stored as the outcome of a rollout task. Extension. @interface */
export type StoredRollout = z.infer<typeof storedRollout>;
