import type { Finding } from "../trajectory/index.ts";
import type { CallOptions } from "./api.ts";
import type { Service } from "./service.ts";
import type { JobEvent, TrainingJobInfo } from "./wire.ts";

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
 * What follows a job to its end: a port, so that this room needs no RxJS.
 *
 * Ends after `training-ended`; throws `E_JOB_FAILED`, `E_JOB_CANCELLED` or `E_JOB_TIMEOUT` otherwise. Leaving the loop
 * stops the following and nothing else.
 */
export type FollowJob = (service: Service, jobId: string, options: FollowOptions) => AsyncIterable<JobEvent>;

/** What a job came to. */
export interface JobResult {
  /** The checkpoint it made. */
  readonly step: number;
  /** The last gradient step's metrics, overlaid with those of the end. Names are the service's. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** A training job. It runs on the service whether anybody follows it or not; follow it as often as you like. */
export class Job {
  readonly id: string;
  readonly modelId: string;
  /** What preflight found worth saying about the batch. */
  readonly warnings: readonly Finding[];
  readonly #service: Service;
  readonly #baselineStep: number | null;

  constructor(
    service: Service,
    facts: { readonly id: string; readonly modelId: string; readonly warnings: readonly Finding[]; readonly baselineStep: number | null },
  ) {
    this.#service = service;
    this.#baselineStep = facts.baselineStep;
    this.id = facts.id;
    this.modelId = facts.modelId;
    this.warnings = facts.warnings;
  }

  /**
   * The job's events from the first to the last.
   *
   * @throws JobFailedError `E_JOB_FAILED`, JobCancelledError `E_JOB_CANCELLED`, JobTimeoutError `E_JOB_TIMEOUT`.
   */
  events(options: Omit<FollowOptions, "baseline"> = {}): AsyncIterable<JobEvent> {
    const baseline = this.#baselineStep === null ? undefined : { modelId: this.modelId, step: this.#baselineStep };
    return this.#service.follow(this.id, { ...options, baseline });
  }

  /** Waits for the end. @throws as {@link Job.events}. */
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
    // The interface's own event carries no step: the newest checkpoint is the job's, since jobs of a model run in order.
    return { step: step ?? (await this.#service.latestStep(this.modelId, { signal: options.signal })), metrics };
  }

  /** The job as the service has it now. */
  get(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.get(this.id, options);
  }

  /** Asks the service to end it. An extension: a service without it answers `E_HTTP` with status 404 or 405. */
  cancel(options: CallOptions = {}): Promise<TrainingJobInfo> {
    return this.#service.trainingJobs.cancel(this.id, options);
  }
}
