/** Job of a step: requests it at most once in effect, follows it to its end, and repeats it after a failure. */
import { randomUUID } from "node:crypto";
import { ConnectionError, HttpError, type Job, type Model } from "../../library/client/index.ts";
import type { WhetstoneError } from "../../base/errors.ts";
import { isUnavailable } from "../../library/rollout/unavailable.ts";
import { JobFailedError, pollJob } from "../../library/follow/index.ts";
import { iterate } from "../../library/follow/rx.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import type { Metrics } from "../../run/events.ts";
import type { RunDirectory } from "../../run/run-directory.ts";
import type { OpenJob } from "../../run/resume-state.ts";

/** Max time that a service may be unavailable before the run fails, milliseconds. */
export const PATIENCE_MS = 15 * 60_000;

/** Input of {@link awaitJob}. */
export interface JobStep {
  readonly directory: RunDirectory;
  readonly model: Model;
  readonly step: number;
  /** The model's newest checkpoint before the job. */
  readonly baselineStep: number;
  /** Max new jobs after a failed one. */
  readonly jobRetries: number;
  /** Milliseconds to look for the checkpoint of a job that may exist on the service. */
  readonly orphanWaitMs: number;
  /** Requests the job. Requests with the same key must have the same body. */
  readonly send: (key: string, signal: AbortSignal) => Promise<Job>;
  readonly signal: AbortSignal;
}

/** Result of a step's job. */
export interface StepJobResult {
  /** Null if only the job's checkpoint was found. */
  readonly jobId: string | null;
  readonly checkpointStep: number;
  /** Metrics of the last gradient step, overridden by the metrics of the job's end. */
  readonly metrics: Metrics;
  /** Metrics of every known gradient step, in order. */
  readonly gradientSteps: readonly Metrics[];
}

/** Result of a job of which only the checkpoint was found. */
type OrphanResult = StepJobResult & { readonly jobId: null };

/**
 * Runs the job of a step, starting from its recorded state: not requested, possibly requested, or running.
 *
 * The intent is on disk before the request is sent, with the idempotency key that makes a repeated request refer to the same job. If the
 * service does not support idempotency keys, a request without a clear response is repeated only after no checkpoint of its job has
 * appeared within `orphanWaitMs`.
 *
 * @throws JobFailedError `E_JOB_FAILED` if the job failed more than `jobRetries` times.
 */
export async function awaitJob(step: JobStep): Promise<StepJobResult> {
  for (;;) {
    const recordedJob = openJobOf(step);
    const job = recordedJob ?? (await recordIntent(step));
    try {
      if (job.jobId !== null) return await follow(step, job, job.jobId);
      // An intent found on disk may already have been sent by the process that recorded it.
      return await requestAndFollow(step, job, { mayExist: recordedJob !== null });
    } catch (error) {
      if (!(error instanceof JobFailedError)) throw error;
      const failed = { step: step.step, attempt: job.attempt, message: error.message };
      const { failedAttempts } = await step.directory.record({ type: "job-fail", ...failed });
      if (failedAttempts > step.jobRetries) throw error;
    }
  }
}

/** Returns the requested but unfinished job of the step; null if the run has none. */
function openJobOf({ directory, step }: JobStep): OpenJob | null {
  const { openJob } = directory.state;
  return openJob?.step === step ? openJob : null;
}

/** Records that the job will be requested, with its idempotency key. */
async function recordIntent(step: JobStep): Promise<OpenJob> {
  const { directory, baselineStep } = step;
  const attempt = directory.state.failedAttempts;
  const state = await directory.record({ type: "job-intent", step: step.step, attempt, key: randomUUID(), baselineStep });
  return state.openJob as OpenJob;
}

/** Requests the job and follows it. @param options - `mayExist`: whether an earlier process may have requested the job already. */
async function requestAndFollow(step: JobStep, job: OpenJob, options: { readonly mayExist: boolean }): Promise<StepJobResult> {
  const requested = await request(step, job, options);
  if (requested.jobId === null) return requested;
  const { jobId } = requested;
  const { openJob } = await step.directory.record({ type: "job-start", step: step.step, attempt: job.attempt, jobId });
  return follow(step, openJob as OpenJob, jobId);
}

