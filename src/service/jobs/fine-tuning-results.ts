/** Results of a training job for the fine-tuning interface: checkpoints during the job, names of checkpoints, and the file of metrics. */
import { ConflictError } from "../../base/errors.ts";
import { BlobRemovedError, removeBlob, requireBlob } from "../artifacts/remove-blob.ts";
import { insertFile } from "../store/files.ts";
import { isReinforcement, type FineTuningResults } from "../store/job-configs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { noteEvent } from "./pause.ts";
import type { JobScope } from "./run-job.ts";
import { stepEvents } from "./step-events.ts";
import type { Attachment, Trained } from "./states.ts";

/** Purpose of the files that a job makes. */
const RESULTS_PURPOSE = "fine-tune-results";
/** Name of the file with the metrics of each step. */
const RESULTS_FILE = "step_metrics.csv";

/** Columns of the file: by header, in this order, the metric of a step in the column; null for a column that is always empty. */
type Columns = Readonly<Record<string, string | null>>;

/** Columns of a supervised job. The accuracy on training data is empty, because no engine reports it. */
const SUPERVISED_COLUMNS: Columns = {
  step: "gradient_step",
  train_loss: "loss",
  train_accuracy: null,
  valid_loss: "validation/loss",
  valid_mean_token_accuracy: "validation/token_accuracy",
};
/** Columns of a reinforcement job. */
const REINFORCEMENT_COLUMNS: Columns = {
  step: "gradient_step",
  train_mean_reward: "reward/mean",
  full_valid_mean_reward: "validation/reward",
  completion_tokens_mean: "rollout/completion_tokens",
  train_loss: "loss",
};

/** Results of a fine-tuning job, as its trainer produces them during and after its steps, which count from 1. */
export interface StepResults {
  /** Whether {@link afterCommit} adds a checkpoint for the step. The trainer must commit the progress of such a step. */
  readonly hasCheckpointAt: (step: number) => boolean;
  /** Adds the checkpoint of a step with committed progress. No effect if the step has none, or its checkpoint exists. */
  readonly afterCommit: (step: number) => Promise<void>;
  /** Returns the results that are committed with the last checkpoint, of a job with `steps` steps. */
  readonly atEnd: (steps: number) => Pick<Trained, "aliases" | "events" | "attach">;
}

/** Creates the results of a running job. `model` is the name of the fine-tuned model; names of checkpoints extend it. */
export function fineTuningResults(scope: JobScope, { model, checkpoint_steps }: FineTuningResults): StepResults {
  const { context, job } = scope;
  const nameAt = (step: number) => `${model}:ckpt-step-${step}`;
  const hasCheckpointAt = (step: number) => checkpoint_steps.includes(step);
  return {
    hasCheckpointAt,
    async afterCommit(step) {
      if (!hasCheckpointAt(step)) return;
      const name = nameAt(step);
      const metrics = await metricsAt(context.store, job.id, step);
      const events = [noteEvent(`Checkpoint created at step ${step}: ${name}`, { step, checkpoint: name })];
      await scope.addCheckpoint({ alias: { name, job_step: step }, metrics, events });
    },
    atEnd: (steps) => ({
      aliases: [
        { name: model, job_step: null },
        { name: nameAt(steps), job_step: steps },
      ],
      events: [noteEvent(`New fine-tuned model created: ${model}`, { model })],
      attach: () => writeResults(scope),
    }),
  };
}

/** Returns the metrics of a step from its event, which the trainer emits before the commit of the step. */
async function metricsAt(store: Store, jobId: string, step: number): Promise<Readonly<Record<string, number>>> {
  const { data } = await store
    .selectFrom("job_events")
    .select("data")
    .where("job_id", "=", jobId)
    .where("event_key", "=", `step:${step}`)
    .executeTakeFirstOrThrow();
  return JSON.parse(data) as Record<string, number>;
}

/** Writes the metrics of all steps to a blob. The row of the file is committed with the end of the job. */
async function writeResults({ context, job, signal }: JobScope): Promise<Attachment> {
  const { store, blobs } = context;
  const blob = await blobs.write(csvOf(store, job), { maxBytes: Infinity, signal });
  const { sha256, sizeBytes } = blob;
  return {
    async commit(transaction) {
      await requireBlob(transaction, blobs, blob).catch((error: unknown) => {
        // A `BlobRemovedError` is an `UnavailableError`, which the queue takes for a crash of the trainer: it would run the job again.
        throw error instanceof BlobRemovedError ? resultsRemoved(error) : error;
      });
      const file = {
        entity: job.entity,
        filename: RESULTS_FILE,
        path: RESULTS_FILE,
        purpose: RESULTS_PURPOSE,
        sha256,
        sizeBytes,
        expiresAfterSeconds: null,
      };
      const { id } = await insertFile(transaction, file);
      await transaction.updateTable("fine_tuning_jobs").set({ result_file: id }).where("training_job_id", "=", job.id).execute();
    },
    async close() {
      blob.release();
      // Keeps the blob if the committed file references it.
      await removeBlob(context, sha256);
    },
  };
}

/** Returns the error of a job with a file of metrics that was removed before the job's end could be committed. */
function resultsRemoved(cause: BlobRemovedError): ConflictError {
  const message =
    "The file with the metrics of the job's steps was deleted through another process of the service before the job ended: a file with equal contents was deleted there. Create the job again";
  return new ConflictError(message, { cause });
}

/** Yields the lines of the file with the metrics of each step. */
async function* csvOf(store: Store, job: JobRow): AsyncGenerator<Uint8Array> {
  const columns = isReinforcement(job) ? REINFORCEMENT_COLUMNS : SUPERVISED_COLUMNS;
  const lineOf = (cells: readonly (string | number)[]) => Buffer.from(`${cells.join(",")}\n`);
  yield lineOf(Object.keys(columns));
  for await (const metrics of stepEvents<Readonly<Record<string, number>>>(store, job.id))
    yield lineOf(Object.values(columns).map((metric) => (metric === null ? "" : (metrics[metric] ?? ""))));
}
