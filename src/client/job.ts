import type { CallOptions } from "./api.ts";
import type { BatchFinding, FollowOptions } from "./ports.ts";
import type { Service } from "./service.ts";
import type { JobEvent, TrainingJobInfo } from "./wire.ts";

/** Result of a finished job. */
export interface JobResult {
  /** Step of the checkpoint that the job created. */
  readonly step: number;
  /** Metrics of the last gradient step, overwritten by the metrics of the job's end. Names are the service's. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** A training job. The job runs on the service independently of any follower and can be followed any number of times. */
export class Job {
  readonly id: string;
  readonly modelId: string;
  /** Warnings of preflight about the batch. */
  readonly warnings: readonly BatchFinding[];
  readonly #service: Service;
  readonly #baselineStep: number | null;

  constructor(
    service: Service,
    facts: {
      readonly id: string;
      readonly modelId: string;
      readonly warnings: readonly BatchFinding[];
      readonly baselineStep: number | null;
    },
  ) {
    this.#service = service;
    this.#baselineStep = facts.baselineStep;
    this.id = facts.id;
    this.modelId = facts.modelId;
    this.warnings = facts.warnings;
  }

  /**
   * Follows the job's events from the first to the last.
   *
   * @param options - Signal and time limit.
   * @throws JobFailedError `E_JOB_FAILED` if the job failed.
   * @throws JobCancelledError `E_JOB_CANCELLED` if the job was cancelled.
   * @throws JobTimeoutError `E_JOB_TIMEOUT` after `timeoutMs`.
   */
  events(options: Omit<FollowOptions, "baseline"> = {}): AsyncIterable<JobEvent> {
    const baseline = this.#baselineStep === null ? undefined : { modelId: this.modelId, step: this.#baselineStep };
    return this.#service.follow(this.id, { ...options, baseline });
  }

  /**
   * Waits for the end of the job.
   *
   * @returns the new checkpoint's step and the final metrics.
   * @throws the errors of {@link Job.events}.
   */
  async done(options: Omit<FollowOptions, "baseline"> = {}): Promise<JobResult> {
    let metrics: Readonly<Record<string, number>> = {};
    let step: number | null = null;
    for await (const event of this.events(options)) {
      if (event.type === "gradient-step") metrics = event.metrics;
      if (event.type === "training-ended") {
        metrics = { ...metrics, ...event.metrics };
        step = event.step;
      }
    }
    // The interface's own event has no step. The newest checkpoint belongs to this job, because jobs of one model run in order.
    return { step: step ?? (await this.#service.latestStep(this.modelId, { signal: options.signal })), metrics };
  }

  /**
   * Returns the current state of the job.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  get(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.get(this.id, options);
  }

  /**
   * Cancels the job. Extension.
   *
   * @returns the state of the job.
   * @throws HttpError `E_HTTP` with status 404 or 405 if the service lacks this extension.
   */
  cancel(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.cancel(this.id, options);
  }
}
