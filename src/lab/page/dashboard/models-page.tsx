/** Page of trainable models with their checkpoints, and of the use of the disk. */
import { useState } from "preact/hooks";
import type { DiskUse, RunSummary } from "../../dashboard/api.ts";
import type { CheckpointList, ModelList } from "../../../base/schema/index.ts";
import { Scroll } from "../components/controls.tsx";
import { count, number } from "../components/format.ts";
import { type Column, DataTable } from "../components/table.tsx";
import { ago, bytes, timeText } from "../components/time.ts";
import { useResource } from "./requests.ts";
import { href, type PageRoute } from "./router.ts";
import { Loaded, updatedColumn } from "./status.tsx";

/** Trainable models with their checkpoints, and the use of the disk. */
export function ModelsPage({ runs, route }: { readonly runs: readonly RunSummary[] | undefined; readonly route: PageRoute }) {
  const models = useResource<ModelList>("/v1/preview/models?limit=100");
  const disk = useResource<DiskUse>("/ui/api/disk");
  return (
    <>
      <section aria-labelledby="models-title">
        <h1 id="models-title">Models</h1>
        <Loaded resource={models} what="models">
          {({ data }) =>
            data.length === 0 ? (
              <p class="empty">
                No trainable model exists. A run creates its model; base models need none and answer in the{" "}
                <a href={href(["playground"])}>playground</a>.
              </p>
            ) : (
              <ModelTable models={data} opened={route.query.get("model")} />
            )
          }
        </Loaded>
      </section>
      <section aria-labelledby="disk-title">
        <h2 id="disk-title">Disk</h2>
        <Loaded resource={disk} what="disk use">
          {(value) => <Disk disk={value} models={models.value?.data ?? []} runs={runs ?? []} />}
        </Loaded>
      </section>
    </>
  );
}

/** Table of models. @param opened - Full name of the model that the address names; null for none. */
function ModelTable({ models, opened }: { readonly models: ModelList["data"]; readonly opened: string | null }) {
  const columns: Column<ModelList["data"][number]>[] = [
    {
      label: "Model",
      isHead: true,
      cell: (model) => (
        <>
          <b>{nameOf(model)}</b>
          <Checkpoints id={model.id} name={nameOf(model)} total={model.checkpoints} isOpened={nameOf(model) === opened} />
        </>
      ),
    },
    {
      label: "Base model",
      class: "model",
      isLabeled: true,
      cell: ({ base_model: base, lora }) => [base, lora && <small>{`adapter, rank ${lora.rank}`}</small>],
    },
    { label: "Newest checkpoint", kind: "number", isLabeled: true, cell: ({ latest_step: step }) => number(step) },
    { label: "Size", kind: "number", isLabeled: true, cell: (model) => bytes(model.bytes) },
    updatedColumn("Created", Date.now(), (model) => model.created_at),
    {
      label: "Actions",
      kind: "hidden",
      class: "num",
      cell: (model) => (
        <a class="button" href={href(["playground"], { model: nameOf(model) })} aria-label={`Open ${nameOf(model)} in the playground`}>
          Playground
        </a>
      ),
    },
  ];
  return (
    <div class="table-card">
      <DataTable class="list models" columns={columns} rows={models} keyOf={({ id }) => id} />
    </div>
  );
}

/** Returns the full name of a model. */
function nameOf({ entity, project, name }: ModelList["data"][number]): string {
  return `${entity}/${project}/${name}`;
}

/** Properties of {@link Checkpoints}. */
interface CheckpointsProps {
  readonly id: string;
  readonly name: string;
  /** Number of checkpoints of the model. */
  readonly total: number;
  /** Whether the list is open at first, because the address names the model. */
  readonly isOpened: boolean;
}

/** Checkpoints of a model; requested on opening. */
function Checkpoints({ id, name, total, isOpened }: CheckpointsProps) {
  const [isOpen, setOpen] = useState(isOpened);
  const list = useResource<CheckpointList>(isOpen ? `/v1/preview/models/${encodeURIComponent(id)}/checkpoints?limit=100&order=desc` : null);
  const columns: Column<CheckpointList["data"][number]>[] = [
    { label: "checkpoint", isHead: true, cell: ({ step }) => step },
    { label: "size", cell: (checkpoint) => bytes(checkpoint.bytes) },
    { label: "reward", cell: ({ metrics }) => number(metrics["reward/mean"]) },
    { label: "created", title: (each) => timeText(each.created_at), cell: (each) => ago(each.created_at, Date.now()) },
    { label: "", cell: ({ pinned }) => (pinned === true ? "pinned" : "") },
  ];
  return (
    <details open={isOpened} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{count(total, "checkpoint")}</summary>
      {isOpen && (
        <Loaded resource={list} what="checkpoints">
          {({ data }) => (
            <Scroll label={`Checkpoints of ${name}`}>
              <DataTable class="grid" columns={columns} rows={data} keyOf={({ id: checkpoint }) => checkpoint} />
            </Scroll>
          )}
        </Loaded>
      )}
    </details>
  );
}

/** Properties of {@link Disk}. */
interface DiskProps {
  readonly disk: DiskUse;
  readonly models: ModelList["data"];
  readonly runs: readonly RunSummary[];
}

/** Free space, and the sizes of models and runs. */
function Disk({ disk, models, runs }: DiskProps) {
  const columns: Column<DiskUse["runs"][number]>[] = [
    { label: "Run", isHead: true, cell: ({ id }) => <a href={href(["runs", id])}>{runs.find((run) => run.id === id)?.name ?? id}</a> },
    { label: "Size", kind: "number", cell: ({ sizeBytes }) => bytes(sizeBytes) },
  ];
  const usedBytes = disk.totalBytes - disk.freeBytes;
  const modelBytes = models.reduce((sum, model) => sum + model.bytes, 0);
  const runBytes = disk.runs.reduce((sum, run) => sum + run.sizeBytes, 0);
  return (
    <>
      <div class="disk" aria-hidden="true">
        <span style={{ "--share": usedBytes / disk.totalBytes }} />
      </div>
      <p class="about">
        {`${bytes(disk.freeBytes)} free of ${bytes(disk.totalBytes)} · models ${bytes(modelBytes)} · runs ${bytes(runBytes)}`}
      </p>
      {disk.runs.length > 0 && (
        <div class="table-card">
          <DataTable class="list" columns={columns} rows={disk.runs} keyOf={({ id }) => id} />
        </div>
      )}
    </>
  );
}
