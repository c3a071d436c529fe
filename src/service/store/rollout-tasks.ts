/** Rows of rollout tasks: leases, outcomes and their order. */
import { NotFoundError } from "../../base/errors.ts";
import { lockFreeRows } from "./database.ts";
import type { Store } from "./tables.ts";
import type { RolloutGroupRow, RolloutPlanRow, RolloutTaskRow } from "./team-tables.ts";
import { unrestricted } from "./visibility.ts";

/** Max tasks of one statement. */
export const TASKS_AT_ONCE = 500;

/** Task with the state of its plan. */
export type PlannedTask = RolloutTaskRow & { readonly plan_status: RolloutPlanRow["status"] };

/** Returns a task of a plan that is not deleted. @throws NotFoundError `E_NOT_FOUND` for an unknown task. */
export async function getTask(store: Store, id: string): Promise<PlannedTask> {
  const row = await store
    .selectFrom("rollout_tasks")
    .innerJoin("rollout_plans", "rollout_plans.id", "rollout_tasks.plan_id")
    .selectAll("rollout_tasks")
    .select("rollout_plans.status as plan_status")
    .where("rollout_tasks.id", "=", id.toLowerCase())
    .where("rollout_plans.status", "!=", "deleted")
    .executeTakeFirst();
  if (row !== undefined) return row;
  throw new NotFoundError(`Rollout task '${id}' does not exist, or its plan was deleted`, { param: "task_id" });
}

/** Returns the tasks with these ids, in any order. */
export async function findTasks(store: Store, ids: readonly string[]): Promise<RolloutTaskRow[]> {
  const rows: RolloutTaskRow[] = [];
  for (let start = 0; start < ids.length; start += TASKS_AT_ONCE) {
    const chunk = ids.slice(start, start + TASKS_AT_ONCE);
    rows.push(...(await store.selectFrom("rollout_tasks").selectAll().where("id", "in", chunk).execute()));
  }
  return rows;
}

