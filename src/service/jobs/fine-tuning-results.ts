/** Results of a training job for the fine-tuning interface: checkpoints during the job, names of checkpoints, and the file of metrics. */
import { ConflictError } from "../../base/errors.ts";
import { BlobRemovedError, removeBlob, requireBlob } from "../artifacts/remove-blob.ts";
import { insertFile } from "../store/files.ts";
import { isReinforcement, type FineTuningResults } from "../store/job-configs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { note } from "./pause.ts";
import type { JobScope } from "./run-job.ts";
import { stepEvents } from "./step-events.ts";
import type { Attachment, Trained } from "./states.ts";

/** Purpose of the files that a job makes. */
const RESULTS_PURPOSE = "fine-tune-results";
/** Name of the file with the metrics of each step. */
const RESULTS_FILE = "step_metrics.csv";

/** Names of the columns with the metric of a step in each; null for a column that is always empty. */
type Columns = Readonly<Record<string, string | null>>;

/** Columns of a supervised job. The accuracy on training data is empty, because no engine reports it. */
const SUPERVISED_COLUMNS: Columns = {
  step: "gradient_step",
  train_loss: "loss",
  train_accuracy: null,
  valid_loss: "validation/loss",
  valid_mean_token_accuracy: "validation/token_accuracy",
};
const REINFORCEMENT_COLUMNS: Columns = {
  step: "gradient_step",
  train_mean_reward: "reward/mean",
  full_valid_mean_reward: "validation/reward",
  completion_tokens_mean: "rollout/completion_tokens",
  train_loss: "loss",
};

/** Functions that the trainer of a fine-tuning job calls. */
export interface StepResults {
  /** Whether a checkpoint is added after the step; its progress must be committed first. */
  readonly hasCheckpointAt: (step: number) => boolean;
  /** Adds the checkpoint of a step after the commit of its progress, unless it has none or the job has it already. */
  readonly afterCommit: (step: number) => Promise<void>;
  /** Returns the results that are committed with the last checkpoint. */
  readonly atEnd: (steps: number) => Pick<Trained, "aliases" | "events" | "attach">;
}

/** Creates the results of a running job. */
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
      const events = [note(`Checkpoint created at step ${step}: ${name}`, { step, checkpoint: name })];
      await scope.addCheckpoint({ alias: { name, job_step: step }, metrics, events });
    },
    atEnd: (steps) => ({
      aliases: [
        { name: model, job_step: null },
        { name: nameAt(steps), job_step: steps },
      ],
      events: [note(`New fine-tuned model created: ${model}`, { model })],
      attach: () => writeResults(scope),
    }),
  };
}

/** Returns the metrics of a step from its event. */
async function metricsAt(store: Store, jobId: string, step: number): Promise<Readonly<Record<string, number>>> {
  const { data } = await store
    .selectFrom("job_events")
    .select("data")
    .where("job_id", "=", jobId)
    .where("event_key", "=", `step:${step}`)
    .executeTakeFirstOrThrow();
  return JSON.parse(data) as Record<string, number>;
}

/** Writes the metrics of all steps to a blob. The file's rows are committed with the end of the job. */
async function writeResults({ context, job, signal }: JobScope): Promise<Attachment> {
  const { store, blobs } = context;
  const blob = await blobs.write(csvOf(store, job), { maxBytes: Infinity, signal });
  const { sha256, sizeBytes } = blob;
  return {
    async commit(transaction) {
      await requireBlob(transaction, blobs, blob).catch((error: unknown) => {
        // The queue takes an `UnavailableError` for a death of the trainer and runs the job again.
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
      await removeBlob(context, sha256);
    },
  };
}

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
