/** Wire form of rollout plans and tasks, and the settings of a plan in its row. */
import type { CreateRolloutPlanRequest, JsonObject, RolloutPlan, RolloutTask } from "../../base/schema/index.ts";
import type { RolloutPlanRow, RolloutTaskRow } from "../store/team-tables.ts";

/** Settings of a plan's rollouts, stored as JSON in the column `settings`. */
export type PlanSettings = Pick<
  RolloutPlan,
  "policy" | "policy_step" | "seed" | "temperature" | "chat_template_kwargs" | "timeout_ms" | "retries" | "replacements" | "score_timeouts"
>;

/** Returns the settings of a new plan, with their defaults. */
export function planSettings(request: CreateRolloutPlanRequest): PlanSettings {
  return {
    policy: request.policy,
    policy_step: request.policy_step ?? null,
    seed: request.seed,
    temperature: request.temperature ?? 1,
    chat_template_kwargs: request.chat_template_kwargs ?? null,
    timeout_ms: request.timeout_ms ?? null,
    retries: request.retries ?? 0,
    replacements: request.replacements ?? 0,
    score_timeouts: request.score_timeouts ?? false,
  };
}

/** Converts a plan that is not deleted. */
export function planToWire(row: RolloutPlanRow): RolloutPlan {
  const { settings, metadata, status, ...columns } = row;
  return {
    ...columns,
    ...(JSON.parse(settings) as PlanSettings),
    metadata: JSON.parse(metadata) as JsonObject as RolloutPlan["metadata"],
    // A deleted plan is only seen by requests that started before its deletion.
    status: status === "open" ? "open" : "cancelled",
  };
}

/** Converts a task. @param planStatus - State of its plan. */
export function taskToWire(row: RolloutTaskRow, planStatus: RolloutPlanRow["status"]): RolloutTask {
  const isFinished = row.state === "done" || row.state === "failed";
  return {
    id: row.id,
    plan_id: row.plan_id,
    group: row.group_index,
    index: row.rollout_index,
    status: isFinished || planStatus === "open" ? row.state : "cancelled",
    leases: row.leases,
    worker: row.worker,
    lease_expires_at: row.lease_until,
    finished: row.finished_seq,
    outcome_bytes: row.outcome_bytes,
  };
}
