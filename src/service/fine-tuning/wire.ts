/** Fine-tuning jobs, their events and checkpoints as objects of the OpenAI API. */
import type {
  CreateFineTuningJobRequest,
  FineTuningCheckpointMetrics,
  FineTuningJob,
  FineTuningJobCheckpoint,
  FineTuningJobEvent,
} from "../../base/schema/index.ts";
import { zip } from "../../base/util/values.ts";
import type { ListedAlias } from "../store/aliases.ts";
import { recentSteps, type StoredFineTuningJob } from "../store/fine-tuning-jobs.ts";
import type { SftJobConfig } from "../store/job-configs.ts";
import { jsonNumber } from "../store/database.ts";
import type { JobEventRow, JobRow, Store } from "../store/tables.ts";
import { toSeconds } from "./files.ts";
import type { ResolvedHyperparameters } from "./hyperparameters.ts";

/** Request of a fine-tuning job in the column `request`, with resolved settings. */
export interface StoredRequest extends Pick<CreateFineTuningJobRequest, "model" | "training_file"> {
  readonly validation_file: string | null;
  readonly seed: number;
  readonly hyperparameters: ResolvedHyperparameters;
  /** `beta` of the method `dpo`; absent for supervised jobs. */
  readonly beta?: number | undefined;
  /** Optimizer steps of the job. */
  readonly steps: number;
  /** Settings of the method `reinforcement`; absent for other methods. */
  readonly reinforcement?: ReinforcementMethod["reinforcement"] | undefined;
}

/** Settings of the method `reinforcement` in answers. */
type ReinforcementMethod = Extract<FineTuningJob["method"], { readonly type: "reinforcement" }>;

/** Metrics of a step or of a checkpoint. */
type Metrics = Readonly<Record<string, number>>;

/** Prefix of the ids of events in answers. */
const EVENT_PREFIX = "ftevent-";
/** Prefix of the ids of checkpoints in answers. */
const CHECKPOINT_PREFIX = "ftckpt-";

/** Converts a job to its form in answers. */
export async function jobToWire(store: Store, { row, job }: StoredFineTuningJob): Promise<FineTuningJob> {
  const request = JSON.parse(row.request) as StoredRequest;
  const { model, training_file, validation_file, seed, hyperparameters, steps } = request;
  const hasSucceeded = job.status === "succeeded";
  const { fine_tuning: results } = JSON.parse(job.config) as Pick<SftJobConfig, "fine_tuning">;
  return {
    id: row.id,
    object: "fine_tuning.job",
    created_at: toSeconds(job.created_at),
    finished_at: job.training_end === null ? null : toSeconds(job.training_end),
    estimated_finish: job.status === "running" ? await estimatedFinish(store, job, steps) : null,
    status: job.status,
    model,
    fine_tuned_model: hasSucceeded ? (results?.model ?? null) : null,
    organization_id: job.entity,
    training_file,
    validation_file,
    result_files: row.result_file === null ? [] : [row.result_file],
    trained_tokens: hasSucceeded ? await trainedTokens(store, job) : null,
    error: job.status === "failed" ? { code: "training_failed", message: job.error_message ?? "", param: null } : null,
    hyperparameters,
    method: methodOf(request),
    seed,
    metadata: row.metadata === null ? null : (JSON.parse(row.metadata) as Record<string, string>),
    integrations: [],
    training_job_id: job.id,
  };
}

/** Returns the method of a request with its settings. */
function methodOf({ hyperparameters, beta, reinforcement }: StoredRequest): FineTuningJob["method"] {
  if (reinforcement !== undefined) return { type: "reinforcement", reinforcement };
  if (beta !== undefined) return { type: "dpo", dpo: { hyperparameters: { ...hyperparameters, beta } } };
  return { type: "supervised", supervised: { hyperparameters } };
}

/** Estimates the end of a running job in seconds since 1970 from the median duration of its latest steps; null before two steps. */
async function estimatedFinish(store: Store, job: JobRow, steps: number): Promise<number | null> {
  const newestFirst = await recentSteps(store, job.id);
  const endsMs = newestFirst.map((event) => Date.parse(event.created_at));
  const durationsMs = zip(endsMs.slice(0, -1), endsMs.slice(1)).map(([endMs, previousEndMs]) => endMs - previousEndMs);
  const medianMs = durationsMs.toSorted((a, b) => a - b)[durationsMs.length >> 1];
  const [newest] = newestFirst;
  if (medianMs === undefined || newest === undefined) return null;
  const completedSteps = (JSON.parse(newest.data) as Metrics)["gradient_step"] ?? 0;
  // After a pause or an interruption, the newest step may have ended long ago.
  const nextEndMs = Math.max(Date.parse(newest.created_at) + medianMs, Date.now());
  return Math.ceil((nextEndMs + Math.max(steps - completedSteps - 1, 0) * medianMs) / 1000);
}

/** Sums the tokens of all steps from their events, because the checkpoint may be deleted. */
async function trainedTokens(store: Store, job: JobRow): Promise<number | null> {
  const { tokens } = await store
    .selectFrom("job_events")
    .select((eb) => eb.fn.sum<number | null>(jsonNumber(store, "data", "num_tokens")).as("tokens"))
    .where("job_id", "=", job.id)
    .where("type", "=", "gradient_step")
    .executeTakeFirstOrThrow();
  return tokens;
}

