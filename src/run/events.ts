/** Events of a run: the union of their types, and their conversion to and from lines of `events.jsonl`. */

import type { RolloutException } from "../base/schema/index.ts";
import type { Split } from "./data.ts";
import type { z } from "zod";
import { camelCase, snakeCase } from "../base/util/letter-case.ts";
import type { numberedEventLine } from "./rows.ts";

/** Metric values by name; finite numbers. */
export type Metrics = Readonly<Record<string, number>>;

/**
 * Reason for the end of a run. `completed`: all steps are done. `stopped`: `stop()` was called; the run can be resumed. `early-stop`:
 * `stopWhen` returned true. `nothing-to-learn`: for `maxSkippedSteps` consecutive steps all rewards within every group were equal, as
 * is normal once a task has been learned.
 */
export type RunEndReason = "completed" | "stopped" | "early-stop" | "nothing-to-learn";

/** Setting of a run that differs from the run's previous start. */
export interface SettingChange {
  /** Name in `config.json`; a member of an object is `train.learning_rate`. */
  readonly name: string;
  /** Value before; null if the setting was absent. */
  readonly before: unknown;
  /** Value now; null if the setting is absent. */
  readonly after: unknown;
}

/** Pass rate of one group, as recorded in `batch-end`. */
export interface GroupPassRate {
  /** Name of the environment; absent in a run on one environment. */
  readonly environment?: string | undefined;
  /** Key of the scenario. */
  readonly key: string;
  /** Pass rate of the group, in [0, 1]. */
  readonly rate: number;
}

/** Body of an event recorded in `events.jsonl`. `step` counts the run's own steps from 0; a checkpoint step is the model's step. */
export type RecordedEventBody =
  | {
      readonly type: "run-start";
      /** Kind of run: reinforcement learning, supervised training, or an evaluation of checkpoints. */
      readonly kind: "rl" | "sft" | "preference" | "eval";
      /** UUID of the trained model. */
      readonly modelId: string;
      /** The model's newest checkpoint at the start. */
      readonly checkpointStep: number;
      /** Number of steps of the whole run. */
      readonly steps: number;
      /** Settings that may change at a resume, as in `config.json`; absent in runs of earlier versions. */
      readonly settings?: Readonly<Record<string, unknown>>;
    }
  | {
      readonly type: "run-resume";
      /** Step at which the run resumes. */
      readonly step: number;
      /** The model's newest checkpoint at the restart. */
      readonly checkpointStep: number;
      /** Number of steps of the whole run. */
      readonly steps: number;
      /** Settings that may change at a resume, as in `config.json`; absent in runs of earlier versions. */
      readonly settings?: Readonly<Record<string, unknown>>;
      /** Settings that differ from the run's previous start; absent in runs of earlier versions. */
      readonly changes?: readonly SettingChange[];
    }
  /** Start of a step's rollouts, sampled from `checkpointStep`, the checkpoint after `policyVersion` completed steps of the run. */
  | {
      readonly type: "step-start";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Number of steps of the run that were completed when the rollouts started. */
      readonly policyVersion: number;
      /** Checkpoint from which the rollouts are sampled. */
      readonly checkpointStep: number;
    }
  /** All groups of a step are sampled, and the groups to train are selected. Recorded once per step. */
  | {
      readonly type: "batch-end";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Number of sampled groups, including discarded groups. */
      readonly sampled: number;
      /** Number of groups to train. */
      readonly kept: number;
      /**
       * Number of discarded groups per reason: `old` (too far off-policy), `small` (too few trajectories) or `constant` (equal rewards).
       */
      readonly discarded: Readonly<Record<string, number>>;
      /** Scenario indices of the discarded groups, ascending. */
      readonly discardedScenarios: readonly number[];
      /** Number of trajectories removed from their groups per reason: too `short` or too `long`. */
      readonly removed: Readonly<Record<string, number>>;
      /** Pass rates of the groups for the curriculum; empty without a curriculum. */
      readonly passRates: readonly GroupPassRate[];
    }
  /** The dataset of a supervised step is available. */
  | {
      readonly type: "data-end";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Address of the dataset. */
      readonly url: string;
      /** Address of the validation data; null without. */
      readonly validationUrl: string | null;
    }
  | {
      readonly type: "rollouts-end";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Number of groups of the step. */
      readonly groups: number;
      /** Groups left out because they were too far off-policy. */
      readonly staleGroups: number;
      /** Number of failed rollouts. */
      readonly exceptions: number;
      /** Mean reward of the trajectories; null without a trajectory. */
      readonly rewardMean: number | null;
    }
  /** A preflight finding about the batch, a warning of the job about its metrics, or a failure to write the report. */
  | {
      readonly type: "warning";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Code of the finding or warning; `report` for the report. */
      readonly code: string;
      /** Number of occurrences. */
      readonly count: number;
      /** Description of the problem and its remedy. */
      readonly message: string;
      /** Id of the job's warning event; absent if the warning is not from the job. */
      readonly jobEventId?: string | null;
    }
  /** The batch contained nothing to learn; the step ends without a job. */
  | {
      readonly type: "step-skip";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Reason for the skip. */
      readonly message: string;
    }
  /** Intent to send a job, recorded before the request: after a crash, the job may exist on the service. */
  | {
      readonly type: "job-intent";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Attempt of the step's job, from 0. */
      readonly attempt: number;
      /** Idempotency key of the request. */
      readonly key: string;
      /** The model's newest checkpoint before the job. */
      readonly baselineStep: number;
    }
  | {
      readonly type: "job-start";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Attempt of the step's job, from 0. */
      readonly attempt: number;
      /** UUID of the accepted job. */
      readonly jobId: string;
    }
  | {
      readonly type: "job-fail";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Attempt of the step's job, from 0. */
      readonly attempt: number;
      /** Reason of the service. */
      readonly message: string;
    }
  | {
      readonly type: "gradient-step";
      /** Step of the run, from 0. */
      readonly step: number;
      /** UUID of the job. */
      readonly jobId: string;
      /** Id of the job's event; null on a service without job events. */
      readonly jobEventId: string | null;
      /** Metrics of the job's optimizer step, unchanged. */
      readonly metrics: Metrics;
    }
  | {
      readonly type: "step-end";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Checkpoint that the rollouts were sampled from; null in a supervised run. */
      readonly policyStep: number | null;
      /** Newest checkpoint after the step: made by the step's job, or the previous one if the step was skipped. */
      readonly checkpointStep: number;
      /** Row of the step in `metrics.jsonl`. */
      readonly metrics: Metrics;
    }
  | {
      readonly type: "evaluation-start";
      /** Number of steps of the run that were completed before the evaluation. */
      readonly step: number;
      /** Checkpoint to evaluate. */
      readonly checkpointStep: number;
    }
  | {
      readonly type: "evaluation-end";
      /** Number of steps of the run that were completed before the evaluation. */
      readonly step: number;
      /** Evaluated checkpoint. */
      readonly checkpointStep: number;
      /** Results of the evaluation, as in `metrics.jsonl`. */
      readonly metrics: Metrics;
    }
  | {
      readonly type: "checkpoints-delete";
      /** Deleted checkpoint steps of the model. */
      readonly steps: readonly number[];
    }
  | {
      readonly type: "run-end";
      /** Reason for the end. */
      readonly reason: RunEndReason;
      /** Number of completed steps. */
      readonly steps: number;
      /** The model's newest checkpoint. */
      readonly checkpointStep: number;
    }
  | {
      readonly type: "run-fail";
      /** Error code; null for an error without a code. */
      readonly code: string | null;
      /** Message of the error. */
      readonly message: string;
    };

