/**
 * Following of a training job by polling, from the richest source that the service has: its events, else the job's status, else the newest
 * checkpoint of the model.
 */
import type { Observable } from "rxjs";
import { UnsupportedError, type WhetstoneError } from "../../base/errors.ts";
import { HttpError, type FollowOptions, type JobEvent, type Service } from "../client/index.ts";
import type { FollowJob } from "../client/ports.ts";
import { jobEventFromWire, NO_REASON } from "../client/wire.ts";
import { delay } from "../../base/util/delay.ts";
import { JobCancelledError, JobFailedError, JobTimeoutError } from "./errors.ts";
import { iterate, observe, pollWithRetries } from "./rx.ts";

/** Parts of a service that polling uses. */
export type JobSource = Pick<Service, "trainingJobs" | "checkpoints" | "features">;

/** Options of {@link pollJob}. */
export interface PollJobOptions extends FollowOptions {
  /** Pause in milliseconds after a response without events from a service without long polling, jittered by ±25 %. @default 1000 */
  readonly intervalMs?: number | undefined;
  /** Maximum time in seconds for which the service may hold a request until there are events; 0 disables long polling. @default 20 */
  readonly waitSeconds?: number | undefined;
  /** Maximum number of consecutive failed polls, each with the client's own retries. @default 10 */
  readonly maxFailures?: number | undefined;
  /** Called with the error of each failed poll that is retried. @default not called */
  readonly onRetry?: ((error: WhetstoneError) => void) | undefined;
}

/**
 * Follows a training job: emits its events from the first one on and completes after `training-ended`.
 *
 * Uses long polling if the service supports it, else short polling; retries transient errors. If the service has no events route (404 or
 * 405), the job's status is polled. If the service reports no status either, the newest checkpoint of the job's model is polled. This
 * requires `baseline`; pass `timeoutMs`, too, because a failed job then creates no checkpoint and would be followed forever. Unsubscribing
 * stops the polling, never the job. All errors are errors of the Observable, after the corresponding event.
 *
 * @param service - Service that runs the job.
 * @param jobId - ID of the job.
 * @param options - Intervals, limits, baseline and a signal.
 * @returns Observable of the job's events; each subscription polls separately.
 * @throws JobFailedError `E_JOB_FAILED`, JobCancelledError `E_JOB_CANCELLED`, or JobTimeoutError `E_JOB_TIMEOUT` after `timeoutMs`.
 * @throws UnsupportedError `E_UNSUPPORTED` if the service reports neither events nor a status and `baseline` is missing.
 * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` after `maxFailures` failed polls; the signal's reason.
 * @example
 * ```ts
 * pollJob(service, job.id, { timeoutMs: 600_000 }).subscribe({
 *   next: (event) => console.log(event.type),
 *   error: (error) => console.error(error),
 * });
 * ```
 */
export function pollJob(service: JobSource, jobId: string, options: PollJobOptions = {}): Observable<JobEvent> {
  const { intervalMs = 1000, waitSeconds = 20, maxFailures = 10, onRetry = () => {}, timeoutMs, signal, baseline } = options;
  const context: Context = { service, jobId, intervalMs, waitSeconds, maxFailures, onRetry, baseline };
  const follow = async (emit: (event: JobEvent) => void, stop: AbortSignal): Promise<void> => {
    const pages = service.features.jobEvents === false ? statusPages(context, stop) : eventPages(context, stop);
    for await (const events of pages) {
      for (const event of events) {
        emit(event);
        if (event.type === "training-failed") throw new JobFailedError(`Training job ${jobId} failed: ${event.message}`, { jobId });
        if (event.type === "training-cancelled") throw new JobCancelledError(`Training job ${jobId} was cancelled`, { jobId });
      }
      if (events.some(({ type }) => type === "training-ended")) return;
    }
  };
  const tooLate = `Training job ${jobId} did not finish within ${timeoutMs} ms. It is still running: follow it again, or cancel it`;
  return observe(follow, { signal, timeout: { ms: timeoutMs, error: () => new JobTimeoutError(tooLate, { jobId }) } });
}

/** Service, job and resolved options of one call of {@link pollJob}. */
interface Context {
  readonly service: JobSource;
  readonly jobId: string;
  readonly intervalMs: number;
  readonly waitSeconds: number;
  readonly maxFailures: number;
  readonly onRetry: (error: WhetstoneError) => void;
  readonly baseline: FollowOptions["baseline"];
}

