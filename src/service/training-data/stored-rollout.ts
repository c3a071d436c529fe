/** Trajectories of an RL request that are stored as the outcomes of rollout tasks. */
import { storedRollout, type RolloutOutcome, type StoredRollout, type Trajectory, type TrajectoryGroup } from "../../base/schema/index.ts";
import { DataCorruptedError } from "../../base/errors.ts";
import { validateTrajectory } from "../../base/trajectory/validate.ts";
import { readRegularFile } from "../../base/util/regular-file.ts";
import { requireValid } from "../../base/util/validation.ts";
import { isRecord } from "../../base/util/values.ts";

/** Paths of verified outcomes by task. */
export type RolloutFiles = Readonly<Record<string, string>>;

/** Group of an RL request: trajectories, and tasks with stored trajectories. */
export interface SentGroup extends Pick<TrajectoryGroup, "exceptions" | "metadata" | "metrics" | "logs"> {
  readonly trajectories: readonly (Trajectory | StoredRollout)[];
}

/** Returns the stored rollout that a value names; undefined for any other value. @throws ArgumentError `E_ARGUMENT` if it is invalid. */
export function readStoredRollout(value: unknown, path: readonly (string | number)[]): StoredRollout | undefined {
  if (!isRecord(value) || !Object.hasOwn(value, "stored_rollout")) return undefined;
  const read = requireValid(storedRollout, value, [...path]);
  return { ...read, stored_rollout: read.stored_rollout.toLowerCase() };
}

/** Whether an entry of a group names a stored rollout. */
export function isStored(entry: Trajectory | StoredRollout): entry is StoredRollout {
  return "stored_rollout" in entry;
}

/** Returns the tasks that groups name, in order. */
export function storedIds(groups: readonly SentGroup[]): string[] {
  return groups.flatMap(({ trajectories }) => trajectories.filter(isStored).map(({ stored_rollout: id }) => id));
}

/** Returns the groups with their stored trajectories, read one after the other. */
export async function loadStored(groups: readonly SentGroup[], files: RolloutFiles): Promise<TrajectoryGroup[]> {
  const loaded: TrajectoryGroup[] = [];
  for (const group of groups) {
    const trajectories: Trajectory[] = [];
    for (const entry of group.trajectories) trajectories.push(isStored(entry) ? await loadTrajectory(entry, files) : entry);
    loaded.push({ ...group, trajectories });
  }
  return loaded;
}

/** Reads the trajectory of an outcome, with the changes that the request makes to it. @throws DataCorruptedError `E_DATA_CORRUPTED` */
async function loadTrajectory({ stored_rollout: id, ...changes }: StoredRollout, files: RolloutFiles): Promise<Trajectory> {
  const damagedError = (cause?: unknown) =>
    new DataCorruptedError(`The outcome of rollout task '${id}' cannot be read. Send the trajectory instead`, { cause });
  const path = files[id];
  if (path === undefined) throw damagedError();
  let outcome: RolloutOutcome;
  try {
    outcome = JSON.parse(await readRegularFile(path, { maxBytes: Infinity })) as RolloutOutcome;
  } catch (cause) {
    throw damagedError(cause);
  }
  const validated = validateTrajectory({ ...outcome.trajectory, ...changes });
  if (!validated.success) throw damagedError(validated.error);
  return validated.data;
}