/** Body of a live event: emitted to current subscribers, not recorded. */
export type LiveEventBody =
  | {
      readonly type: "rollout-progress";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Purpose of the rollouts. */
      readonly split: Split;
      /** Number of finished rollouts, including failed ones. */
      readonly completed: number;
      /** Number of rollouts of the step or evaluation. */
      readonly total: number;
      /** Number of rollouts in progress. */
      readonly running: number;
      /** Number of failed rollouts so far. */
      readonly exceptions: number;
      /** Mean reward so far; NaN before the first. */
      readonly rewardMean: number;
      /** Number of sampled tokens in the finished rollouts that did not fail. */
      readonly completionTokens: number;
    }
  | {
      readonly type: "job-progress";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Number of finished optimizer steps of the step's job. */
      readonly completed: number;
      /** Number of optimizer steps of the job, at least 1. */
      readonly total: number;
    }
  /** A request failed because the service is unavailable. It is repeated for some minutes. */
  | {
      readonly type: "service-unavailable";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Description of the failed request. */
      readonly message: string;
    }
  | {
      readonly type: "rollout-replace";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Purpose of the rollouts. */
      readonly split: Split;
      /** Index of the scenario within the run; for `eval`, in the list of the environment. */
      readonly scenarioIndex: number;
      /** Index of the rollout in its group, from 0. */
      readonly index: number;
      /** Number of the replacement that starts, from 1. */
      readonly replacement: number;
      /** Failure of the replaced rollout. */
      readonly exception: RolloutException;
    }
  | {
      readonly type: "group-end";
      /** Step of the run, from 0. */
      readonly step: number;
      /** Purpose of the rollouts. */
      readonly split: Split;
      /** Index of the scenario within the run; for `eval`, in the list of the environment. */
      readonly scenarioIndex: number;
      /** Rewards of the successful rollouts. */
      readonly rewards: readonly number[];
      /** Number of failed rollouts. */
      readonly exceptions: number;
    };

/** Event recorded as a line of `events.jsonl`. */
export type RecordedEvent = RecordedEventBody & {
  /** Line index in `events.jsonl`, from 0. */
  readonly seq: number;
  /** Time of the recording, ISO 8601. */
  readonly time: string;
};

/** Event of a run: a recorded event, or a live event, which has `seq` null. */
export type RunEvent =
  | RecordedEvent
  | (LiveEventBody & {
      /** Null: the event is not recorded. */
      readonly seq: null;
      /** Time of the event, ISO 8601. */
      readonly time: string;
    });

/** Converts an event to its on-disk form: keys in snake_case, metric names unchanged. */
export function eventToDisk(event: RunEvent): Record<string, unknown> {
  return Object.fromEntries(Object.entries(event).map(([key, value]) => [snakeCase(key), value]));
}

/** Converts a line of `events.jsonl` to an event: the inverse of {@link eventToDisk}. */
export function eventFromDisk(line: z.infer<typeof numberedEventLine>): RecordedEvent {
  return Object.fromEntries(Object.entries(line).map(([key, value]) => [camelCase(key), value])) as unknown as RecordedEvent;
}
