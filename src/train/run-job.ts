import { randomUUID } from "node:crypto";
import { ConnectionError, HttpError, type Job, type Model } from "../client/index.ts";
import { WhetstoneError } from "../errors.ts";
import { JobFailedError, pollJob } from "../jobs/index.ts";
import { iterate } from "../jobs/rx.ts";
import { backoffMs } from "../util/backoff.ts";
import { delay } from "../util/delay.ts";
import type { Metrics } from "./events.ts";
import type { RunDirectory } from "./run-directory.ts";
import type { OpenJob } from "./state.ts";

/** How long a service may be away before the run gives up, milliseconds. */
export const PATIENCE_MS = 15 * 60_000;

/** What {@link runJob} needs. */
export interface JobStep {
  readonly directory: RunDirectory;
  readonly model: Model;
  readonly step: number;
  /** The model's newest checkpoint before the job. */
  readonly baselineStep: number;
  /** Failed jobs of one step to try again. */
  readonly jobRetries: number;
  /** Milliseconds to look for the checkpoint of a job that may exist. */
  readonly orphanWaitMs: number;
  /** Sends the job. The same key twice must send the same body. */
  readonly send: (key: string, signal: AbortSignal) => Promise<Job>;
  readonly signal: AbortSignal;
}

/** What became of a step's job. */
export interface JobOutcome {
  /** null when only the job's checkpoint was found. */
  readonly jobId: string | null;
  readonly checkpointStep: number;
  /** The last gradient step's, overlaid with those of the end. */
  readonly metrics: Metrics;
  /** Of every gradient step that is known, in order. */
  readonly gradientSteps: readonly Metrics[];
}

/**
 * One job of a run, from wherever the records say it is: not asked for, perhaps asked for, running, over.
 *
 * The intent is on disk before the request is sent, with the key that makes a repeated request the same job. Where the service
 * honours no keys, an unclear request is not repeated before the model's checkpoints had time to show that it was carried out.
 */
export async function runJob(step: JobStep): Promise<JobOutcome> {
  for (;;) {
    const known = openJob(step);
    const open = known ?? (await intend(step));
    try {
      if (open.jobId !== null) return await follow(step, open, open.jobId);
      // The process that wrote an intent we found may have sent it.
      return await start(step, open, known !== null);
    } catch (error) {
      if (!(error instanceof JobFailedError)) throw error;
      const { failedAttempts } = await step.directory.record({
        type: "job-fail",
        step: step.step,
        attempt: open.attempt,
        message: error.message,
      });
      if (failedAttempts > step.jobRetries) throw error;
    }
  }
}

function openJob({ directory, step }: JobStep): OpenJob | null {
  const { openJob: open } = directory.state;
  return open?.step === step ? open : null;
}

async function intend(step: JobStep): Promise<OpenJob> {
  const { directory, baselineStep } = step;
  const attempt = directory.state.failedAttempts;
  const state = await directory.record({ type: "job-intent", step: step.step, attempt, key: randomUUID(), baselineStep });
  return state.openJob as OpenJob;
}

/** Asks for the job and follows it; `isUnclear`: it may have been asked for before. */
async function start(step: JobStep, open: OpenJob, isUnclear: boolean): Promise<JobOutcome> {
  const sent = await submit(step, open, isUnclear);
  if (typeof sent !== "string") return sent;
  const { openJob: started } = await step.directory.record({ type: "job-start", step: step.step, attempt: open.attempt, jobId: sent });
  return follow(step, started as OpenJob, sent);
}

/**
 * Sends the job until it is surely there: its id, or what it came to where only its checkpoint can be seen. Once it may exist, only a
 * key that the service knows makes another request harmless.
 */
async function submit(step: JobStep, open: OpenJob, isUnclear: boolean): Promise<string | JobOutcome> {
  const { model, signal } = step;
  const startedMs = performance.now();
  let mayExist = isUnclear;
  for (let failures = 0; ; failures++) {
    if (mayExist && model.service.features.idempotencyKeys !== true) {
      const orphan = await findOrphan(step, open);
      if (orphan !== null) return orphan;
      mayExist = false;
    }
    try {
      return (await step.send(open.key, signal)).id;
    } catch (error) {
      // The key is known with another body: the settings have changed since, and the job that was asked for then goes on.
      const known = error instanceof HttpError && error.status === 409 ? await findOrphan(step, open) : null;
      if (known !== null) return known;
      if (!isUnavailable(error) || performance.now() - startedMs > PATIENCE_MS) throw error;
      mayExist ||= !(error instanceof ConnectionError && error.isBeforeSend) && !(error instanceof HttpError);
      await delay(backoffMs(failures, { maxMs: 30_000 }), { signal });
    }
  }
}

async function follow(step: JobStep, open: OpenJob, jobId: string): Promise<JobOutcome> {
  const { directory, model, signal } = step;
  const gradientSteps: Metrics[] = [];
  let metrics: Metrics = {};
  let checkpointStep: number | null = null;
  const baseline = { modelId: model.id, step: open.baselineStep };
  // As patient as can be: the job runs on whatever becomes of the connection, and a restarted service takes it up again.
  for await (const event of iterate(pollJob(model.service, jobId, { signal, baseline, maxFailures: 60 }))) {
    if (event.type === "gradient-step") {
      metrics = event.metrics;
      gradientSteps.push(metrics);
      if (event.id !== null && open.seen.has(event.id)) continue;
      await directory.record({ type: "gradient-step", step: step.step, jobId, jobEventId: event.id, metrics });
    }
    if (event.type === "warning" && (event.id === null || !open.seen.has(event.id))) {
      const { id: jobEventId, code, message } = event;
      await directory.record({ type: "warning", step: step.step, code, count: 1, message, jobEventId });
    }
    if (event.type === "training-ended") {
      metrics = { ...metrics, ...event.metrics };
      checkpointStep = event.step;
    }
  }
  return { jobId, checkpointStep: checkpointStep ?? (await model.step({ signal })), metrics, gradientSteps };
}

/** The checkpoint that a job nobody has the id of made, if it shows up; null when the request surely came to nothing. */
async function findOrphan({ model, signal, orphanWaitMs }: JobStep, { baselineStep }: OpenJob): Promise<JobOutcome | null> {
  const startedMs = performance.now();
  for (let looks = 0; ; looks++) {
    const [newest] = await model.service.checkpoints.list(model.id, { order: "desc", max: 1, signal });
    if (newest !== undefined && newest.step > baselineStep)
      return { jobId: null, checkpointStep: newest.step, metrics: newest.metrics, gradientSteps: [] };
    if (performance.now() - startedMs > orphanWaitMs) return null;
    await delay(backoffMs(looks, { maxMs: 5_000 }), { signal });
  }
}

/** Whether the service is away or busy, and the same call may do later. */
export function isUnavailable(error: unknown): boolean {
  return WhetstoneError.isInstance(error) && error.retryable && (error instanceof ConnectionError || error instanceof HttpError);
}
