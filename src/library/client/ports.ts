/**
 * Functions injected into the client: following jobs needs RxJS and examining a batch needs trajectories, and the client imports neither.
 * The package root provides the implementations.
 */
import type { TrajectoryGroup as WireTrajectoryGroup } from "../../base/schema/index.ts";
import type { Service } from "./service.ts";
import type { JobEvent } from "./wire.ts";

/** Options of following a job. */
export interface FollowOptions {
  /** Stops following; the job continues. */
  readonly signal?: AbortSignal | undefined;
  /** Time limit for the whole job in milliseconds; then `E_JOB_TIMEOUT`. @default no limit */
  readonly timeoutMs?: number | undefined;
  /**
   * Newest checkpoint before the job. On a service without job events and status, the job counts as finished once the model has a newer
   * checkpoint.
   */
  readonly baseline?:
    | {
        /** UUID of the trained model. */
        readonly modelId: string;
        /** Step of the newest checkpoint before the job. */
        readonly step: number;
      }
    | undefined;
}

/**
 * Follows a job to its end.
 *
 * The iteration ends after `training-ended`, and throws `E_JOB_FAILED`, `E_JOB_CANCELLED` or `E_JOB_TIMEOUT` otherwise. Leaving the loop
 * stops following and does not affect the job.
 */
export type FollowJob = (service: Service, jobId: string, options: FollowOptions) => AsyncIterable<JobEvent>;

/** Finding of preflight about a batch, in the form of a preflight `Finding`. */
export interface BatchFinding {
  /** Code of the problem, a `FindingCode`. */
  readonly code: string;
  /** Severity. `fatal`: the batch is rejected. `warning`: the batch can be trained. */
  readonly severity: "fatal" | "warning";
  /** Number of occurrences. */
  readonly count: number;
  /** Paths of the first occurrences. */
  readonly examples: readonly string[];
  /** Description of the problem and how to fix it. */
  readonly message: string;
}

/** Examines a batch before it is sent and returns the warnings. Throws `E_PREFLIGHT` if the batch cannot be trained. */
export type ExamineBatch = (groups: readonly WireTrajectoryGroup[], options?: ExamineOptions) => readonly BatchFinding[];

/** Requirements that a job does not have, so that preflight does not check them; see the options of `preflight`. */
export interface ExamineOptions {
  /** Whether the job trains choices without log-probabilities. @default false */
  readonly allowsUnknownLogprobs?: boolean | undefined;
  /** Whether the service renders choices without token ids through the chat template. @default false */
  readonly rendersTokenIds?: boolean | undefined;
  /** Whether the job does not train trajectories with a turn that ended at the token limit. @default false */
  readonly masksTruncated?: boolean | undefined;
  /** Whether the job computes the advantages of turns from the rewards of the choices. @default false */
  readonly usesTurnRewards?: boolean | undefined;
}

/** Injected functions of {@link connectWith}. */
export interface ClientPorts {
  /** Follower of a job's events. */
  readonly followJob: FollowJob;
  /** Examination of a batch before it is sent. */
  readonly examineBatch: ExamineBatch;
}
