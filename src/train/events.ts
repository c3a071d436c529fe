import { camelCase, snakeCase } from "./names.ts";

/** Metrics by name; finite numbers. */
export type Metrics = Readonly<Record<string, number>>;

/** Which rollouts: those that are trained on, or those that measure a checkpoint. */
export type Split = "train" | "eval";

/**
 * Why a run is over. `stopped`: by `stop()`; it can be gone on with. `nothing-to-learn`: for so many steps all rewards of every group
 * were equal, which is how a task that has been learned ends.
 */
export type RunEndReason = "completed" | "stopped" | "early-stop" | "nothing-to-learn";

/** What happens in a run and is kept in its `events.jsonl`. `step` counts the run's own steps from 0; a checkpoint's step is the model's. */
export type RecordedEventBody =
  | {
      readonly type: "run-start";
      readonly kind: "rl" | "sft";
      readonly modelId: string;
      readonly checkpointStep: number;
      readonly steps: number;
    }
  | { readonly type: "run-resume"; readonly step: number; readonly checkpointStep: number; readonly steps: number }
  /** Rollouts for a step begin; they are sampled from `checkpointStep`, after `policyVersion` completed steps of the run. */
  | { readonly type: "step-start"; readonly step: number; readonly policyVersion: number; readonly checkpointStep: number }
  /** The dataset of a supervised step is there. */
  | { readonly type: "data-end"; readonly step: number; readonly url: string }
  | {
      readonly type: "rollouts-end";
      readonly step: number;
      readonly groups: number;
      /** Groups left out since they were too far off-policy. */
      readonly staleGroups: number;
      readonly exceptions: number;
      readonly rewardMean: number | null;
    }
  /** Something worth knowing: a preflight finding about the batch, or what the job says of its numbers. */
  | {
      readonly type: "warning";
      readonly step: number;
      readonly code: string;
      readonly count: number;
      readonly message: string;
      /** Of the job's own event, where it comes from one. */
      readonly jobEventId?: string | null;
    }
  /** Nothing in the batch could be learned from; the step is over without a job. */
  | { readonly type: "step-skip"; readonly step: number; readonly message: string }
  /** Written before the request is sent: after a crash it says that a job may exist. */
  | {
      readonly type: "job-intent";
      readonly step: number;
      readonly attempt: number;
      readonly key: string;
      /** The model's newest checkpoint before the job. */
      readonly baselineStep: number;
    }
  | { readonly type: "job-start"; readonly step: number; readonly attempt: number; readonly jobId: string }
  | { readonly type: "job-fail"; readonly step: number; readonly attempt: number; readonly message: string }
  | {
      readonly type: "gradient-step";
      readonly step: number;
      readonly jobId: string;
      readonly jobEventId: string | null;
      readonly metrics: Metrics;
    }
  | {
      readonly type: "step-end";
      readonly step: number;
      /** The checkpoint the rollouts were sampled from; null in a supervised run. */
      readonly policyStep: number | null;
      /** The newest checkpoint now: the job's, or the one before where the step was skipped. */
      readonly checkpointStep: number;
      readonly metrics: Metrics;
    }
  | { readonly type: "evaluation-start"; readonly step: number; readonly checkpointStep: number }
  | { readonly type: "evaluation-end"; readonly step: number; readonly checkpointStep: number; readonly metrics: Metrics }
  | { readonly type: "checkpoints-delete"; readonly steps: readonly number[] }
  | { readonly type: "run-end"; readonly reason: RunEndReason; readonly steps: number; readonly checkpointStep: number }
  | { readonly type: "run-fail"; readonly code: string | null; readonly message: string };

/** What is only told to who listens at the moment. */
export type LiveEventBody =
  | {
      readonly type: "rollout-progress";
      readonly step: number;
      readonly split: Split;
      readonly completed: number;
      readonly total: number;
      readonly exceptions: number;
      /** NaN before the first. */
      readonly rewardMean: number;
    }
  | {
      readonly type: "group-end";
      readonly step: number;
      readonly split: Split;
      readonly scenarioIndex: number;
      readonly rewards: readonly number[];
      readonly exceptions: number;
    };

/** Where and when. */
export interface Stamp {
  /** Number of the line in `events.jsonl`, from 0. */
  readonly seq: number;
  /** ISO 8601. */
  readonly time: string;
}

/** A line of `events.jsonl`. */
export type RecordedEvent = RecordedEventBody & Stamp;

/** What a run tells: the recorded events, and between them live ones without a number. */
export type RunEvent = RecordedEvent | (LiveEventBody & { readonly seq: null; readonly time: string });

/** The event as it lies on disk: keys in snake_case, names of metrics as they are. */
export function eventToDisk(event: RecordedEvent): Record<string, unknown> {
  return Object.fromEntries(Object.entries(event).map(([key, value]) => [snakeCase(key), value]));
}

/** Reads {@link eventToDisk} back; null for what is none. */
export function eventFromDisk(value: unknown): RecordedEvent | null {
  if (typeof value !== "object" || value === null || !("type" in value) || !("seq" in value)) return null;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [camelCase(key), inner])) as unknown as RecordedEvent;
}
