/** Routes of rollout plans, and of the tasks that workers lease. */
import { transact } from "../store/database.ts";
import { ArgumentError } from "../../base/errors.ts";
import {
  addRolloutGroupsRequest,
  createRolloutPlanRequest,
  deleteRolloutPlanResponse,
  deliverRolloutQuery,
  extendedLeases,
  extendLeasesRequest,
  finishedRollouts,
  finishedRolloutsQuery,
  leasedRollouts,
  leaseRolloutsRequest,
  releasedLeases,
  releaseLeasesRequest,
  rolloutOutcome,
  rolloutPlan,
  rolloutPlanList,
  rolloutPlanQuery,
  rolloutTask,
  type DeleteRolloutPlanResponse,
  type ExtendedLeases,
  type FinishedRollouts,
  type FinishedRolloutsQuery,
  type LeasedRollouts,
  type ReleasedLeases,
  type RolloutOutcome,
  type RolloutPlan,
  type RolloutPlanList,
  type RolloutTask,
} from "../../base/schema/index.ts";
import { readBytes, readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import { createOnce } from "../http/idempotency.ts";
import { webStream } from "../http/web-stream.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { deliverOutcome, openOutcome } from "../rollout-tasks/outcomes.ts";
import { addPlanGroups, newPlan } from "../rollout-tasks/plans.ts";
import { planToWire, taskToWire } from "../rollout-tasks/wire.ts";
import { forgetAnswer } from "../store/idempotency-keys.ts";
import { pageBody } from "../store/paging.ts";
import { getPlan, insertPlan, pageOfPlans, setPlanStatus } from "../store/rollout-plans.ts";
import { finishedTasks, getTask } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";
import type { RolloutPlanRow } from "../store/team-tables.ts";
import type { RouteContext, ServiceContext } from "./context.ts";

const PLANS = "/v1/preview/rollout-plans";
const PLAN = `${PLANS}/{plan_id}`;
const TASKS = "/v1/preview/rollout-tasks";
const OUTCOME = `${TASKS}/{task_id}/outcome`;
const common = { tag: "Rollouts", isExtension: true } as const;

/** Creates the routes of rollout plans and tasks. All are extensions of the interface. */
export function rolloutRoutes(context: RouteContext): Route[] {
  return [...planRoutes(context), ...taskRoutes(context)];
}

/** Creates the routes of plans: create, add groups, list, follow, cancel, delete. */
function planRoutes(context: RouteContext): Route[] {
  const { space, work, limits, rollouts } = context;
  const storeOf = (c: ServiceRequest) => context.of(c).store;
  const idOf = (c: ServiceRequest) => pathParameter(c, "plan_id");
  return [
    {
      ...common,
      method: "POST",
      path: PLANS,
      id: "createRolloutPlan",
      access: ["train"],
      summary: "Create a plan of rollouts without groups",
      description: "Workers with the environment of the plan lease its tasks.",
      isIdempotent: true,
      body: createRolloutPlanRequest,
      answer: rolloutPlan,
      errors: [404, 409],
      handle: async (c) => {
        const { value, digest } = await readJson(c, "rolloutPlan", work.bodies);
        const store = storeOf(c);
        const prepare = async () => {
          await space.requireSpace();
          const row = await newPlan(store, value);
          const commit = async (transaction: Store) => {
            await insertPlan(transaction, row);
            return planToWire(row);
          };
          return { commit };
        };
        return createOnce(c, store, { digest, prepare });
      },
    },
    {
      ...common,
      method: "GET",
      path: PLANS,
      id: "listRolloutPlans",
      access: ["train", "read"],
      summary: "List plans, newest first",
      query: rolloutPlanQuery,
      answer: rolloutPlanList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfPlans(storeOf(c), readQuery(c, rolloutPlanQuery));
        return c.json(pageBody(rows.map(planToWire), hasMore) satisfies RolloutPlanList);
      },
    },
    {
      ...common,
      method: "GET",
      path: PLAN,
      id: "getRolloutPlan",
      access: ["train", "read"],
      summary: "Read a plan with its progress",
      answer: rolloutPlan,
      handle: async (c) => c.json(planToWire(await getPlan(storeOf(c), idOf(c))) satisfies RolloutPlan),
    },
    {
      ...common,
      method: "POST",
      path: `${PLAN}/groups`,
      id: "addRolloutGroups",
      access: ["train"],
      summary: "Add groups to a plan",
      description: "Each group gets a task per rollout. Adding a group again has no effect.",
      body: addRolloutGroupsRequest,
      answer: rolloutPlan,
      errors: [409],
      handle: async (c) => {
        const { value } = await readJson(c, "rolloutGroups", work.bodies);
        await space.requireSpace();
        const plan = await addPlanGroups(storeOf(c), idOf(c), value, limits);
        rollouts.leases.changes.notify();
        return c.json(planToWire(plan) satisfies RolloutPlan);
      },
    },
    {
      ...common,
      method: "GET",
      path: `${PLAN}/finished`,
      id: "listFinishedRollouts",
      access: ["train", "read"],
      summary: "List the finished tasks of a plan, in the order in which they finished",
      description: "With `wait`, the answer is delayed until a further task is finished, the plan is cancelled, or all tasks are listed.",
      query: finishedRolloutsQuery,
      answer: finishedRollouts,
      handle: async (c) => {
        const query = readQuery(c, finishedRolloutsQuery);
        return c.json(await finishedOf(context.of(c), idOf(c), { ...query, signal: c.req.raw.signal }));
      },
    },
    {
      ...common,
      method: "POST",
      path: `${PLAN}/cancel`,
      id: "cancelRolloutPlan",
      access: ["train"],
      summary: "Cancel a plan",
      description: "Finished tasks keep their outcomes. Workers stop the others at their next heartbeat. Cancelling again has no effect.",
      answer: rolloutPlan,
      handle: async (c) => {
        const plan = await getPlan(storeOf(c), idOf(c));
        await setPlanStatus(storeOf(c), plan.id, "cancelled");
        rollouts.leases.changes.notify();
        return c.json(planToWire({ ...plan, status: "cancelled" }) satisfies RolloutPlan);
      },
    },
    {
      ...common,
      method: "DELETE",
      path: PLAN,
      id: "deleteRolloutPlan",
      access: ["train"],
      summary: "Delete a plan with its tasks and outcomes",
      description: "Jobs that were created from its outcomes keep their own copy.",
      answer: deleteRolloutPlanResponse,
      handle: async (c) => c.json(await deletePlan(context.of(c), idOf(c))),
    },
  ];
}

