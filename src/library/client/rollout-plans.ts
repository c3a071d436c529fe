/** The `rolloutPlans` resource of the client: plans of rollouts, and the leases with which workers play them. */
import { randomUUID } from "node:crypto";
import { z } from "zod";
import {
  createRolloutPlanRequest,
  deleteRolloutPlanResponse,
  extendedLeases,
  finishedRollouts,
  leasedRollout,
  leasedRollouts,
  releasedLeases,
  rolloutOutcome,
  rolloutPlan,
  rolloutPlanList,
  rolloutTask,
  type RolloutOutcome,
  type RolloutPlan as WirePlan,
} from "../../base/schema/index.ts";
import { callCreate, callJson, headersTimeoutFor, type Api, type CallOptions } from "./api.ts";
import { optionsToWire, parseResponse } from "./options.ts";
import { allPages } from "./pages.ts";
import type {
  CreateRolloutPlanOptions,
  ExtendedLeasesInfo,
  ExtendLeasesOptions,
  FinishedRolloutsOptions,
  FinishedRolloutsPage,
  LeasedRolloutsPage,
  LeaseRolloutsOptions,
  ListRolloutPlansOptions,
  RolloutGroupInput,
  RolloutLease,
  RolloutPlanInfo,
  RolloutTaskInfo,
} from "./rollout-plan-types.ts";
import { fromWire, parseFields } from "./wire.ts";

/**
 * The `rolloutPlans` resource (an extension): rollouts that workers on any machine play. `trainRl` with `workers` creates plans, and
 * `runWorker` plays them.
 *
 * @example
 * ```ts
 * const hash = "0".repeat(64); // contentHash(environment) of "whetstone/environment"
 * const plan = await service.rolloutPlans.create({ environment: "sums", environmentHash: hash, policy: policy.id, groupSize: 4, seed: 0 });
 * await service.rolloutPlans.addGroups(plan.id, [{ group: 0, scenario: { a: 1, b: 2 } }]);
 * const { tasks } = await service.rolloutPlans.lease({ worker: "a", environments: [{ name: "sums", hash }], max: 4 });
 * await service.rolloutPlans.extend(tasks, { leaseSeconds: 60 });
 * await service.rolloutPlans.deliver(tasks[0]!, { exception: { type: "Error", message: "not today", traceback: "" } });
 * await service.rolloutPlans.release(tasks.slice(1));
 * const { finished } = await service.rolloutPlans.finished(plan.id, { waitSeconds: 20 });
 * console.log(await service.rolloutPlans.outcome(finished[0]!.id));
 * await service.rolloutPlans.cancel(plan.id);
 * await service.rolloutPlans.delete(plan.id);
 * ```
 */
