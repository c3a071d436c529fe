/** Leases of named rollouts, which workers of a message broker request. */
import { ArgumentError, ConflictError, NotFoundError } from "../../base/errors.ts";
import type { LeaseRolloutsRequest } from "../../base/schema/index.ts";
import { getPlan } from "../store/rollout-plans.ts";
import { taskAt, type RolloutPlace } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";
import type { RolloutPlanRow } from "../store/team-tables.ts";
import { requireOpenPlan } from "./plans.ts";

/** Rollout that a lease request names, with its plan. */
export interface NamedRollout {
  readonly planId: string;
  readonly rollout: RolloutPlace;
}

/** Returns the rollout that a lease request names; null for none. @throws ArgumentError `E_ARGUMENT` for a rollout without a plan. */
export function namedRollout(planId: LeaseRolloutsRequest["plan_id"], rollout: LeaseRolloutsRequest["rollout"]): NamedRollout | null {
  if (rollout === undefined || rollout === null) return null;
  if (planId === undefined || planId === null)
    throw new ArgumentError("Expected `plan_id` with `rollout`, got none. Send the plan of the rollout", { param: "plan_id" });
  return { planId, rollout };
}

/**
 * Checks that a rollout still needs a worker.
 *
 * @returns its plan.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown plan or rollout, ConflictError `E_CONFLICT` for a cancelled plan or a finished
 *   rollout.
 */
export async function requireUnfinished(store: Store, { planId, rollout }: NamedRollout): Promise<RolloutPlanRow> {
  const plan = await getPlan(store, planId);
  requireOpenPlan(plan);
  const task = await taskAt(store, plan.id, rollout);
  const name = `Rollout ${rollout.index} of group ${rollout.group} of plan '${plan.id}'`;
  if (task === undefined) throw new NotFoundError(`${name} does not exist. Add its group to the plan first`, { param: "rollout" });
  if (task.finished_seq !== null) throw new ConflictError(`${name} is finished. Lease another one`, { param: "rollout" });
  return plan;
}

/**
 * Checks that a worker plays the environment of a plan.
 *
 * @throws ConflictError `E_CONFLICT` if the worker lacks the environment, or has it with another content hash.
 */
export function requireEnvironment(plan: RolloutPlanRow, environments: LeaseRolloutsRequest["environments"]): void {
  const sameName = environments.filter(({ name }) => name === plan.environment);
  if (sameName.some(({ hash }) => hash === plan.environment_hash)) return;
  const [otherVersion] = sameName;
  if (otherVersion === undefined)
    throw new ConflictError(
      `Rollout plan '${plan.id}' is for the environment '${plan.environment}', but the worker plays ${environments.map(({ name }) => `'${name}'`).join(", ")}. Start the worker with this environment, or on another queue`,
      { param: "environments" },
    );
  throw new ConflictError(
    `The worker's environment '${plan.environment}' has the content hash ${otherVersion.hash.slice(0, 12)}, but rollout plan '${plan.id}' was made with ${plan.environment_hash.slice(0, 12)}. Start the worker with the same files as the training run`,
    { param: "environments" },
  );
}
