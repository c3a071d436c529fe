/** Rollouts that the service has stored as the outcomes of workers' tasks: their names in groups, and in the requests of jobs. */
import { HttpError, type Model } from "../../library/client/index.ts";
import type {
  CreateRlJobRequest,
  StoredRollout,
  Trajectory as WireTrajectory,
  TrajectoryGroup as WireTrajectoryGroup,
} from "../../base/schema/index.ts";
import type { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";

/** Metadata of a trajectory: the task with this outcome. */
const TASK = "rollout_task";
/** Metadata of a group: the plan of its tasks. */
const PLAN = "rollout_plan";

/** Returns a trajectory with the name of its task. */
export function withTask(trajectory: Trajectory, taskId: string): Trajectory {
  return trajectory.with({ metadata: { [TASK]: taskId } });
}

/** Returns a changed group in which only trajectories with the histories of the original have the names of their tasks. */
export function withOwnHistories(original: TrajectoryGroup, changed: TrajectoryGroup): TrajectoryGroup {
  const stored = new Map(original.trajectories.map((each) => [each.metadata[TASK], each.toJSON()]));
  const trajectories = changed.trajectories.map((each) => {
    const name = each.metadata[TASK];
    if (name === undefined || hasSameHistories(each.toJSON(), stored.get(name))) return each;
    return each.with({ metadata: { [TASK]: undefined } });
  });
  return changed.with({ trajectories });
}

/** Whether the histories are the same objects: a change of reward, metrics, metadata or logs shares them. */
function hasSameHistories(a: WireTrajectory, b: WireTrajectory | undefined): boolean {
  return a.messages_and_choices === b?.messages_and_choices && a.additional_histories === b.additional_histories && a.tools === b.tools;
}

/** Returns the groups with stored trajectories replaced by their names and their rewards, metrics, metadata and logs. */
export function withReferences(groups: readonly WireTrajectoryGroup[]): CreateRlJobRequest["trajectory_groups"] {
  return groups.map((group) => ({ ...group, trajectories: group.trajectories.map(reference) }));
}

/** Returns the reference to a stored trajectory; any other trajectory unchanged. */
function reference(trajectory: WireTrajectory): WireTrajectory | StoredRollout {
  const { reward, metrics, metadata, logs } = trajectory;
  const task = metadata[TASK];
  return typeof task === "string" ? { stored_rollout: task, reward, metrics, metadata, logs } : trajectory;
}

/** Whether a service no longer has a stored rollout of a job's request, because its plan has expired or was deleted. */
export function isMissingRollout(error: unknown): boolean {
  return error instanceof HttpError && error.status === 404 && error.param === "trajectory_groups";
}

/** Deletes the plans of groups, which are no longer needed. A plan that cannot be deleted expires. */
export async function deletePlans(model: Model, groups: readonly TrajectoryGroup[]): Promise<void> {
  const plans = new Set(groups.flatMap(({ metadata }) => (typeof metadata[PLAN] === "string" ? [metadata[PLAN]] : [])));
  for (const id of plans) await model.service.rolloutPlans.delete(id, { timeoutMs: 10_000 }).catch(() => undefined);
}