/** Converts the id of an event in a request, the cursor `after` of a list, to the id of the stored event. */
export function eventCursor(after: string | undefined): string | undefined {
  return after?.startsWith(EVENT_PREFIX) === true ? after.slice(EVENT_PREFIX.length) : after;
}

/** Converts an event to its form in answers. */
export function eventToWire(event: JobEventRow, { row }: StoredFineTuningJob): FineTuningJobEvent {
  const { steps } = JSON.parse(row.request) as StoredRequest;
  const data = JSON.parse(event.data) as Readonly<Record<string, unknown>>;
  return {
    id: EVENT_PREFIX + event.id,
    object: "fine_tuning.job.event",
    created_at: toSeconds(event.created_at),
    type: "message",
    ...describeEvent(event.type, data, steps),
  };
}

/** Parts of an event in answers that depend on its type. */
type Description = Pick<FineTuningJobEvent, "level" | "message" | "data"> & Partial<Pick<FineTuningJobEvent, "type">>;

/** Returns severity, text and values of an event. */
function describeEvent(type: JobEventRow["type"], data: Readonly<Record<string, unknown>>, steps: number): Description {
  switch (type) {
    case "note": {
      const { message, level, ...values } = data;
      return { level: level === "warn" ? "warn" : "info", message: String(message), data: values };
    }
    case "training_started":
      return { level: "info", message: "Fine-tuning job started", data: { total_steps: steps } };
    case "gradient_step":
      return describeStep(data as Metrics, steps);
    case "warning":
      return { level: "warn", message: String(data["message"]), data };
    case "training_ended":
      return { level: "info", message: "The job has successfully completed", data: {} };
    case "training_failed":
      // A cancelled job has this event, too.
      return { level: data["cancelled"] === true ? "info" : "error", message: String(data["error_message"]), data: {} };
    case "training_cancelled":
      return { level: "info", message: "The job is cancelled", data: {} };
  }
}

/** Describes an optimizer step of a job with `steps` steps. */
function describeStep(metrics: Metrics, steps: number): Description {
  const { step, ...apiMetrics } = stepMetrics(metrics);
  const values = [
    ...(apiMetrics.train_mean_reward === undefined ? [] : [`mean reward=${apiMetrics.train_mean_reward.toFixed(4)}`]),
    ...(apiMetrics.full_valid_mean_reward === undefined ? [] : [`validation reward=${apiMetrics.full_valid_mean_reward.toFixed(4)}`]),
    `training loss=${apiMetrics.train_loss.toFixed(4)}`,
    ...(apiMetrics.valid_loss === undefined ? [] : [`validation loss=${apiMetrics.valid_loss.toFixed(4)}`]),
  ];
  return {
    level: "info",
    type: "metrics",
    message: `Step ${step}/${steps}: ${values.join(", ")}`,
    data: {
      step,
      total_steps: steps,
      ...apiMetrics,
      ...preferenceMetrics(metrics),
      learning_rate: metrics["learning_rate"],
      tokens: metrics["num_tokens"],
    },
  };
}

/** Returns accuracy and margin of the rewards of a preference step; nothing for other steps. */
function preferenceMetrics({ "rewards/accuracies": accuracy, "rewards/margins": margin }: Metrics) {
  return accuracy === undefined || margin === undefined ? {} : { reward_accuracy: accuracy, reward_margin: margin };
}

/**
 * Returns metrics under the names of the API.
 *
 * @param metrics - Metrics of a step's event, or of a job's last checkpoint, where step and loss are `num_gradient_steps` and `last_loss`.
 */
function stepMetrics(metrics: Metrics): FineTuningCheckpointMetrics {
  const { "validation/loss": loss, "validation/token_accuracy": accuracy } = metrics;
  const { "reward/mean": reward, "validation/reward": validReward, "rollout/completion_tokens": tokens } = metrics;
  return {
    step: metrics["gradient_step"] ?? metrics["num_gradient_steps"] ?? 0,
    train_loss: metrics["last_loss"] ?? metrics["loss"] ?? 0,
    ...(loss === undefined ? {} : { valid_loss: loss, full_valid_loss: loss }),
    ...(accuracy === undefined ? {} : { valid_mean_token_accuracy: accuracy, full_valid_mean_token_accuracy: accuracy }),
    ...(reward === undefined ? {} : { train_mean_reward: reward }),
    ...(validReward === undefined ? {} : { full_valid_mean_reward: validReward }),
    ...(tokens === undefined ? {} : { completion_tokens_mean: tokens }),
  };
}

/** Converts a checkpoint to its form in answers. */
export function checkpointToWire(alias: ListedAlias, { row }: StoredFineTuningJob): FineTuningJobCheckpoint {
  const { checkpoint_id, created_at, name, job_step } = alias;
  return {
    id: CHECKPOINT_PREFIX + checkpoint_id,
    object: "fine_tuning.job.checkpoint",
    created_at: toSeconds(created_at),
    fine_tuned_model_checkpoint: name,
    fine_tuning_job_id: row.id,
    metrics: stepMetrics(JSON.parse(alias.metrics) as Metrics),
    step_number: job_step ?? 0,
  };
}