/** Creates the routes of tasks: lease, extend, release, deliver, read. */
function taskRoutes(context: RouteContext): Route[] {
  const { work, rollouts, files } = context;
  const storeOf = (c: ServiceRequest) => context.of(c).store;
  const idOf = (c: ServiceRequest) => pathParameter(c, "task_id");
  return [
    {
      ...common,
      method: "POST",
      path: `${TASKS}/lease`,
      id: "leaseRollouts",
      access: ["train", "sample"],
      summary: "Lease tasks to play",
      description:
        "Oldest plan first. If there is no task, and a client follows a plan for the same environment with another content hash: 409. A rollout that `rollout` names is answered 409 if it is finished or its plan is cancelled, and 404 if it does not exist.",
      body: leaseRolloutsRequest,
      answer: leasedRollouts,
      errors: [404, 409],
      handle: async (c) => {
        const { value } = await readJson(c, "rolloutLease", work.bodies);
        return c.json((await rollouts.leases.lease(storeOf(c), value, c.req.raw.signal)) satisfies LeasedRollouts);
      },
    },
    {
      ...common,
      method: "POST",
      path: `${TASKS}/heartbeat`,
      id: "extendRolloutLeases",
      access: ["train", "sample"],
      summary: "Extend leases",
      body: extendLeasesRequest,
      answer: extendedLeases,
      handle: async (c) => {
        const { value } = await readJson(c, "rolloutHeartbeat", work.bodies);
        return c.json((await rollouts.leases.extend(storeOf(c), value)) satisfies ExtendedLeases);
      },
    },
    {
      ...common,
      method: "POST",
      path: `${TASKS}/release`,
      id: "releaseRolloutLeases",
      access: ["train", "sample"],
      summary: "Release leases",
      body: releaseLeasesRequest,
      answer: releasedLeases,
      handle: async (c) => {
        const { value } = await readJson(c, "rolloutRelease", work.bodies);
        return c.json({ released: await rollouts.leases.release(storeOf(c), value) } satisfies ReleasedLeases);
      },
    },
    {
      ...common,
      method: "GET",
      path: `${TASKS}/{task_id}`,
      id: "getRolloutTask",
      access: ["train", "sample", "read"],
      summary: "Read a task",
      answer: rolloutTask,
      handle: async (c) => {
        const task = await getTask(storeOf(c), idOf(c));
        return c.json(taskToWire(task, task.plan_status) satisfies RolloutTask);
      },
    },
    {
      ...common,
      method: "PUT",
      path: OUTCOME,
      id: "deliverRollout",
      access: ["train", "sample"],
      summary: "Deliver the outcome of a task",
      description:
        "The outcome is durable when the answer arrives, and the same delivery again has the same answer. A lease that another worker has taken over is answered 409.",
      query: deliverRolloutQuery,
      body: rolloutOutcome,
      answer: rolloutTask,
      errors: [409],
      handle: async (c) => {
        const { lease_token: token } = readQuery(c, deliverRolloutQuery);
        if (token === undefined)
          throw new ArgumentError("Expected the query parameter `lease_token`, got none. Send the token of the lease", {
            param: "lease_token",
          });
        const parts = { ...context.of(c), data: work.data, writer: rollouts.writer };
        const task = await deliverOutcome(parts, idOf(c), { token, bytes: await readBytes(c) });
        rollouts.leases.changes.notify();
        return c.json(task satisfies RolloutTask);
      },
    },
    {
      ...common,
      method: "GET",
      path: OUTCOME,
      id: "getRolloutOutcome",
      access: ["train", "read"],
      summary: "Read the outcome of a finished task",
      answer: rolloutOutcome,
      handle: async (c) => {
        const task = await getTask(storeOf(c), idOf(c));
        const outcome = await openOutcome(files, task);
        if (!("pipe" in outcome)) return c.json(outcome satisfies RolloutOutcome);
        // A large outcome is streamed from its file.
        const headers = { "Content-Type": "application/json", "Content-Length": String(task.outcome_bytes) };
        return new Response(webStream(outcome), { headers });
      },
    },
  ];
}

