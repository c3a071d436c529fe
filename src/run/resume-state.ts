/** State of a run, derived from its recorded events, from which the run resumes. */

import type { UploadedDataset } from "../library/dataset/index.ts";
import type { RecordedEvent } from "./events.ts";

/** Recorded event of one type. */
type EventOf<Type extends RecordedEvent["type"]> = Extract<RecordedEvent, { readonly type: Type }>;

/** Job with a recorded intent and no recorded end. */
export interface OpenJob extends Pick<EventOf<"job-intent">, "attempt" | "key" | "baselineStep"> {
  /** Null until the response to the request is recorded; still null if the process ended before that. */
  readonly jobId: string | null;
  /** Ids of the job's events that are already recorded. */
  readonly seen: Set<string>;
}

/** Completed step of a run. */
export type CompletedStep = Pick<EventOf<"step-end">, "step" | "policyStep" | "checkpointStep" | "metrics" | "time">;

/** Pass rates of the groups of a prepared step. */
export type PassRatesOfStep = Pick<EventOf<"batch-end">, "step" | "passRates">;

/** Prepared step: its groups are sampled, and the groups to train are selected. */
export type PreparedStep = Pick<EventOf<"batch-end">, "step" | "passRates" | "sampled">;

/** Completed evaluation. `step` is the number of steps of the run completed before the evaluation. */
export type CompletedEvaluation = Pick<EventOf<"evaluation-end">, "step" | "checkpointStep" | "metrics" | "time">;

/**
 * State from which a run resumes. It is a pure function of the recorded events, so that a crash between any two events leads to one of a
 * few known states.
 */
export interface ResumeState {
  /** Time of the start of the run, ISO 8601; null before the run has begun. */
  readonly startTime: string | null;
  /** The model's newest checkpoint step at the start of the run; null before the run has begun. */
  readonly startCheckpoint: number | null;
  /** Completed steps, including skipped ones, in order. */
  readonly steps: readonly CompletedStep[];
  /** Prepared steps by step number, including steps prepared ahead of training. */
  readonly prepared: ReadonlyMap<number, PreparedStep>;
  /** Completed evaluations, in order. */
  readonly evaluations: readonly CompletedEvaluation[];
  /** Job of the current step whose end is not recorded; null without one. */
  readonly openJob: (OpenJob & { readonly step: number }) | null;
  /** Number of failed jobs of the current step. */
  readonly failedAttempts: number;
  /** Steps of the model's checkpoints that the run has deleted. */
  readonly deletedCheckpoints: ReadonlySet<number>;
  /** Settings of the newest start that may change at a resume; null in runs of earlier versions. */
  readonly settings: Readonly<Record<string, unknown>> | null;
  /** Total steps requested at the newest start of the run. */
  readonly plannedSteps: number;
  /** Reason why the run ended before its planned steps; null if it did not. */
  readonly end: "early-stop" | "nothing-to-learn" | null;
  /** Dataset of each supervised step, by step number. */
  readonly data: ReadonlyMap<number, UploadedDataset>;
}

/** State of a run without events. */
const EMPTY_STATE: ResumeState = {
  startTime: null,
  startCheckpoint: null,
  steps: [],
  prepared: new Map(),
  evaluations: [],
  openJob: null,
  failedAttempts: 0,
  deletedCheckpoints: new Set(),
  settings: null,
  plannedSteps: 0,
  end: null,
  data: new Map(),
};

/** Returns the state after one more event. */
export function nextState(state: ResumeState, event: RecordedEvent): ResumeState {
  switch (event.type) {
    case "run-start":
      return {
        ...state,
        startTime: event.time,
        startCheckpoint: event.checkpointStep,
        plannedSteps: event.steps,
        settings: event.settings ?? null,
      };
    case "run-resume":
      return { ...state, plannedSteps: event.steps, settings: event.settings ?? null, end: null };
    case "run-end":
      return { ...state, end: event.reason === "early-stop" || event.reason === "nothing-to-learn" ? event.reason : null };
    case "job-intent":
      return { ...state, openJob: { ...event, jobId: null, seen: new Set() } };
    case "job-start":
      return state.openJob === null ? state : { ...state, openJob: { ...state.openJob, jobId: event.jobId } };
    case "gradient-step":
    case "warning":
      if (state.openJob === null || (event.jobEventId ?? null) === null) return state;
      // Mutated in place: a supervised job has thousands of these events, and copying the set for each would be quadratic.
      state.openJob.seen.add(event.jobEventId as string);
      return state;
    case "job-fail":
      return { ...state, openJob: null, failedAttempts: state.failedAttempts + 1 };
    case "step-end":
      return { ...state, openJob: null, failedAttempts: 0, steps: [...state.steps, event] };
    case "batch-end": {
      const { step, sampled, passRates } = event;
      return { ...state, prepared: new Map([...state.prepared, [step, { step, sampled, passRates }]]) };
    }
    case "evaluation-end":
      return { ...state, evaluations: [...state.evaluations, event] };
    case "checkpoints-delete":
      return { ...state, deletedCheckpoints: new Set([...state.deletedCheckpoints, ...event.steps]) };
    case "data-end":
      return { ...state, data: new Map([...state.data, [event.step, { url: event.url, validationUrl: event.validationUrl ?? null }]]) };
    case "step-start":
    case "rollouts-end":
    case "step-skip":
    case "evaluation-start":
    case "run-fail":
      return state;
  }
}

/** Returns the state after all events of a run. */
export function stateOf(events: Iterable<RecordedEvent>): ResumeState {
  let state = EMPTY_STATE;
  for (const event of events) state = nextState(state, event);
  return state;
}

/** Returns the model's checkpoint step after the newest completed step; null before the run has begun. */
export function newestCheckpointStep(state: ResumeState): number | null {
  return state.steps.at(-1)?.checkpointStep ?? state.startCheckpoint;
}
