/** Creation of rollout plans and their groups. */
import { transact } from "../store/database.ts";
import { randomUUID } from "node:crypto";
import { ArgumentError, ConflictError, TooLargeError } from "../../base/errors.ts";
import type { AddRolloutGroupsRequest, CreateRolloutPlanRequest } from "../../base/schema/index.ts";
import type { ServiceLimits } from "../common/limits.ts";
import { getModel } from "../store/models.ts";
import { addGroups, getPlan } from "../store/rollout-plans.ts";
import type { Store } from "../store/tables.ts";
import type { RolloutPlanRow } from "../store/team-tables.ts";
import { entityFor, requireAllModels } from "../store/visibility.ts";
import { planSettings } from "./wire.ts";

/** Default of `max_leases`. */
const DEFAULT_MAX_LEASES = 5;
/** Default of `expires_in_seconds`: a week. */
const DEFAULT_EXPIRES_IN_SECONDS = 7 * 86_400;

/** Returns the row of a new plan without tasks. @throws NotFoundError `E_NOT_FOUND` if its model does not exist. */
export async function newPlan(store: Store, request: CreateRolloutPlanRequest): Promise<RolloutPlanRow> {
  const modelId = request.model_id ?? null;
  if (modelId === null) requireAllModels(store, "rollout plans without `model_id`");
  const entity = modelId === null ? entityFor(store, null, "model_id") : (await getModel(store, modelId)).entity;
  const now = Date.now();
  return {
    id: randomUUID(),
    entity,
    environment: request.environment,
    environment_hash: request.environment_hash,
    model_id: modelId?.toLowerCase() ?? null,
    settings: JSON.stringify(planSettings(request)),
    metadata: JSON.stringify(request.metadata ?? {}),
    group_size: request.group_size,
    max_leases: request.max_leases ?? DEFAULT_MAX_LEASES,
    status: "open",
    tasks: 0,
    finished: 0,
    failed: 0,
    outcome_bytes: 0,
    created_at: new Date(now).toISOString(),
    expires_at: new Date(now + (request.expires_in_seconds ?? DEFAULT_EXPIRES_IN_SECONDS) * 1000).toISOString(),
  };
}

/**
 * Adds groups to a plan.
 *
 * @returns the plan with the new number of tasks.
 * @throws ConflictError `E_CONFLICT` for a plan that is not open, TooLargeError `E_TOO_LARGE` for too many tasks, and ArgumentError
 *   `E_ARGUMENT` for an index that the request has twice.
 */
export async function addPlanGroups(
  store: Store,
  planId: string,
  { groups }: AddRolloutGroupsRequest,
  { maxRolloutTasks }: Pick<ServiceLimits, "maxRolloutTasks">,
): Promise<RolloutPlanRow> {
  const rows = groups.map(({ group, scenario }) => ({ group_index: group, scenario: JSON.stringify(scenario) }));
  const seen = new Set<number>();
  for (const { group_index: index } of rows) {
    if (seen.has(index)) throw new ArgumentError(`Expected \`groups\` to have different indices, got ${index} twice`, { param: "groups" });
    seen.add(index);
  }
  return transact(store, async (transaction) => {
    const plan = await getPlan(transaction, planId);
    requireOpenPlan(plan);
    const updatedPlan = await addGroups(transaction, plan, rows);
    if (updatedPlan.tasks > maxRolloutTasks) {
      throw new TooLargeError(
        `Expected at most ${maxRolloutTasks} tasks in a rollout plan, got ${updatedPlan.tasks}. Create another plan, or raise the service's limit`,
        { param: "groups" },
      );
    }
    return updatedPlan;
  });
}

/** Checks that a plan is open. @throws ConflictError `E_CONFLICT` if it is cancelled. */
export function requireOpenPlan({ id, status }: Pick<RolloutPlanRow, "id" | "status">): void {
  if (status === "open") return;
  throw new ConflictError(`Rollout plan '${id}' is cancelled. Create another one with POST /v1/preview/rollout-plans`, {
    param: "plan_id",
  });
}
