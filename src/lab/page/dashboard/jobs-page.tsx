/** Page of the training jobs of the service. */
import { useEffect, useState } from "preact/hooks";
import type { ModelList, TrainingJob, TrainingJobList } from "../../../base/schema/index.ts";
import { seconds } from "../components/format.ts";
import { type Column, DataTable } from "../components/table.tsx";
import { ConfirmButton } from "./confirm-button.tsx";
import { send, useResource } from "./requests.ts";
import { href } from "./router.ts";
import { Loaded, Problem, State, updatedColumn } from "./status.tsx";

/** Interval in milliseconds at which the list is read again while a job is queued or running; otherwise five times as long. */
const REFRESH_MS = 2000;
/** Max jobs in the list. */
const PAGE_JOBS = 100;

/** Training jobs of the service: the queue first, then the finished ones. */
export function JobsPage() {
  const [version, setVersion] = useState(0);
  const [failure, setFailure] = useState<Error | null>(null);
  const jobs = useResource<TrainingJobList>(`/v1/preview/training-jobs?limit=${PAGE_JOBS}`, version);
  const models = useResource<ModelList>("/v1/preview/models?limit=100");
  const refresh = () => setVersion((before) => before + 1);
  const isActive = jobs.value?.data.some(isOpen) ?? false;
  useEffect(() => {
    const timer = setInterval(refresh, isActive ? REFRESH_MS : 5 * REFRESH_MS);
    return () => clearInterval(timer);
  }, [isActive]);
  const names = new Map(models.value?.data.map(({ id, entity, project, name }) => [id, `${entity}/${project}/${name}`]));
  const cancel = async (id: string) => {
    setFailure(null);
    try {
      await send(`/v1/preview/training-jobs/${encodeURIComponent(id)}/cancel`, { method: "POST" });
    } catch (error) {
      setFailure(error as Error);
    }
    refresh();
  };
  return (
    <section aria-labelledby="jobs-title">
      <h1 id="jobs-title">Jobs</h1>
      {failure && <Problem error={failure} />}
      <Loaded resource={jobs} what="jobs">
        {({ data, has_more: hasMore }) =>
          data.length === 0 ? (
            <p class="empty">
              No job has been submitted. A training run submits one job per step; SFT and preference training submit one for all their data.
            </p>
          ) : (
            <>
              <JobTable jobs={inOrder(data)} names={names} onCancel={(id) => void cancel(id)} />
              {hasMore && <p class="left-out">{`The newest ${PAGE_JOBS} jobs are shown. whetstone jobs lists all of them.`}</p>}
            </>
          )
        }
      </Loaded>
    </section>
  );
}

/** Whether a job is unfinished. */
function isOpen({ status }: TrainingJob): boolean {
  return status === "queued" || status === "running";
}

/** Returns running jobs, then queued ones in the order of their start, then finished ones, newest first. */
function inOrder(jobs: readonly TrainingJob[]): readonly TrainingJob[] {
  const withStatus = (status: string) => jobs.filter((job) => job.status === status);
  return [...withStatus("running"), ...withStatus("queued").toReversed(), ...jobs.filter((job) => !isOpen(job))];
}

/** Properties of {@link JobTable}. */
interface JobTableProps {
  readonly jobs: readonly TrainingJob[];
  /** Names of models by id. */
  readonly names: ReadonlyMap<string, string>;
  readonly onCancel: (id: string) => void;
}

/** Table of jobs. */
function JobTable({ jobs, names, onCancel }: JobTableProps) {
  const now = Date.now();
  const queue = jobs.filter(({ status, paused }) => status === "queued" && paused !== true).map(({ id }) => id);
  const columns: Column<TrainingJob>[] = [
    {
      label: "Job",
      isHead: true,
      cell: ({ id, status, error_message: message }) => (
        <>
          <code title={id}>{id.slice(0, 8)}</code>
          {message && <small class={status === "failed" ? "bad" : undefined}>{message}</small>}
        </>
      ),
    },
    {
      label: "State",
      cell: ({ id, status, paused }) => (
        <>
          <State name={status ?? "unknown"} />
          {paused === true && <small>paused</small>}
          {queue.includes(id) && <small>{`${queue.indexOf(id) + 1} of ${queue.length} in the queue`}</small>}
        </>
      ),
    },
    { label: "Kind", isLabeled: true, cell: ({ type }) => type ?? "–" },
    { label: "Model", class: "model", isLabeled: true, cell: ({ model_id: id }) => <ModelLink model={names.get(id ?? "")} /> },
    { label: "Checkpoint", kind: "number", isLabeled: true, cell: ({ step }) => step ?? "–" },
    { label: "Duration", kind: "number", isLabeled: true, cell: (job) => duration(job, now) },
    updatedColumn("Submitted", now, (job) => job.created_at),
    {
      label: "Actions",
      kind: "hidden",
      class: "num",
      cell: (job) =>
        isOpen(job) && (
          <ConfirmButton label="Cancel" question="Cancel job?" object={`job ${job.id.slice(0, 8)}`} onConfirm={() => onCancel(job.id)} />
        ),
    },
  ];
  return (
    <div class="table-card">
      <DataTable class="list jobs" columns={columns} rows={jobs} keyOf={({ id }) => id} />
    </div>
  );
}

/** Link to a model; a dash for a deleted one. */
function ModelLink({ model }: { readonly model: string | undefined }) {
  return model === undefined ? "–" : <a href={href(["models"], { model })}>{model}</a>;
}

/** Returns the time of training so far as text. @param now - Milliseconds since 1970. */
function duration({ training_start: start, training_end: end }: TrainingJob, now: number): string {
  if (start === null || start === undefined) return "–";
  const endMs = end ? Date.parse(end) : now;
  return seconds(Math.max(0, (endMs - Date.parse(start)) / 1000));
}
