/** Watching of a model's checkpoints by polling their list. */
import type { Observable } from "rxjs";
import type { ModelCheckpoint, Service } from "../client/index.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import { JobTimeoutError } from "./errors.ts";
import { observe, pollWithRetries } from "./rx.ts";

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
  const { afterStep = -1, intervalMs = 1000, maxIntervalMs = 15_000, timeoutMs = Infinity, maxFailures = 10, signal } = options;
  const watch = async (emit: (checkpoint: ModelCheckpoint) => void, stop: AbortSignal): Promise<void> => {
    let newestStep = afterStep;
    /** Consecutive polls without a new checkpoint. */
    let idlePolls = 0;
    /** Time of the last poll with a new checkpoint, or of the start. */
    let lastNewMs = performance.now();
    for (;;) {
      const all = await pollWithRetries(() => service.checkpoints.list(modelId, { signal: stop }), stop, { maxFailures });
      const added = all.filter(({ step }) => step > newestStep).sort((a, b) => a.step - b.step);
      added.forEach(emit);
      const nowMs = performance.now();
      const newest = added.at(-1);
      if (newest === undefined) {
        idlePolls++;
      } else {
        newestStep = newest.step;
        idlePolls = 0;
        lastNewMs = nowMs;
      }
      const remainingMs = lastNewMs + timeoutMs - nowMs;
      if (remainingMs <= 0) throw timeoutError(modelId, timeoutMs);
      const pauseMs = backoffMs(idlePolls, { baseMs: intervalMs, maxMs: maxIntervalMs });
      await delay(Math.min(remainingMs, pauseMs), { signal: stop });
    }
  };
  return observe(watch, { signal });
}

/** Creates the error of a model without a new checkpoint within the timeout. */
function timeoutError(modelId: string, timeoutMs: number): JobTimeoutError {
  return new JobTimeoutError(`Model ${modelId} had no new checkpoint for ${timeoutMs} ms. Its jobs go on; look again, or cancel them`, {
    jobId: null,
  });
}
