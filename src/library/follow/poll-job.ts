import type { Observable } from "rxjs";
import { UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import { HttpError, type FollowOptions, type JobEvent, type Service } from "../client/index.ts";
import type { FollowJob } from "../client/ports.ts";
import { jobEventFromWire } from "../client/wire.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { rxjs } from "./rxjs.ts";
import { JobCancelledError, JobFailedError, JobTimeoutError } from "./errors.ts";
import { abortOf, failWith, fromAbortable, iterate } from "./rx.ts";

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

/** Result of one poll, and the next poll with the pause before it. */
interface Look {
  readonly events: readonly JobEvent[];
  readonly pauseMs: number;
  readonly next: Observable<Look>;
}

/**
 * Follows a training job: emits its events from the first one on and completes after `training-ended`.
 *
 * Uses long polling if the service supports it, else short polling; retries transient errors. If the service has no events route (404 or
 * 405), the job's status is polled; if it reports no status, the newest checkpoint of the job's model. The latter requires `baseline`, and
 * a failed job then looks like one that never ends, so pass `timeoutMs`. Unsubscribing stops the polling, never the job. All errors are
 * errors of the Observable, after the corresponding event.
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
  const { concatMap, defer, EMPTY, expand, from, switchMap, timer } = rxjs();
  const context: Context = { service, jobId, intervalMs, maxFailures, onRetry, baseline };
  const looks = defer(() =>
    service.features.jobEvents === false ? statusLook(context, false) : eventsLook(context, undefined, waitSeconds),
  );
  let events = looks.pipe(
    expand((look) =>
      look.events.some(isLast) ? EMPTY : look.pauseMs === 0 ? look.next : timer(look.pauseMs).pipe(switchMap(() => look.next)),
    ),
    concatMap((look) => from(look.events)),
    concatMap((event) => endOf(jobId, event)),
  );
  if (timeoutMs !== undefined) events = events.pipe(failWith(timeoutOf(jobId, timeoutMs)));
  return signal === undefined ? events : events.pipe(failWith(abortOf(signal)));
}

interface Context {
  readonly service: JobSource;
  readonly jobId: string;
  readonly intervalMs: number;
  readonly maxFailures: number;
  readonly onRetry: (error: WhetstoneError) => void;
  readonly baseline: FollowOptions["baseline"];
}

/** Polls one page of events. */
function eventsLook(context: Context, after: string | undefined, waitSeconds: number): Observable<Look> {
  const { defer, map } = rxjs();
  const { service, jobId } = context;
  let startedAtMs = 0;
  return fromAbortable((signal) => {
    startedAtMs = performance.now();
    return service.trainingJobs.events(jobId, { after, signal, ...(waitSeconds > 0 ? { waitSeconds } : {}) });
  }).pipe(
    map((page): Look => {
      service.features.jobEvents = true;
      const cursor = page.last_id || page.data.at(-1)?.id || after;
      // An empty response at once comes from a service without long polling; a late one is the regular end of a long poll.
      const isHeld = waitSeconds > 0 && performance.now() - startedAtMs > waitSeconds * 500;
      return {
        events: page.data.map(jobEventFromWire),
        pauseMs: page.data.length > 0 || isHeld ? 0 : jittered(context.intervalMs),
        next: defer(() => eventsLook(context, cursor, waitSeconds)),
      };
    }),
    persevering(context, (error) => {
      if (!(error instanceof HttpError)) return null;
      const isRouteMissing = error.status === 405 || (error.status === 404 && service.features.jobEvents !== true);
      if (isRouteMissing) return statusLook(context, false);
      const isWaitRefused = waitSeconds > 0 && (error.status === 400 || error.status === 422);
      return isWaitRefused ? eventsLook(context, after, 0) : null;
    }),
  );
}

/** Polls the job's status, or if the service reports none, the newest checkpoint of the job's model. */
function statusLook(context: Context, hasStarted: boolean): Observable<Look> {
  const { defer } = rxjs();
  const { service, jobId } = context;
  return fromAbortable(async (signal): Promise<Look> => {
    const job = await service.trainingJobs.get(jobId, { signal });
    // The job exists, so the missing resource was the events route.
    service.features.jobEvents = false;
    const isRunning = hasStarted || job.status === "running";
    const started: JobEvent[] = isRunning && !hasStarted ? [{ type: "training-started", id: null, gradientSteps: null }] : [];
    const look = (events: readonly JobEvent[]): Look => ({
      events: [...started, ...events],
      pauseMs: jittered(context.intervalMs),
      next: defer(() => statusLook(context, isRunning)),
    });
    switch (job.status) {
      case "queued":
      case "running":
        return look([]);
      case "succeeded":
        return look([{ type: "training-ended", id: null, step: job.step, metrics: {} }]);
      case "failed":
        return look([{ type: "training-failed", id: null, message: job.errorMessage ?? "the service gave no reason" }]);
      case "cancelled":
        return look([{ type: "training-cancelled", id: null }]);
      case null:
        return look(await newCheckpoint(context, signal));
    }
  }).pipe(persevering(context, () => null));
}

async function newCheckpoint({ service, jobId, baseline }: Context, signal: AbortSignal): Promise<JobEvent[]> {
  if (baseline === undefined) {
    throw new UnsupportedError(
      `The service reports neither events nor a status for job ${jobId}. Pass \`baseline: { modelId, step }\` with the model's newest step before the job, or follow the \`Job\` that \`model.train\` returned`,
    );
  }
  const [newest] = await service.checkpoints.list(baseline.modelId, { order: "desc", max: 1, signal });
  if (newest === undefined || newest.step <= baseline.step) return [];
  return [{ type: "training-ended", id: null, step: newest.step, metrics: newest.metrics }];
}

/** Creates an operator that retries transient errors; for any other error, `otherwise` may return a replacement. */
function persevering({ maxFailures, onRetry }: Context, otherwise: (error: unknown) => Observable<Look> | null) {
  const { catchError, retry, throwError, timer } = rxjs();
  return (source: Observable<Look>): Observable<Look> =>
    source.pipe(
      retry({
        count: maxFailures,
        delay: (error: unknown, failures) => {
          if (!WhetstoneError.isInstance(error) || !error.retryable) return throwError(() => error);
          onRetry(error);
          return timer(backoffMs(failures - 1, { maxMs: 30_000 }));
        },
      }),
      catchError((error: unknown) => otherwise(error) ?? throwError(() => error)),
    );
}

function isLast(event: JobEvent): boolean {
  return event.type === "training-ended" || event.type === "training-failed" || event.type === "training-cancelled";
}

/** Emits the event, then the error if the job failed or was cancelled. */
function endOf(jobId: string, event: JobEvent): Observable<JobEvent> {
  const { concat, of, throwError } = rxjs();
  if (event.type === "training-failed") {
    return concat(
      of(event),
      throwError(() => new JobFailedError(`Training job ${jobId} failed: ${event.message}`, { jobId })),
    );
  }
  if (event.type === "training-cancelled") {
    return concat(
      of(event),
      throwError(() => new JobCancelledError(`Training job ${jobId} was cancelled`, { jobId })),
    );
  }
  return of(event);
}

function timeoutOf(jobId: string, timeoutMs: number): Observable<never> {
  const { switchMap, throwError, timer } = rxjs();
  return timer(timeoutMs).pipe(
    switchMap(() =>
      throwError(
        () =>
          new JobTimeoutError(
            `Training job ${jobId} did not finish within ${timeoutMs} ms. It is still running: follow it again, or cancel it`,
            {
              jobId,
            },
          ),
      ),
    ),
  );
}

function jittered(ms: number): number {
  return ms * (0.75 + Math.random() / 2);
}

/** Follows a job like {@link pollJob}, as an AsyncIterable instead of an Observable; implements the client's port. */
export const followJob: FollowJob = (service, jobId, options) => iterate(pollJob(service, jobId, options));