export interface RolloutPlans {
  /**
   * Creates a plan without groups. Sends an `Idempotency-Key`: a repeated request with the same key returns the same plan.
   *
   * @param options - Environment, policy, settings, signal, time limit and idempotency key.
   * @returns the open plan.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unknown model, or 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  create(options: CreateRolloutPlanOptions): Promise<RolloutPlanInfo>;
  /**
   * Adds groups to a plan, each with a task per rollout. A group that the plan has already is left unchanged.
   *
   * @param planId - ID of the plan.
   * @param groups - Up to 1000 scenarios with different indices, together at most 4 MiB of JSON.
   * @param options - Signal and time limit.
   * @returns the plan with the new number of tasks.
   * @throws HttpError `E_HTTP` for an error status, 409 for a cancelled plan.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  addGroups(planId: string, groups: readonly RolloutGroupInput[], options?: CallOptions): Promise<RolloutPlanInfo>;
  /**
   * Lists plans, fetching all pages.
   *
   * @param options - Model, number, signal and time limit.
   * @returns the plans, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const open = (await service.rolloutPlans.list({ modelId: model.id })).filter(({ status }) => status === "open");
   * ```
   */
  list(options?: ListRolloutPlansOptions): Promise<RolloutPlanInfo[]>;
  /**
   * Returns a plan with its progress.
   *
   * @param planId - ID of the plan.
   * @param options - Signal and time limit.
   * @returns the plan.
   * @throws HttpError `E_HTTP` for an error status, 404 for a plan that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { tasks, finished, failed } = await service.rolloutPlans.get("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d");
   * ```
   */
  get(planId: string, options?: CallOptions): Promise<RolloutPlanInfo>;
  /**
   * Returns a page of finished tasks in the order in which they finished, with the plan.
   *
   * @param planId - ID of the plan.
   * @param options - Position and size of the page, wait, signal and time limit.
   * @returns the tasks and the plan; the `finished` of the last task is the `after` of the next page.
   * @throws HttpError `E_HTTP` for an error status, 404 for a plan that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  finished(planId: string, options?: FinishedRolloutsOptions): Promise<FinishedRolloutsPage>;
  /**
   * Cancels a plan: workers stop its rollouts, and finished tasks keep their outcomes.
   *
   * @param planId - ID of the plan.
   * @param options - Signal and time limit.
   * @returns the cancelled plan.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  cancel(planId: string, options?: CallOptions): Promise<RolloutPlanInfo>;
  /**
   * Deletes a plan with its tasks and outcomes. Workers stop its rollouts.
   *
   * @param planId - ID of the plan.
   * @param options - Signal and time limit.
   * @throws HttpError `E_HTTP` for an error status, 404 for a plan that has expired or was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(planId: string, options?: CallOptions): Promise<void>;
  /**
   * Leases pending tasks for a worker.
   *
   * @param options - Worker, environments, number, duration, wait, signal and time limit.
   * @returns the tasks, none if there was none, and their plans.
   * @throws HttpError `E_HTTP` for an error status, 409 if a client follows a plan for the same environment with another content hash. For a
   *   named rollout 409 if it is finished or its plan is cancelled, and 404 if it does not exist.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  lease(options: LeaseRolloutsOptions): Promise<LeasedRolloutsPage>;
  /**
   * Extends leases, which would otherwise expire.
   *
   * @param leases - Leases, up to 10 000.
   * @param options - Duration from now in seconds, 60 by default; signal and time limit.
   * @returns the IDs of the tasks with extended leases, and of the tasks with lost ones.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  extend(leases: readonly RolloutLease[], options?: ExtendLeasesOptions): Promise<ExtendedLeasesInfo>;
  /**
   * Releases leases, so that other workers get the tasks at once.
   *
   * @param leases - Leases, up to 10 000; lost ones are ignored.
   * @param options - Signal and time limit.
   * @returns the number of released leases.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  release(leases: readonly RolloutLease[], options?: CallOptions): Promise<number>;
  /**
   * Delivers the outcome of a leased task. The outcome is durable when the promise resolves; a repeated delivery has no other effect.
   *
   * @param lease - Lease of the task.
   * @param outcome - Trajectory or exception in the wire's form.
   * @param options - Signal and time limit.
   * @returns the finished task.
   * @throws HttpError `E_HTTP` for an error status: 409 if the lease is lost or the plan is cancelled, 404 if the plan was deleted.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  deliver(lease: RolloutLease, outcome: RolloutOutcome, options?: CallOptions): Promise<RolloutTaskInfo>;
  /**
   * Returns a task of a plan, finished or not.
   *
   * @param taskId - ID of the task.
   * @param options - Signal and time limit.
   * @returns the task.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unknown task.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { status, worker } = await service.rolloutPlans.task("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d");
   * ```
   */
  task(taskId: string, options?: CallOptions): Promise<RolloutTaskInfo>;
  /**
   * Returns the outcome of a finished task.
   *
   * @param taskId - ID of the task.
   * @param options - Signal and time limit.
   * @returns the outcome; `Trajectory.fromJSON` validates its trajectory.
   * @throws HttpError `E_HTTP` for an error status, 404 for an unfinished task.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  outcome(taskId: string, options?: CallOptions): Promise<RolloutOutcome>;
}

const PLANS = "/v1/preview/rollout-plans";
const TASKS = "/v1/preview/rollout-tasks";

/** Outcome whose trajectory, most of the bytes, is left to the caller to validate. */
const outcomeWithUncheckedTrajectory = rolloutOutcome.extend({ trajectory: z.unknown().optional() });

/** Creates the `rolloutPlans` resource of a connection. */
export function rolloutPlansResource(api: Api): RolloutPlans {
  const planRoute = (id: string) => `${PLANS}/${encodeURIComponent(id)}`;
  const taskRoute = (id: string) => `${TASKS}/${encodeURIComponent(id)}`;
  const planOf = (wire: WirePlan): RolloutPlanInfo => fromWire(rolloutPlan, wire);
  const toLeases = (leases: readonly RolloutLease[]) => leases.map(({ id, leaseToken }) => ({ id, lease_token: leaseToken }));
  /** Sends a POST that may be repeated: its effect is the same. */
  const post = (path: string, json: unknown, options: CallOptions & { readonly headersTimeoutMs?: number }) =>
    callJson(api, "POST", path, { ...options, json, retry: "idempotent" });
  return {
    async create({ signal, timeoutMs, idempotencyKey = randomUUID(), ...fields }) {
      const json = optionsToWire(createRolloutPlanRequest, fields);
      // A second plan without tasks does no harm.
      const request = { signal, timeoutMs, json, idempotencyKey, isRepeatable: true };
      return parseFields(rolloutPlan, await callCreate(api, PLANS, request), "rollout plan");
    },
    addGroups: async (id, groups, options = {}) =>
      parseFields(rolloutPlan, await post(`${planRoute(id)}/groups`, { groups }, options), "rollout plan"),
    async list({ modelId, ...options } = {}) {
      const list = { schema: rolloutPlanList, query: { model_id: modelId }, itemsName: "rollout plans" };
      return (await allPages(api, PLANS, list, options)).map(planOf);
    },
    get: async (id, options = {}) => parseFields(rolloutPlan, await callJson(api, "GET", planRoute(id), options), "rollout plan"),
    async finished(id, { after, limit, waitSeconds = 0, ...options } = {}) {
      const query = { after, limit, wait: waitSeconds };
      const path = `${planRoute(id)}/finished`;
      const answer = await callJson(api, "GET", path, { ...options, query, headersTimeoutMs: headersTimeoutFor(waitSeconds) });
      const { plan, data } = parseResponse(finishedRollouts, answer, "list of finished rollouts");
      return { plan: planOf(plan), finished: data.map((task) => fromWire(rolloutTask, task)) };
    },
    cancel: async (id, options = {}) => parseFields(rolloutPlan, await post(`${planRoute(id)}/cancel`, undefined, options), "rollout plan"),
    async delete(id, options = {}) {
      const answer = await callJson(api, "DELETE", planRoute(id), options);
      parseResponse(deleteRolloutPlanResponse, answer, "answer to the deletion of a rollout plan");
    },
    async lease({ worker, environments, planId, rollout, max, leaseSeconds, waitSeconds = 0, ...options }) {
      const json = { worker, environments, plan_id: planId, rollout, max, lease_seconds: leaseSeconds, wait: waitSeconds };
      const headersTimeoutMs = headersTimeoutFor(waitSeconds);
      // Repeatable: if the answer is lost, the leases that it granted expire.
      const answer = await post(`${TASKS}/lease`, json, { ...options, headersTimeoutMs });
      const { data, plans } = parseResponse(leasedRollouts, answer, "list of leased rollouts");
      return { tasks: data.map((task) => fromWire(leasedRollout, task)), plans: plans.map(planOf) };
    },
    extend: async (leases, { leaseSeconds, ...options } = {}) =>
      parseResponse(
        extendedLeases,
        await post(`${TASKS}/heartbeat`, { leases: toLeases(leases), lease_seconds: leaseSeconds }, options),
        "answer to a heartbeat",
      ),
    release: async (leases, options = {}) =>
      parseResponse(releasedLeases, await post(`${TASKS}/release`, { leases: toLeases(leases) }, options), "answer to a release").released,
    async deliver({ id, leaseToken }, outcome, options = {}) {
      const request = { ...options, query: { lease_token: leaseToken }, json: outcome };
      return parseFields(rolloutTask, await callJson(api, "PUT", `${taskRoute(id)}/outcome`, request), "rollout task");
    },
    task: async (id, options = {}) => parseFields(rolloutTask, await callJson(api, "GET", taskRoute(id), options), "rollout task"),
    async outcome(id, options = {}) {
      const answer = await callJson(api, "GET", `${taskRoute(id)}/outcome`, options);
      return parseResponse(outcomeWithUncheckedTrajectory, answer, "outcome of a rollout") as RolloutOutcome;
    },
  };
}
