import type { CallOptions } from "./api.ts";
import type { BatchFinding, FollowOptions } from "./ports.ts";
import type { Service } from "./service.ts";
import type { JobEvent, TrainingJobInfo } from "./wire.ts";

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
