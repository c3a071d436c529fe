import type { Observable } from "rxjs";
import type { ModelCheckpoint, Service } from "../client/index.ts";
import { WhetstoneError } from "../errors.ts";
import { backoffMs } from "../util/backoff.ts";
import { rxjs } from "./rxjs.ts";
import { JobTimeoutError } from "./errors.ts";
import { abortOf, failWith, fromAbortable } from "./rx.ts";

/** What watching needs of a service. */
export type CheckpointSource = Pick<Service, "checkpoints">;

/** Options of {@link watchCheckpoints}. */
export interface WatchCheckpointsOptions {
  /** Only checkpoints of later steps. @default -1, all of them */
  readonly afterStep?: number | undefined;
  /** The first pause between two looks, milliseconds; it doubles while nothing comes, up to `maxIntervalMs`, jittered. @default 1000 */
  readonly intervalMs?: number | undefined;
  /** @default 15_000 */
  readonly maxIntervalMs?: number | undefined;
  /** Milliseconds without a new checkpoint after which it fails with `E_JOB_TIMEOUT`. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Failed looks in a row before giving up; each has the client's own retries within. @default 10 */
  readonly maxFailures?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** One look at the list, and what is known after it. */
interface Look {
  readonly fresh: readonly ModelCheckpoint[];
  readonly newest: number;
  readonly idleLooks: number;
}

/**
 * The checkpoints of a model as they appear, by step: first those that are there, then each new one. Never completes by itself.
 *
 * Works on every service of the interface, for it only reads the list of checkpoints. Unsubscribing stops the looking and nothing else.
 *
 * Errors with {@link JobTimeoutError} `E_JOB_TIMEOUT`, the signal's reason, or what the client raised.
 *
 * @example
 * ```ts
 * watchCheckpoints(service, model.id, { afterStep: 0 }).pipe(take(3)).subscribe(({ step, metrics }) => console.log(step, metrics));
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