/** Returns finished tasks of a plan in the order in which they finished, after the `finished_seq` `after`. */
export function finishedTasks(
  store: Store,
  planId: string,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<RolloutTaskRow[]> {
  return store
    .selectFrom("rollout_tasks")
    .selectAll()
    .where("plan_id", "=", planId)
    .where("finished_seq", ">", after)
    .orderBy("finished_seq")
    .limit(limit)
    .execute();
}

/** Position of a rollout in its plan. */
export interface RolloutPlace {
  /** Index of the scenario. */
  readonly group: number;
  /** Index of the rollout in its group. */
  readonly index: number;
}

/** Returns the task of a rollout; undefined if the plan has no such rollout. */
export function taskAt(store: Store, planId: string, { group, index }: RolloutPlace): Promise<RolloutTaskRow | undefined> {
  return store
    .selectFrom("rollout_tasks")
    .selectAll()
    .where("plan_id", "=", planId)
    .where("group_index", "=", group)
    .where("rollout_index", "=", index)
    .executeTakeFirst();
}

/** Worker and its environments, for {@link claimTasks}. */
export interface Claim {
  readonly worker: string;
  readonly environments: readonly { readonly name: string; readonly hash: string }[];
  /** Only plan to lease from; null for all plans. */
  readonly planId: string | null;
  /** Only rollout to lease; null for all rollouts. */
  readonly rollout: RolloutPlace | null;
  /** Max number of tasks. */
  readonly max: number;
  /** Token of all leases of the claim. */
  readonly token: string;
  /** End of the leases, ISO 8601. */
  readonly until: string;
}

/** Task that was claimed, with its scenario as JSON. */
export type ClaimedTask = RolloutTaskRow & Pick<RolloutGroupRow, "scenario">;

/**
 * Leases pending tasks of open plans for the worker's environments, oldest plan first, in the order of the plan. Tasks that another
 * transaction is leasing are skipped. Call in a transaction of `transactLocking`.
 *
 * @returns the leased tasks and their plans.
 */
export async function claimTasks(
  transaction: Store,
  claim: Claim,
): Promise<{ readonly tasks: ClaimedTask[]; readonly plans: RolloutPlanRow[] }> {
  const tasks: ClaimedTask[] = [];
  const plans: RolloutPlanRow[] = [];
  for (const plan of await claimablePlans(transaction, claim)) {
    if (tasks.length >= claim.max) break;
    const claimed = await claimTasksOf(transaction, plan.id, { ...claim, max: claim.max - tasks.length });
    if (claimed.length === 0) continue;
    plans.push(plan);
    tasks.push(...(await withScenarios(transaction, plan.id, claimed)));
  }
  return { tasks, plans };
}

/** Leases pending tasks of one plan, in the order of the plan. */
async function claimTasksOf(transaction: Store, planId: string, { worker, rollout, max, token, until }: Claim): Promise<RolloutTaskRow[]> {
  let pending = transaction
    .selectFrom("rollout_tasks")
    .select("id")
    .where("plan_id", "=", planId)
    .where("state", "=", "pending")
    .orderBy("seq")
    .limit(max);
  if (rollout !== null) pending = pending.where("group_index", "=", rollout.group).where("rollout_index", "=", rollout.index);
  // Not a subquery of the UPDATE, which Postgres may run more than once, so that it would lock more rows than the limit.
  const freeTasks = await lockFreeRows(transaction, pending).execute();
  if (freeTasks.length === 0) return [];
  const ids = freeTasks.map(({ id }) => id);
  const claimed = await transaction
    .updateTable("rollout_tasks")
    .set((eb) => ({ state: "leased" as const, leases: eb("leases", "+", 1), worker, lease_token: token, lease_until: until }))
    .where("id", "in", ids)
    .returningAll()
    .execute();
  return claimed.sort((a, b) => a.seq - b.seq);
}

/** Adds the scenarios of their groups to the tasks of a plan. */
async function withScenarios(transaction: Store, planId: string, tasks: readonly RolloutTaskRow[]): Promise<ClaimedTask[]> {
  const groupIndices = [...new Set(tasks.map((task) => task.group_index))];
  const groups = await transaction
    .selectFrom("rollout_groups")
    .select(["group_index", "scenario"])
    .where("plan_id", "=", planId)
    .where("group_index", "in", groupIndices)
    .execute();
  const scenarios = new Map(groups.map((group) => [group.group_index, group.scenario]));
  return tasks.map((task) => ({ ...task, scenario: scenarios.get(task.group_index) ?? "null" }));
}

/** Returns the open plans with unfinished tasks for these environments, oldest first. */
function claimablePlans(store: Store, { environments, planId }: Pick<Claim, "environments" | "planId">): Promise<RolloutPlanRow[]> {
  let query = store
    .selectFrom("rollout_plans")
    .selectAll()
    .where("status", "=", "open")
    .where((eb) => eb.or(environments.map(({ name, hash }) => eb.and({ environment: name, environment_hash: hash }))))
    .whereRef("finished", "<", "tasks")
    .orderBy("created_at")
    .orderBy("id");
  if (planId !== null) query = query.where("id", "=", planId.toLowerCase());
  return query.execute();
}

/** Returns an open plan with unfinished tasks for an environment of the same name and another hash; undefined without one. */
export function otherVersion(
  store: Store,
  { name, hash }: { readonly name: string; readonly hash: string },
): Promise<RolloutPlanRow | undefined> {
  return store
    .selectFrom("rollout_plans")
    .selectAll()
    .where("status", "=", "open")
    .where("environment", "=", name)
    .where("environment_hash", "!=", hash)
    .whereRef("finished", "<", "tasks")
    .orderBy("created_at", "desc")
    .limit(1)
    .executeTakeFirst();
}

/** A lease that a worker names. */
export interface NamedLease {
  readonly id: string;
  readonly lease_token: string;
}

/** Selects the ids of the open plans. */
function openPlans(store: Store) {
  return store.selectFrom("rollout_plans").select("id").where("status", "=", "open");
}

/** Extends leases of open plans. Call in a transaction. Returns the extended ones. */
export async function extendLeases(transaction: Store, leases: readonly NamedLease[], until: string): Promise<NamedLease[]> {
  const extended = await transaction
    .updateTable("rollout_tasks")
    // An expired lease that no other worker has taken is renewed.
    .set({ state: "leased", lease_until: until })
    .where("id", "in", await namedTasks(transaction, leases))
    .where("state", "in", ["leased", "pending"])
    .where("plan_id", "in", openPlans(transaction))
    .returning(["id", "lease_token"])
    .execute();
  return extended.map(({ id, lease_token: token }) => ({ id, lease_token: token ?? "" }));
}

/** Releases leases, which then do not count. Call in a transaction. Returns the number of released ones. */
export async function releaseLeases(transaction: Store, leases: readonly NamedLease[]): Promise<number> {
  const released = await transaction
    .updateTable("rollout_tasks")
    .set((eb) => ({ state: "pending" as const, leases: eb("leases", "-", 1), lease_token: null, lease_until: null }))
    .where("id", "in", await namedTasks(transaction, leases))
    .where("state", "=", "leased")
    .returning("id")
    .execute();
  return released.length;
}

/** Returns the ids of the tasks that have the token of the lease which names them. */
async function namedTasks(transaction: Store, leases: readonly NamedLease[]): Promise<string[]> {
  const tokens = new Map(leases.map(({ id, lease_token: token }) => [id.toLowerCase(), token.toLowerCase()]));
  const rows = await transaction
    .selectFrom("rollout_tasks")
    .select(["id", "lease_token"])
    .where("id", "in", [...tokens.keys()])
    .execute();
  return rows.flatMap(({ id, lease_token: token }) => (token !== null && token === tokens.get(id) ? [id] : []));
}

/** Expired leases that {@link expireLeases} has ended. */
export interface ExpiredLeases {
  /** Tasks that can be leased again. */
  readonly requeued: number;
  /** Tasks that have failed, because they had all their leases. */
  readonly failed: number;
}

/** Ends leases that have expired, at most {@link TASKS_AT_ONCE}. Call in a transaction. */
export async function expireLeases(transaction: Store, now: string): Promise<ExpiredLeases> {
  const expired = await transaction
    .selectFrom("rollout_tasks")
    .innerJoin("rollout_plans", "rollout_plans.id", "rollout_tasks.plan_id")
    .select(["rollout_tasks.id", "rollout_tasks.plan_id", "leases", "worker", "lease_token", "max_leases"])
    .where("state", "=", "leased")
    .where("lease_until", "<=", now)
    .limit(TASKS_AT_ONCE)
    .execute();
  const hadAllLeases = ({ leases, max_leases: max }: (typeof expired)[number]) => leases >= max;
  const requeued = expired.filter((task) => !hadAllLeases(task)).map(({ id }) => id);
  if (requeued.length > 0) {
    await transaction
      .updateTable("rollout_tasks")
      .set({ state: "pending", lease_until: null })
      .where("id", "in", requeued)
      .where("state", "=", "leased")
      .where("lease_until", "<=", now)
      .execute();
  }
  let failed = 0;
  for (const task of expired.filter(hadAllLeases).toSorted(byPlan)) {
    const message = `${task.leases} workers leased the rollout and none delivered it; the last was ${task.worker ?? "unknown"}`;
    const end = { state: "failed", error_message: message, outcome_sha256: null, outcome_bytes: null } as const;
    const finished = await finishTask(transaction, { id: task.id, lease_token: task.lease_token ?? "" }, end);
    if (finished !== null) failed++;
  }
  return { requeued: requeued.length, failed };
}

/** Orders tasks by plan, so that all transactions lock plans in the same order. */
export function byPlan(a: { readonly plan_id: string }, b: { readonly plan_id: string }): number {
  if (a.plan_id === b.plan_id) return 0;
  return a.plan_id < b.plan_id ? -1 : 1;
}

/** Columns of a finished task. */
export type TaskEnd = Pick<RolloutTaskRow, "error_message" | "outcome_sha256" | "outcome_bytes"> & { readonly state: "done" | "failed" };

/**
 * Finishes a task of an open plan that no other worker has leased since. Call in a transaction.
 *
 * @returns the finished task; null if the lease is lost, the task is finished, or the plan is not open.
 */
export async function finishTask(transaction: Store, { id, lease_token: token }: NamedLease, end: TaskEnd): Promise<RolloutTaskRow | null> {
  const task = await transaction
    .updateTable("rollout_tasks")
    .set({ ...end, lease_until: null })
    .where("id", "=", id)
    .where("lease_token", "=", token)
    .where("state", "in", ["leased", "pending"])
    .where("plan_id", "in", openPlans(transaction))
    .returningAll()
    .executeTakeFirst();
  if (task === undefined) return null;
  // Locks the plan's row until the transaction ends, so that readers see positions without gaps.
  const { finished } = await transaction
    .updateTable("rollout_plans")
    .set((eb) => ({
      finished: eb("finished", "+", 1),
      failed: eb("failed", "+", end.state === "failed" ? 1 : 0),
      outcome_bytes: eb("outcome_bytes", "+", end.outcome_bytes ?? 0),
    }))
    .where("id", "=", task.plan_id)
    .returning("finished")
    .executeTakeFirstOrThrow();
  await transaction.updateTable("rollout_tasks").set({ finished_seq: finished }).where("id", "=", task.id).execute();
  return { ...task, finished_seq: finished };
}

/** Whether a task of an open plan can be leased. */
export async function hasPendingTasks(store: Store): Promise<boolean> {
  const row = await store
    .selectFrom("rollout_plans")
    .innerJoin("rollout_tasks", "rollout_tasks.plan_id", "rollout_plans.id")
    .select("rollout_tasks.id")
    .where("status", "=", "open")
    .where("state", "=", "pending")
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Whether any task is leased. */
export async function hasLeases(store: Store): Promise<boolean> {
  return (await store.selectFrom("rollout_tasks").select("id").where("state", "=", "leased").limit(1).executeTakeFirst()) !== undefined;
}

/** Whether the outcome of any task, of any entity, has the content with this digest. */
export async function hasOutcome(store: Store, sha256: string): Promise<boolean> {
  const row = await unrestricted(store)
    .selectFrom("rollout_tasks")
    .select("id")
    .where("outcome_sha256", "=", sha256)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}
