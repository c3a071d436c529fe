/** Handle of a training job: its events, its result and its state. */
import type { CallOptions } from "./api.ts";
import type { BatchFinding, FollowOptions } from "./ports.ts";
import type { Service } from "./service.ts";
import type { JobEvent, TrainingJobInfo } from "./wire.ts";

/** Result of a finished job. */
export interface JobResult {
  /** Step of the checkpoint that the job created. */
  readonly step: number;
  /** Metrics of the last gradient step; the final metrics of the job replace equal names. Names are the service's. */
  readonly metrics: Readonly<Record<string, number>>;
}

/**
 * A training job, returned by {@link Model.train}, {@link Model.trainSft} and {@link Model.trainPreferences}. The job runs on the service
 * independently of any follower and can be followed any number of times.
 *
 * @example
 * ```ts
 * const job = await model.train(groups);
 * for await (const event of job.events({ timeoutMs: 600_000 })) {
 *   if (event.type === "gradient-step") console.log(event.metrics);
 * }
 * const { step, metrics } = await job.done();
 * console.log(step, metrics);
 * ```
 */
export class Job {
  /** UUID of the job. */
  readonly id: string;
  /** UUID of the trained model. */
  readonly modelId: string;
  /** Warnings of preflight about the batch. */
  readonly warnings: readonly BatchFinding[];
  readonly #service: Service;
  readonly #baselineStep: number | null;

  /**
   * Creates a handle; users get jobs from {@link Model}.
   *
   * @internal
   */
  constructor(
    service: Service,
    facts: {
      /** UUID of the job. */
      readonly id: string;
      /** UUID of the trained model. */
      readonly modelId: string;
      /** Warnings of preflight about the batch. */
      readonly warnings: readonly BatchFinding[];
      /** Newest step of the model before the job; null if the service has job events, or if the step is unknown. */
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
   * @returns the events, `training-started` first and `training-ended` last; each iteration follows the job anew.
   * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` after repeated failures; the signal's reason.
   */
  events(options: Omit<FollowOptions, "baseline"> = {}): AsyncIterable<JobEvent> {
    const baseline = this.#baselineStep === null ? undefined : { modelId: this.modelId, step: this.#baselineStep };
    return this.#service.follow(this.id, { ...options, baseline });
  }

  /**
   * Waits for the end of the job.
   *
   * @param options - Signal and time limit.
   * @returns the new checkpoint's step and the final metrics.
   * @throws JobFailedError `E_JOB_FAILED`, JobCancelledError `E_JOB_CANCELLED`, or JobTimeoutError `E_JOB_TIMEOUT` after `timeoutMs`.
   * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` after repeated failures; the signal's reason.
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
    // Services without the extension report no step. The newest checkpoint is then the job's: jobs of one model run one after the other.
    return { step: step ?? (await this.#service.latestStep(this.modelId, { signal: options.signal })), metrics };
  }

  /**
   * Returns the current state of the job.
   *
   * @param options - Signal and time limit.
   * @returns the state; a service that implements only the interface fills in just `id`.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { status, step } = await job.get();
   * ```
   */
  get(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.get(this.id, options);
  }

  /**
   * Cancels the job; a running job stops at its next step. Extension.
   *
   * @param options - Signal and time limit.
   * @returns the state of the job.
   * @throws HttpError `E_HTTP` with status 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response.
   * @example
   * ```ts
   * await job.cancel();
   * ```
   */
  cancel(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.cancel(this.id, options);
  }
}
