/**
 * What the client is given instead of importing it: following jobs needs RxJS, examining a batch needs trajectories, and this
 * room knows neither. The package root puts them together.
 */
import type { TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import type { Service } from "./service.ts";
import type { JobEvent } from "./wire.ts";

/** How a job is followed. */
export interface FollowOptions {
  /** Ends the following, not the job. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for the whole job; then `E_JOB_TIMEOUT`. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Lets a service without job events and status show the end: the job is over once the model has a newer checkpoint. */
  readonly baseline?: { readonly modelId: string; readonly step: number } | undefined;
}

/**
 * Follows a job to its end.
 *
 * Ends after `training-ended`; throws `E_JOB_FAILED`, `E_JOB_CANCELLED` or `E_JOB_TIMEOUT` otherwise. Leaving the loop
 * stops the following and nothing else.
 */
export type FollowJob = (service: Service, jobId: string, options: FollowOptions) => AsyncIterable<JobEvent>;

/** Something worth knowing about a batch: a preflight `Finding`. */
export interface BatchFinding {
  readonly code: string;
  readonly severity: "fatal" | "warning";
  readonly count: number;
  readonly examples: readonly string[];
  readonly message: string;
}

/** Examines a batch before it is sent: gives the warnings, throws `E_PREFLIGHT` for one that cannot be trained. */
export type ExamineBatch = (groups: readonly WireTrajectoryGroup[], options?: ExamineOptions) => readonly BatchFinding[];

/** What a job allows that others do not: options of `preflight`. */
export interface ExamineOptions {
  readonly allowsUnknownLogprobs?: boolean | undefined;
  readonly rendersTokenIds?: boolean | undefined;
}

/** What {@link connectWith} needs. */
export interface ClientPorts {
  readonly followJob: FollowJob;
  readonly examineBatch: ExamineBatch;
}
