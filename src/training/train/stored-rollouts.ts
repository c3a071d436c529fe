/**
 * References to rollouts that the service has stored, because workers delivered them as the outcomes of tasks. The request of a job sends
 * the id of such a rollout's task instead of its messages.
 */
import { HttpError, type Model } from "../../library/client/index.ts";
import type {
  CreateRlJobRequest,
  StoredRollout,
  Trajectory as WireTrajectory,
  TrajectoryGroup as WireTrajectoryGroup,
} from "../../base/schema/index.ts";
import type { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";

/** Metadata key of a trajectory: id of the rollout task whose outcome it is. */
const TASK_KEY = "rollout_task";
/** Metadata key of a group: id of the rollout plan of its tasks. */
const PLAN_KEY = "rollout_plan";

/** Returns a trajectory with the id of its task in its metadata. */
export function withTask(trajectory: Trajectory, taskId: string): Trajectory {
  return trajectory.with({ metadata: { [TASK_KEY]: taskId } });
}

/**
 * Removes the task ids of trajectories whose histories a caller has changed, because the service has stored the original ones.
 *
 * @param original - Group as delivered by workers.
 * @param changed - Group that the caller made of `original`.
 */
export function withOwnHistories(original: TrajectoryGroup, changed: TrajectoryGroup): TrajectoryGroup {
  const stored = new Map(original.trajectories.map((each) => [each.metadata[TASK_KEY], each.toJSON()]));
  const trajectories = changed.trajectories.map((each) => {
    const taskId = each.metadata[TASK_KEY];
    if (taskId === undefined || hasSameHistories(each.toJSON(), stored.get(taskId))) return each;
    return each.with({ metadata: { [TASK_KEY]: undefined } });
  });
  return changed.with({ trajectories });
}

/** Whether the histories are the same objects: a change of reward, metrics, metadata or logs shares them. */
function hasSameHistories(a: WireTrajectory, b: WireTrajectory | undefined): boolean {
  return a.messages_and_choices === b?.messages_and_choices && a.additional_histories === b.additional_histories && a.tools === b.tools;
}

/** Returns the groups with stored trajectories replaced by references: task id, reward, metrics, metadata and logs. */
export function withReferences(groups: readonly WireTrajectoryGroup[]): CreateRlJobRequest["trajectory_groups"] {
  return groups.map((group) => ({ ...group, trajectories: group.trajectories.map(reference) }));
}

/** Returns the reference to a stored trajectory; any other trajectory unchanged. */
function reference(trajectory: WireTrajectory): WireTrajectory | StoredRollout {
  const { reward, metrics, metadata, logs } = trajectory;
  const taskId = metadata[TASK_KEY];
  return typeof taskId === "string" ? { stored_rollout: taskId, reward, metrics, metadata, logs } : trajectory;
}

/** Whether a service no longer has a stored rollout of a job's request, because its plan has expired or was deleted. */
export function isMissingRollout(error: unknown): boolean {
  return error instanceof HttpError && error.status === 404 && error.param === "trajectory_groups";
}

/** Deletes the plans of groups, which are no longer needed. A plan that cannot be deleted expires. */
export async function deletePlans(model: Model, groups: readonly TrajectoryGroup[]): Promise<void> {
  const planIds = new Set(groups.map(({ metadata }) => metadata[PLAN_KEY]).filter((id) => typeof id === "string"));
  for (const id of planIds) await model.service.rolloutPlans.delete(id, { timeoutMs: 10_000 }).catch(() => undefined);
}
