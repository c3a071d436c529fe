/** Outcomes of rollout tasks: their delivery, and their contents. */
import type { Readable } from "node:stream";
import { ConflictError, NotFoundError, TooLargeError } from "../../base/errors.ts";
import type { RolloutOutcome, RolloutTask } from "../../base/schema/index.ts";
import { removeBlob, type BlobContext } from "../artifacts/remove-blob.ts";
import type { ServiceLimits } from "../common/limits.ts";
import type { DiskSpace } from "../disk/space.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { getPlan } from "../store/rollout-plans.ts";
import { getTask, type PlannedTask } from "../store/rollout-tasks.ts";
import type { RolloutTaskRow } from "../store/team-tables.ts";
import type { DataWork } from "../training-data/data-work.ts";
import type { OutcomeWriter } from "./outcome-writer.ts";
import { taskToWire } from "./wire.ts";

/** Context of {@link deliverOutcome}. */
export interface OutcomeContext extends BlobContext {
  readonly data: Pick<DataWork, "checkOutcome">;
  readonly space: Pick<DiskSpace, "requireSpace">;
  readonly limits: Pick<ServiceLimits, "maxRolloutBytes">;
  readonly writer: OutcomeWriter;
}

/**
 * Records the outcome of a task. When the promise resolves, the outcome is durable. The same delivery again has the same answer.
 *
 * @param token - Token of the worker's lease.
 * @param bytes - Outcome as JSON; transferred.
 * @throws ConflictError `E_CONFLICT` if another worker has leased the task since, the task has another outcome, or the plan is cancelled.
 * @throws ArgumentError `E_ARGUMENT` for a body that is not an outcome, TooLargeError `E_TOO_LARGE` if the plan has too many bytes.
 */
export async function deliverOutcome(
  context: OutcomeContext,
  taskId: string,
  { token, bytes }: { readonly token: string; readonly bytes: Uint8Array },
): Promise<RolloutTask> {
  const { store, blobs, space, writer } = context;
  const task = await getTask(store, taskId);
  requireLease(task, token);
  const checked = await context.data.checkOutcome(bytes);
  const sizeBytes = checked.bytes.byteLength;
  if (task.finished_seq === null) await requireRoom(context, task.plan_id, sizeBytes);
  await space.requireSpace(sizeBytes);
  const blob = await blobs.write(singleChunk(checked.bytes), { maxBytes: sizeBytes });
  const { sha256 } = blob;
  try {
    const state = checked.isFailure ? ("failed" as const) : ("done" as const);
    const end = { state, error_message: null, outcome_sha256: sha256, outcome_bytes: sizeBytes };
    const finished = await writer.finish({
      lease: { id: task.id, lease_token: token.toLowerCase() },
      plan_id: task.plan_id,
      blob,
      end,
    });
    if (finished !== null) return taskToWire(finished, "open");
    // The lease was lost meanwhile, or the task has been finished, perhaps by an earlier attempt of the same delivery.
    const currentTask = await getTask(store, task.id);
    requireLease(currentTask, token);
    if (currentTask.outcome_sha256 !== sha256) throw otherOutcomeError(currentTask);
    return taskToWire(currentTask, currentTask.plan_status);
  } finally {
    blob.release();
    // Has no effect if the task refers to the blob.
    await removeBlob(context, sha256);
  }
}

/** Yields bytes as one chunk. */
async function* singleChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  yield bytes;
}

/**
 * Checks that a plan has room for an outcome. Deliveries at the same time may exceed the limit together.
 *
 * @throws TooLargeError `E_TOO_LARGE` if an outcome of this size would exceed the limit.
 */
async function requireRoom({ store, limits }: OutcomeContext, planId: string, sizeBytes: number): Promise<void> {
  const { outcome_bytes: bytes } = await getPlan(store, planId);
  if (bytes + sizeBytes <= limits.maxRolloutBytes) return;
  throw new TooLargeError(
    `Expected at most ${limits.maxRolloutBytes} bytes of outcomes in a rollout plan, got ${bytes + sizeBytes}. Use smaller plans, or raise the service's limit`,
    { param: "task_id" },
  );
}

/**
 * Checks that the newest lease of a task is the deliverer's. A finished task keeps its lease, so that a repeated delivery is accepted.
 *
 * @throws ConflictError `E_CONFLICT` if another worker has leased the task since, the task has failed without an outcome, or the plan is
 *   cancelled.
 */
function requireLease(task: PlannedTask, token: string): void {
  if (task.plan_status !== "open" && task.finished_seq === null) {
    throw new ConflictError(`Rollout plan '${task.plan_id}' is cancelled; drop the outcome`, { param: "plan_id" });
  }
  if (task.lease_token === token.toLowerCase() && task.error_message === null) return;
  const successor = task.worker === null ? "it was released" : `'${task.worker}' has leased it since`;
  const reason = task.error_message ?? `its lease has expired, and ${successor}`;
  throw new ConflictError(`Rollout task '${task.id}' does not accept the outcome: ${reason}. Drop the outcome`, { param: "lease_token" });
}

/** Returns the error of a delivery that differs from the recorded one. */
function otherOutcomeError({ id }: RolloutTaskRow): ConflictError {
  return new ConflictError(`Rollout task '${id}' has another outcome, delivered with the same lease. Drop the new one`, {
    param: "lease_token",
  });
}

/** Returns the outcome of a finished task, as JSON. @throws NotFoundError `E_NOT_FOUND` for an unfinished task. */
export async function openOutcome(files: Pick<StoredFiles, "openContents">, task: RolloutTaskRow): Promise<Readable | RolloutOutcome> {
  if (task.outcome_sha256 !== null)
    return files.openContents({ sha256: task.outcome_sha256, size_bytes: task.outcome_bytes ?? 0 }, subjectOf(task));
  if (task.error_message !== null) return { exception: { type: "WorkerLost", message: task.error_message, traceback: "" } };
  throw new NotFoundError(`Rollout task '${task.id}' has no outcome yet: it is ${task.state}`, { param: "task_id" });
}

/** Returns the name of an outcome for errors. */
export function subjectOf({ id }: Pick<RolloutTaskRow, "id">): string {
  return `The outcome of rollout task '${id}'`;
}
