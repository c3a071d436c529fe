import { camelCase, snakeCase } from "./names.ts";

/** Metric values by name; finite numbers. */
export type Metrics = Readonly<Record<string, number>>;

/** Purpose of rollouts: training, or evaluation of a checkpoint. */
export type Split = "train" | "eval";

/**
 * Reason for the end of a run. `completed`: all steps are done. `stopped`: `stop()` was called; the run can be resumed. `early-stop`:
 * `stopWhen` returned true. `nothing-to-learn`: for `maxSkippedSteps` consecutive steps all rewards within every group were equal, as
 * is normal once a task has been learned.
 */
export type RunEndReason = "completed" | "stopped" | "early-stop" | "nothing-to-learn";

/** Body of an event recorded in `events.jsonl`. `step` counts the run's own steps from 0; a checkpoint step is the model's step. */
export type RecordedEventBody =
  | {
      readonly type: "run-start";
      readonly kind: "rl" | "sft";
      readonly modelId: string;
      readonly checkpointStep: number;
      readonly steps: number;
    }
  | { readonly type: "run-resume"; readonly step: number; readonly checkpointStep: number; readonly steps: number }
  /** Start of a step's rollouts, sampled from `checkpointStep`, the checkpoint after `policyVersion` completed steps of the run. */
  | { readonly type: "step-start"; readonly step: number; readonly policyVersion: number; readonly checkpointStep: number }
  /** The dataset of a supervised step is available. */
  | { readonly type: "data-end"; readonly step: number; readonly url: string }
  | {
      readonly type: "rollouts-end";
      readonly step: number;
      readonly groups: number;
      /** Groups left out because they were too far off-policy. */
      readonly staleGroups: number;
      readonly exceptions: number;
      readonly rewardMean: number | null;
    }
  /** A preflight finding about the batch, a warning of the job about its metrics, or a failure to write the report. */
  | {
      readonly type: "warning";
      readonly step: number;
      readonly code: string;
      readonly count: number;
      readonly message: string;
      /** Id of the job's warning event; absent if the warning is not from the job. */
      readonly jobEventId?: string | null;
    }
  /** The batch contained nothing to learn; the step ends without a job. */
  | { readonly type: "step-skip"; readonly step: number; readonly message: string }
  /** Intent to send a job, recorded before the request: after a crash, the job may exist on the service. */
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
      /** Checkpoint that the rollouts were sampled from; null in a supervised run. */
      readonly policyStep: number | null;
      /** Newest checkpoint after the step: made by the step's job, or the previous one if the step was skipped. */
      readonly checkpointStep: number;
      readonly metrics: Metrics;
    }
  | { readonly type: "evaluation-start"; readonly step: number; readonly checkpointStep: number }
  | { readonly type: "evaluation-end"; readonly step: number; readonly checkpointStep: number; readonly metrics: Metrics }
  | { readonly type: "checkpoints-delete"; readonly steps: readonly number[] }
  | { readonly type: "run-end"; readonly reason: RunEndReason; readonly steps: number; readonly checkpointStep: number }
  | { readonly type: "run-fail"; readonly code: string | null; readonly message: string };

/** Body of a live event: emitted to current subscribers, not recorded. */
export type LiveEventBody =
  | {
      readonly type: "rollout-progress";
      readonly step: number;
      readonly split: Split;
      readonly completed: number;
      readonly total: number;
      readonly exceptions: number;
      /** Mean reward so far; NaN before the first. */
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

/** Sequence number and time of a recorded event. */
export interface Stamp {
  /** Line index in `events.jsonl`, from 0. */
  readonly seq: number;
  /** Time of the recording, ISO 8601. */
  readonly time: string;
}

/** Event recorded as a line of `events.jsonl`. */
export type RecordedEvent = RecordedEventBody & Stamp;

/** Event of a run: a recorded event, or a live event, which has `seq` null. */
export type RunEvent = RecordedEvent | (LiveEventBody & { readonly seq: null; readonly time: string });

/** Converts an event to its on-disk form: keys in snake_case, metric names unchanged. */
export function eventToDisk(event: RecordedEvent): Record<string, unknown> {
  return Object.fromEntries(Object.entries(event).map(([key, value]) => [snakeCase(key), value]));
}

/** Parses the on-disk form of {@link eventToDisk}; returns null if the value is not an event. */
export function eventFromDisk(value: unknown): RecordedEvent | null {
  if (typeof value !== "object" || value === null || !("type" in value) || !("seq" in value)) return null;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [camelCase(key), inner])) as unknown as RecordedEvent;
}
