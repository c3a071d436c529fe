/** State of the job that the queue runs, and the requests to cancel or pause it, also from other processes. */
import { delay } from "../../base/util/delay.ts";
import type { JobRow } from "../store/tables.ts";
import { LeaseLostError, type JobLeases } from "./leases.ts";

/** Max milliseconds that a request to cancel or pause waits for a running job to stop. */
export const STOP_PATIENCE_MS = 20_000;

/** Job that the queue runs now. */
export interface RunningJob {
  readonly jobId: string;
  readonly controller: AbortController;
  /** Resolves when the job has stopped and its end is recorded. */
  readonly settled: Promise<void>;
  /** Whether the job ends as cancelled, rather than resuming at the next start. */
  isCancelled: boolean;
  /** Whether the job stops after its current step. */
  isPausing: boolean;
  /** Row of the job as this process has claimed it; null before the claim. */
  claimed: JobRow | null;
  /** Whether this process has lost the lease of the job. */
  isLost: boolean;
}

/** Cancels a running job, which ends as soon as its trainer notices. */
export function abortCancelled(running: RunningJob): void {
  running.isCancelled = true;
  running.controller.abort(new DOMException("The training job was cancelled", "AbortError"));
}

/** Renews the lease of a claimed job, and follows the requests that other processes have recorded. Returns a function that stops this. */
export function keepLease(leases: JobLeases, running: RunningJob, claimed: JobRow): () => void {
  running.claimed = claimed;
  return leases.keep(claimed, {
    onLost: () => {
      running.isLost = true;
      running.controller.abort(new LeaseLostError(claimed.id));
    },
    onRequests: ({ cancel_requested: isCancelled, is_paused: isPaused }) => {
      running.isPausing = isPaused === 1;
      if (isCancelled === 1 && !running.isCancelled) abortCancelled(running);
    },
  });
}

/** Waits up to {@link STOP_PATIENCE_MS} until a running job has stopped. */
export async function settledWithin({ settled }: RunningJob): Promise<void> {
  const timeout = new AbortController();
  await Promise.race([settled, delay(STOP_PATIENCE_MS, { signal: timeout.signal }).catch(() => undefined)]);
  timeout.abort();
}