/**
 * Requests the job, with retries, until the service confirms it. Once the job may exist, a retry is harmless only if the service supports
 * idempotency keys; otherwise the job's checkpoint is looked for first.
 *
 * @param options - `mayExist`: whether an earlier process may have requested the job already.
 * @returns The id of the running job, or the result of a job of which only the checkpoint was found.
 */
async function request(
  step: JobStep,
  job: OpenJob,
  options: { readonly mayExist: boolean },
): Promise<{ readonly jobId: string } | OrphanResult> {
  const { model, signal } = step;
  const startedMs = performance.now();
  let { mayExist } = options;
  for (let failures = 0; ; failures++) {
    if (mayExist && model.service.features.idempotencyKeys !== true) {
      const orphan = await findOrphan(step, job);
      if (orphan !== null) return orphan;
      mayExist = false;
    }
    try {
      const { id } = await step.send(job.key, signal);
      return { jobId: id };
    } catch (error) {
      // Status 409: an earlier start of the run requested the job with the same key and other settings. That job counts.
      const isKeyUsed = error instanceof HttpError && error.status === 409;
      const earlierJob = isKeyUsed ? await findOrphan(step, job) : null;
      if (earlierJob !== null) return earlierJob;
      if (!isUnavailable(error) || performance.now() - startedMs > PATIENCE_MS) throw error;
      reportUnavailable(step, error);
      const isRejected = error instanceof HttpError || (error instanceof ConnectionError && error.isBeforeSend);
      mayExist ||= !isRejected;
      await delay(backoffMs(failures, { maxMs: 30_000 }), { signal });
    }
  }
}

/** Waits for the end of a running job. Records its gradient steps and warnings; a resumed run skips the recorded ones by their ids. */
async function follow({ directory, model, step, signal }: JobStep, job: OpenJob, jobId: string): Promise<StepJobResult> {
  const gradientSteps: Metrics[] = [];
  /** Number of gradient steps of the job; null if the service does not report it. */
  let total: number | null = null;
  let metrics: Metrics = {};
  let checkpointStep: number | null = null;
  const baseline = { modelId: model.id, step: job.baselineStep };
  const onRetry = (error: WhetstoneError) => reportUnavailable({ directory, step }, error);
  const isNew = (eventId: string | null) => eventId === null || !job.seen.has(eventId);
  const reportProgress = () => {
    if (total !== null && total > 0) directory.report({ type: "job-progress", step, completed: gradientSteps.length, total });
  };
  // Many retries, because the job keeps running while the connection is lost, and a restarted service resumes it.
  for await (const event of iterate(pollJob(model.service, jobId, { signal, baseline, maxFailures: 60, onRetry }))) {
    if (event.type === "training-started") {
      total = event.gradientSteps;
      reportProgress();
    }
    if (event.type === "gradient-step") {
      metrics = event.metrics;
      gradientSteps.push(metrics);
      reportProgress();
      if (isNew(event.id)) await directory.record({ type: "gradient-step", step, jobId, jobEventId: event.id, metrics });
    }
    if (event.type === "warning" && isNew(event.id)) {
      const { id: jobEventId, code, message } = event;
      await directory.record({ type: "warning", step, code, count: 1, message, jobEventId });
    }
    if (event.type === "training-ended") {
      metrics = { ...metrics, ...event.metrics };
      checkpointStep = event.step;
    }
  }
  return { jobId, checkpointStep: checkpointStep ?? (await model.step({ signal })), metrics, gradientSteps };
}

/**
 * Waits for the checkpoint of a job with an unknown id (an orphan). Returns null if none appears within `orphanWaitMs`; the job is then
 * assumed not to exist.
 */
async function findOrphan({ model, signal, orphanWaitMs }: JobStep, { baselineStep }: OpenJob): Promise<OrphanResult | null> {
  const startedMs = performance.now();
  for (let attempts = 0; ; attempts++) {
    const [newest] = await model.service.checkpoints.list(model.id, { order: "desc", max: 1, signal });
    if (newest !== undefined && newest.step > baselineStep)
      return { jobId: null, checkpointStep: newest.step, metrics: newest.metrics, gradientSteps: [] };
    if (performance.now() - startedMs > orphanWaitMs) return null;
    await delay(backoffMs(attempts, { maxMs: 5_000 }), { signal });
  }
}

/** Reports that a request of a step failed and is repeated. */
export function reportUnavailable({ directory, step }: Pick<JobStep, "directory" | "step">, { message }: WhetstoneError): void {
  directory.report({ type: "service-unavailable", step, message });
}