/** Returns finished tasks. Without one after `after`, waits up to `wait` seconds for one, or for the end of the plan. */
async function finishedOf(
  { store, rollouts: { leases } }: ServiceContext,
  planId: string,
  { after, limit, wait, signal }: FinishedRolloutsQuery & { readonly signal: AbortSignal },
): Promise<FinishedRollouts> {
  const endsAtMs = performance.now() + wait * 1000;
  for (;;) {
    // Read before the tasks, so that a change after the query ends the wait at once.
    const { revision } = leases.changes;
    const tasks = await finishedTasks(store, planId.toLowerCase(), { after, limit });
    // Read after the tasks, so that its counts include them.
    const plan = await getPlan(store, planId);
    leases.follow(plan.id);
    const remainingMs = endsAtMs - performance.now();
    const isOver = plan.status !== "open" || after >= plan.tasks;
    if (tasks.length > 0 || isOver || remainingMs <= 0 || signal.aborted || leases.isClosing)
      return { plan: planToWire(plan), data: tasks.map((task) => taskToWire(task, plan.status)) };
    await leases.waitForChange(revision, { timeoutMs: remainingMs, signal });
  }
}

/** Marks a plan as deleted. Its rows and outcomes are removed in the background. */
async function deletePlan({ store, rollouts, space }: ServiceContext, id: string): Promise<DeleteRolloutPlanResponse> {
  const plan: RolloutPlanRow = await getPlan(store, id);
  const change = async (transaction: Store) => {
    await setPlanStatus(transaction, plan.id, "deleted");
    // Repeating the creation with the same idempotency key must create a new plan.
    await forgetAnswer(transaction, PLANS, plan.id);
  };
  await space.freeing(() => transact(store, change));
  rollouts.leases.changes.notify();
  rollouts.cleanup.wake();
  return { plan_id: plan.id, deleted_tasks: plan.tasks };
}
