/** Rows of rollout plans and their groups; `rollout-tasks.ts` has the tasks. */
import { transact } from "./database.ts";
import { randomUUID } from "node:crypto";
import { NotFoundError } from "../../base/errors.ts";
import type { RolloutPlanQuery } from "../../base/schema/index.ts";
import { isAfter, pageOf, requireCursor, type RowPage } from "./paging.ts";
import type { Store } from "./tables.ts";
import type { RolloutGroupRow, RolloutPlanRow, RolloutTaskRow } from "./team-tables.ts";

/** Max rows of one statement; SQLite and Postgres limit the number of parameters. */
const ROWS_AT_ONCE = 500;

/** Inserts a plan. */
export async function insertPlan(store: Store, row: RolloutPlanRow): Promise<void> {
  await store.insertInto("rollout_plans").values(row).execute();
}

/** Returns a plan. @throws NotFoundError `E_NOT_FOUND` if it does not exist, or was deleted. */
export async function getPlan(store: Store, id: string): Promise<RolloutPlanRow> {
  const row = await store
    .selectFrom("rollout_plans")
    .selectAll()
    .where("id", "=", id.toLowerCase())
    .where("status", "!=", "deleted")
    .executeTakeFirst();
  if (row !== undefined) return row;
  throw new NotFoundError(`Rollout plan '${id}' does not exist, or was deleted. Create one with POST /v1/preview/rollout-plans`, {
    param: "plan_id",
  });
}

/** Returns a page of plans, newest first. @throws ArgumentError `E_ARGUMENT` if `after` is not a plan. */
export async function pageOfPlans(store: Store, { after, limit, model_id: modelId }: RolloutPlanQuery): Promise<RowPage<RolloutPlanRow>> {
  let query = store
    .selectFrom("rollout_plans")
    .selectAll()
    .where("status", "!=", "deleted")
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(limit + 1);
  if (modelId !== undefined) query = query.where("model_id", "=", modelId.toLowerCase());
  if (after !== undefined) {
    const row = await store.selectFrom("rollout_plans").selectAll().where("id", "=", after.toLowerCase()).executeTakeFirst();
    query = query.where(isAfter("rollout_plans", requireCursor(row, after, "a rollout plan")));
  }
  return pageOf(await query.execute(), limit);
}

/**
 * Adds groups with a task per rollout, and counts the tasks of the plan. Groups that the plan has already are left unchanged. Call in a
 * transaction.
 *
 * @param groups - Groups with different indices.
 * @returns the plan with the new number of tasks.
 */
export async function addGroups(
  transaction: Store,
  plan: RolloutPlanRow,
  groups: readonly Pick<RolloutGroupRow, "group_index" | "scenario">[],
): Promise<RolloutPlanRow> {
  let { tasks } = plan;
  for (let start = 0; start < groups.length; start += ROWS_AT_ONCE) {
    const addedGroups = await transaction
      .insertInto("rollout_groups")
      .values(groups.slice(start, start + ROWS_AT_ONCE).map((group) => ({ ...group, plan_id: plan.id })))
      .onConflict((conflict) => conflict.columns(["plan_id", "group_index"]).doNothing())
      .returning("group_index")
      .execute();
    const newTasks: RolloutTaskRow[] = [];
    for (const { group_index } of addedGroups) {
      for (let rolloutIndex = 0; rolloutIndex < plan.group_size; rolloutIndex++) {
        newTasks.push(newTask(plan, { group_index, rollout_index: rolloutIndex, seq: tasks }));
        tasks++;
      }
    }
    await insertTasks(transaction, newTasks);
  }
  if (tasks > plan.tasks) await transaction.updateTable("rollout_plans").set({ tasks }).where("id", "=", plan.id).execute();
  return { ...plan, tasks };
}

/** Inserts tasks, several per statement. */
async function insertTasks(transaction: Store, tasks: readonly RolloutTaskRow[]): Promise<void> {
  for (let start = 0; start < tasks.length; start += ROWS_AT_ONCE) {
    const rows = tasks.slice(start, start + ROWS_AT_ONCE);
    await transaction.insertInto("rollout_tasks").values(rows).execute();
  }
}

/** Returns the row of a task that no worker has leased. */
function newTask(
  { id, entity, model_id }: RolloutPlanRow,
  position: Pick<RolloutTaskRow, "group_index" | "rollout_index" | "seq">,
): RolloutTaskRow {
  return {
    ...position,
    id: randomUUID(),
    plan_id: id,
    entity,
    model_id,
    state: "pending",
    leases: 0,
    worker: null,
    lease_token: null,
    lease_until: null,
    finished_seq: null,
    error_message: null,
    outcome_sha256: null,
    outcome_bytes: null,
  };
}

/** Sets the state of a plan. */
export async function setPlanStatus(store: Store, id: string, status: RolloutPlanRow["status"]): Promise<void> {
  await store.updateTable("rollout_plans").set({ status }).where("id", "=", id).execute();
}

/** Marks expired plans as deleted. Returns their number. */
export async function expirePlans(store: Store): Promise<number> {
  const { numUpdatedRows } = await store
    .updateTable("rollout_plans")
    .set({ status: "deleted" })
    .where("expires_at", "<=", new Date().toISOString())
    .where("status", "!=", "deleted")
    .executeTakeFirst();
  return Number(numUpdatedRows);
}

/** Returns sums over all plans. At least one of them changes when a plan is added, extended or ended, and when a task is finished. */
export async function progressOfPlans(store: Store): Promise<Readonly<Record<string, number | null>>> {
  return store
    .selectFrom("rollout_plans")
    .select((eb) => [
      eb.fn.sum<number | null>("tasks").as("tasks"),
      eb.fn.sum<number | null>("finished").as("finished"),
      eb.fn.sum<number>(eb.case().when("status", "=", "open").then(1).else(0).end()).as("open"),
      eb.fn.countAll<number>().as("plans"),
    ])
    .where("status", "!=", "deleted")
    .executeTakeFirstOrThrow();
}

/** Returns the id of a plan that is marked as deleted; undefined without one. */
export async function nextDeletedPlan(store: Store): Promise<string | undefined> {
  const row = await store.selectFrom("rollout_plans").select("id").where("status", "=", "deleted").limit(1).executeTakeFirst();
  return row?.id;
}

/**
 * Deletes up to `count` tasks of a plan, and the plan itself once it has no more tasks.
 *
 * @returns the digests of the outcomes of the deleted tasks; null when the plan is deleted.
 */
export function deleteSomeTasks(store: Store, planId: string, count: number): Promise<string[] | null> {
  return transact(store, async (transaction) => {
    const chosen = transaction.selectFrom("rollout_tasks").select("id").where("plan_id", "=", planId).limit(count);
    const deleted = await transaction.deleteFrom("rollout_tasks").where("id", "in", chosen).returning("outcome_sha256").execute();
    if (deleted.length > 0) return deleted.flatMap(({ outcome_sha256: sha256 }) => sha256 ?? []);
    await transaction.deleteFrom("rollout_plans").where("id", "=", planId).execute();
    return null;
  });
}
