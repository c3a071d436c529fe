/** Reports of the runs of training jobs to the observer of the service. A run is one attempt of a job, from its claim to its outcome. */
import { pathOf } from "../common/names.ts";
import type { JobObserver, JobOutcome, ServiceObserver } from "../observability/observer.ts";
import { getJob } from "../store/jobs.ts";
import { getModel } from "../store/models.ts";
import type { JobRow, Store } from "../store/tables.ts";

/** Parts of the service that reports need. */
interface ObservedContext {
  readonly store: Store;
  readonly observer: ServiceObserver;
}

/** Reports the start of a run. Returns the observer of the run; null if the observer of the service observes no jobs. */
export async function observeRun({ store, observer }: ObservedContext, job: JobRow): Promise<JobObserver | null> {
  if (observer.jobStarted === undefined) return null;
  const model = await getModel(store, job.model_id);
  return observer.jobStarted({
    id: job.id,
    type: job.type,
    entity: model.entity,
    model: pathOf(model),
    base: model.base_model,
    committedSteps: job.committed_steps,
    traceparent: job.traceparent,
  });
}

/** Returns the outcome of a run from the row of its job. */
function outcomeOf({ status, is_paused: isPaused }: JobRow): JobOutcome {
  if (status === "queued") return isPaused === 1 ? "paused" : "requeued";
  return status === "running" ? "interrupted" : status;
}

/** Reports the end of a run. Call it once the outcome is recorded in the job's row. */
export async function reportEnd({ store }: ObservedContext, { id }: JobRow, run: JobObserver): Promise<void> {
  const job = await getJob(store, id);
  run.ended(outcomeOf(job), job.error_message);
}

/** Reports the optimizer step of a `gradient_step` event. Ignores other events. */
export function reportStep(run: JobObserver | null, { type, data }: { readonly type: string; readonly data: object }): void {
  if (type === "gradient_step") run?.step(data as Readonly<Record<string, unknown>>);
}