/** Yields page after page of the job's events; without an events route, the events of {@link statusPages}. Never ends by itself. */
async function* eventPages(context: Context, stop: AbortSignal): AsyncGenerator<readonly JobEvent[], void> {
  const { service, jobId } = context;
  let { waitSeconds } = context;
  /** Id of the last received event. */
  let after: string | undefined;
  /** Start of the current request. */
  let startedAtMs = 0;
  const poll = () => {
    startedAtMs = performance.now();
    return service.trainingJobs.events(jobId, { after, signal: stop, ...(waitSeconds > 0 ? { waitSeconds } : {}) });
  };
  for (;;) {
    // An `HttpError` is a value here, because some statuses only mean that the service lacks an extension.
    const page = await pollWithRetries(poll, stop, context).catch((error: unknown) => {
      if (error instanceof HttpError) return error;
      throw error;
    });
    if (page instanceof HttpError) {
      const missing = missingFeature(page, context, waitSeconds);
      if (missing === "route") return yield* statusPages(context, stop);
      if (missing === null) throw page;
      waitSeconds = 0;
      continue;
    }
    service.features.jobEvents = true;
    // An empty response after at least half of the requested time is the regular end of a long poll. An earlier one comes from a service
    // without long polling.
    const isHeld = waitSeconds > 0 && performance.now() - startedAtMs > (waitSeconds / 2) * 1000;
    yield page.data.map(jobEventFromWire);
    // An empty page has no `last_id`, and leaves the position unchanged.
    after = page.last_id || page.data.at(-1)?.id || after;
    if (page.data.length === 0 && !isHeld) await delay(jittered(context.intervalMs), { signal: stop });
  }
}

/** Returns what an error of the events route shows to be missing: the route, or long polling; null for any other error. */
function missingFeature({ status }: HttpError, { service }: Context, waitSeconds: number): "route" | "long-polling" | null {
  // 404 may also mean that the job does not exist; `statusPages` then throws the same error.
  if (status === 405 || (status === 404 && service.features.jobEvents !== true)) return "route";
  return waitSeconds > 0 && (status === 400 || status === 422) ? "long-polling" : null;
}

/** Polls the job's status and yields the events that it implies. Never ends by itself. */
async function* statusPages(context: Context, stop: AbortSignal): AsyncGenerator<readonly JobEvent[], void> {
  let hasStarted = false;
  for (;;) {
    const events = await pollWithRetries(() => statusEvents(context, stop, hasStarted), stop, context);
    hasStarted ||= events.length > 0;
    yield events;
    await delay(jittered(context.intervalMs), { signal: stop });
  }
}

/** Derives new events from the job's status, or if the service reports none, from the newest checkpoint of the job's model. */
async function statusEvents({ service, jobId, baseline }: Context, signal: AbortSignal, hasStarted: boolean): Promise<JobEvent[]> {
  const job = await service.trainingJobs.get(jobId, { signal });
  // The job exists, so the missing resource was the events route.
  service.features.jobEvents = false;
  switch (job.status) {
    case "queued":
      return [];
    case "running":
      return hasStarted ? [] : [{ type: "training-started", id: null, gradientSteps: null }];
    case "succeeded":
      return [{ type: "training-ended", id: null, step: job.step, metrics: {} }];
    case "failed":
      return [{ type: "training-failed", id: null, message: job.errorMessage ?? NO_REASON }];
    case "cancelled":
      return [{ type: "training-cancelled", id: null }];
    case null: {
      if (baseline === undefined) {
        throw new UnsupportedError(
          `The service reports neither events nor a status for job ${jobId}. Pass \`baseline: { modelId, step }\` with the model's newest step before the job, or follow the \`Job\` that \`model.train\` returned`,
        );
      }
      const [newest] = await service.checkpoints.list(baseline.modelId, { order: "desc", max: 1, signal });
      if (newest === undefined || newest.step <= baseline.step) return [];
      return [{ type: "training-ended", id: null, step: newest.step, metrics: newest.metrics }];
    }
  }
}

/** Varies a pause by up to ±25 %. */
function jittered(ms: number): number {
  return ms * (0.75 + Math.random() / 2);
}

/** Follows a job like {@link pollJob}, as an AsyncIterable instead of an Observable; implements the client's port. */
export const followJob: FollowJob = (service, jobId, options) => iterate(pollJob(service, jobId, options));
