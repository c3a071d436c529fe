/** Outcomes of rollout tasks as training data of RL jobs. */
import { ArgumentError, ConflictError, NotFoundError, TooLargeError } from "../../base/errors.ts";
import type { NamedContents, StoredFiles } from "../stored-files/stored-files.ts";
import { findTasks } from "../store/rollout-tasks.ts";
import type { Store } from "../store/tables.ts";
import type { RolloutFiles } from "../training-data/stored-rollout.ts";
import { subjectOf } from "./outcomes.ts";

/** Max bytes of the stored rollouts of a job. */
const MAX_TOTAL_BYTES = 1024 ** 3;
/** Request field with the groups, for errors. */
const PARAM = "trajectory_groups";

/**
 * Calls `use` with the verified files of stored rollouts, by task.
 *
 * @param ids - Tasks that an RL request names.
 * @throws NotFoundError `E_NOT_FOUND` for a task that does not exist, ConflictError `E_CONFLICT` for a task without a trajectory,
 *   ArgumentError `E_ARGUMENT` for a task that is named twice, and TooLargeError `E_TOO_LARGE` for more than 1 GiB.
 */
export async function useRollouts<T>(
  { store, files }: { readonly store: Store; readonly files: Pick<StoredFiles, "useContents"> },
  ids: readonly string[],
  use: (rollouts: RolloutFiles) => Promise<T>,
): Promise<T> {
  const tasks = new Map((await findTasks(store, ids)).map((task) => [task.id, task]));
  const filesByTask: Record<string, NamedContents> = {};
  let totalBytes = 0;
  for (const id of ids) {
    const task = tasks.get(id);
    if (task === undefined)
      throw new NotFoundError(`Rollout task '${id}' does not exist, or its plan was deleted. Send the trajectory instead`, {
        param: PARAM,
      });
    if (task.state !== "done" || task.outcome_sha256 === null)
      throw new ConflictError(`Expected rollout task '${id}' to have a trajectory, got the state ${task.state}. Leave it out`, {
        param: PARAM,
      });
    if (Object.hasOwn(filesByTask, id))
      throw new ArgumentError(`Expected each rollout task once, got '${id}' twice. Leave one out`, { param: PARAM });
    const digest = { sha256: task.outcome_sha256, size_bytes: task.outcome_bytes ?? 0 };
    totalBytes += digest.size_bytes;
    if (totalBytes > MAX_TOTAL_BYTES)
      throw new TooLargeError(`Expected stored rollouts of at most ${MAX_TOTAL_BYTES} bytes in a job. Train on fewer groups`, {
        param: PARAM,
      });
    filesByTask[id] = { ...digest, subject: subjectOf(task) };
  }
  return files.useContents(Object.values(filesByTask), (pathsByDigest) => {
    const pathsByTask = Object.entries(filesByTask).map(([id, { sha256 }]) => [id, pathsByDigest[sha256]!]);
    return use(Object.fromEntries(pathsByTask));
  });
}
