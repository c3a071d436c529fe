import type { Observable } from "rxjs";
import type { ModelCheckpoint, Service } from "../client/index.ts";
import { WhetstoneError } from "../../base/errors.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { rxjs } from "./rxjs.ts";
import { JobTimeoutError } from "./errors.ts";
import { abortOf, failWith, fromAbortable } from "./rx.ts";

/** Parts of a service that watching uses. */
export type CheckpointSource = Pick<Service, "checkpoints">;

/** Options of {@link watchCheckpoints}. */
export interface WatchCheckpointsOptions {
  /** Step after which checkpoints are emitted. @default -1, all of them */
  readonly afterStep?: number | undefined;
  /** Initial pause between polls in milliseconds, jittered; doubles up to `maxIntervalMs` while no checkpoint appears. @default 1000 */
  readonly intervalMs?: number | undefined;
  /** Maximum pause between polls in milliseconds. @default 15_000 */
  readonly maxIntervalMs?: number | undefined;
  /** Maximum time without a new checkpoint in milliseconds, after which `E_JOB_TIMEOUT` is raised. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Maximum number of consecutive failed polls, each with the client's own retries. @default 10 */
  readonly maxFailures?: number | undefined;
  /** Stops watching: the observable errors with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Result of one poll of the checkpoint list. */
interface Look {
  readonly fresh: readonly ModelCheckpoint[];
  readonly newest: number;
  readonly idleLooks: number;
}

/**
 * Emits the checkpoints of a model by step: first the existing ones, then each new one. Never completes by itself.
 *
 * Works with every service that implements the interface, because only the checkpoint list is read. Unsubscribing stops the polling, never
 * a job.
 *
 * @param service - Service that stores the checkpoints.
 * @param modelId - ID of the model.
 * @param options - First step, intervals, limits and a signal.
 * @returns Observable of checkpoints; each subscription polls separately.
 * @throws JobTimeoutError `E_JOB_TIMEOUT` after `timeoutMs` without a new checkpoint, as error of the Observable.
 * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` after `maxFailures` failed polls; the signal's reason.
 * @example
 * ```ts
 * import { take } from "rxjs";
 *
 * watchCheckpoints(service, model.id, { afterStep: 0 })
 *   .pipe(take(3))
 *   .subscribe(({ step, metrics }) => console.log(step, metrics));
 * ```
 */
export function watchCheckpoints(
  service: CheckpointSource,
  modelId: string,
  options: WatchCheckpointsOptions = {},
): Observable<ModelCheckpoint> {
  const { concatMap, defer, expand, from, of, retry, switchMap, throwError, timer } = rxjs();
  const { afterStep = -1, intervalMs = 1000, maxIntervalMs = 15_000, timeoutMs, maxFailures = 10, signal } = options;
  const look = (newest: number, idleLooks: number): Observable<Look> =>
    fromAbortable(async (inner) => {
      const all = await service.checkpoints.list(modelId, { signal: inner });
      const fresh = all.filter(({ step }) => step > newest).sort((a, b) => a.step - b.step);
      return { fresh, newest: fresh.at(-1)?.step ?? newest, idleLooks: fresh.length > 0 ? 0 : idleLooks + 1 };
    }).pipe(
      retry({
        count: maxFailures,
        delay: (error: unknown, failures) =>
          WhetstoneError.isInstance(error) && error.retryable
            ? timer(backoffMs(failures - 1, { maxMs: 30_000 }))
            : throwError(() => error as Error),
      }),
    );
  return defer(() => {
    let lastNewsMs = performance.now();
    const looks = look(afterStep, 0).pipe(
      expand(({ fresh, newest, idleLooks }) => {
        const now = performance.now();
        if (fresh.length > 0) lastNewsMs = now;
        const leftMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : lastNewsMs + timeoutMs - now;
        if (leftMs <= 0) return throwError(() => timeoutOf(modelId, timeoutMs as number));
        return timer(Math.min(leftMs, backoffMs(idleLooks, { baseMs: intervalMs, maxMs: maxIntervalMs }))).pipe(
          switchMap(() => look(newest, idleLooks)),
        );
      }),
      concatMap(({ fresh }) => (fresh.length === 0 ? of<ModelCheckpoint>() : from(fresh))),
    );
    return signal === undefined ? looks : looks.pipe(failWith(abortOf(signal)));
  });
}

function timeoutOf(modelId: string, timeoutMs: number): JobTimeoutError {
  return new JobTimeoutError(`Model ${modelId} had no new checkpoint for ${timeoutMs} ms. Its jobs go on; look again, or cancel them`, {
    jobId: null,
  });
}
