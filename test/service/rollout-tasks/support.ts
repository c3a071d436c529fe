/** Plans and tasks over HTTP, and outcomes to deliver. */
import type { TestService } from "../support.ts";
import { group } from "../support.ts";
import { choice } from "../../learner/helpers.ts";

export const PLANS = "/v1/preview/rollout-plans";
export const TASKS = "/v1/preview/rollout-tasks";
export const HASH = "a".repeat(64);
export const OTHER_HASH = "b".repeat(64);

export interface Lease {
  readonly id: string;
  readonly lease_token: string;
  readonly group: number;
  readonly index: number;
  readonly scenario: unknown;
  readonly plan_id: string;
}

/** Creates a plan with the groups 0 … `groups` − 1. */
export async function createPlan({ ok }: TestService, groups = 1, fields: object = {}): Promise<{ readonly id: string }> {
  const body = { environment: "letters", environment_hash: HASH, policy: "tiny", group_size: 2, seed: 7, ...fields };
  const plan = await ok("POST", PLANS, body);
  if (groups > 0) await addGroups({ ok }, plan.id, groups);
  return plan;
}

export function addGroups({ ok }: Pick<TestService, "ok">, planId: string, count: number, from = 0): Promise<any> {
  const groups = Array.from({ length: count }, (_, index) => ({ group: from + index, scenario: { text: `scenario ${from + index}` } }));
  return ok("POST", `${PLANS}/${planId}/groups`, { groups });
}

/** Leases tasks; returns them. */
export async function lease({ ok }: TestService, fields: object = {}): Promise<Lease[]> {
  const body = { worker: "test", environments: [{ name: "letters", hash: HASH }], ...fields };
  return (await ok("POST", `${TASKS}/lease`, body)).data;
}

/** A trajectory with this reward. */
export function trajectoryOf(reward: number, tokens: readonly number[] = [4, 5]) {
  return group({ reward, choices: [choice([1, 2, 3], [...tokens])] }).trajectories[0]!;
}

/** Path of the delivery of a task. */
export function outcomePath({ id, lease_token: token }: Pick<Lease, "id" | "lease_token">): string {
  return `${TASKS}/${id}/outcome?lease_token=${token}`;
}

/** Delivers a trajectory with this reward. */
export function deliver({ call }: TestService, task: Lease, reward: number) {
  return call("PUT", outcomePath(task), { trajectory: trajectoryOf(reward) });
}
