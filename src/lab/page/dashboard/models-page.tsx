import { useState } from "preact/hooks";
import type { DiskUse, RunSummary } from "../../dashboard/api.ts";
import type { CheckpointList, ModelList } from "../../../base/schema/index.ts";
import { Scroll } from "../components/controls.tsx";
import { count, number } from "../components/format.ts";
import { ago, bytes, timeText } from "../components/time.ts";
import { useResource } from "./requests.ts";
import { href, type Route } from "./router.ts";
import { Loaded } from "./status.tsx";
import { TableHead } from "./table-head.tsx";

/** Trainable models with their checkpoints, and the use of the disk. */
export function ModelsPage({ runs, route }: { readonly runs: readonly RunSummary[] | undefined; readonly route: Route }) {
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

function ModelTable({ models, opened }: { readonly models: ModelList["data"]; readonly opened: string | null }) {
  const now = Date.now();
  return (
    <div class="table-card">
      <table class="list models">
        <TableHead
          columns={[
            "Model",
            "Base model",
            { label: "Newest checkpoint", kind: "number" },
            { label: "Size", kind: "number" },
            { label: "Created", kind: "number" },
            { label: "Actions", kind: "hidden" },
          ]}
        />
        <tbody>
          {models.map((model) => {
            const name = `${model.entity}/${model.project}/${model.name}`;
            return (
              <tr key={model.id}>
                <th scope="row">
                  <b>{name}</b>
                  <Checkpoints id={model.id} name={name} total={model.checkpoints} isOpened={name === opened} />
                </th>
                <td class="model" data-label="Base model">
                  {model.base_model}
                  {model.lora && <small>{`adapter, rank ${model.lora.rank}`}</small>}
                </td>
                <td class="num" data-label="Newest checkpoint">
                  {model.latest_step === null ? "–" : number(model.latest_step)}
                </td>
                <td class="num" data-label="Size">
                  {bytes(model.bytes)}
                </td>
                <td class="num updated" title={timeText(model.created_at)}>
                  {ago(model.created_at, now)}
                </td>
                <td class="num">
                  <a class="button" href={href(["playground"], { model: name })} aria-label={`Open ${name} in the playground`}>
                    Playground
                  </a>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

interface CheckpointsProps {
  readonly id: string;
  readonly name: string;
  readonly total: number;
  readonly isOpened: boolean;
}

/** Checkpoints of a model; requested on opening. */
function Checkpoints({ id, name, total, isOpened }: CheckpointsProps) {
  const [isOpen, setOpen] = useState(isOpened);
  const list = useResource<CheckpointList>(isOpen ? `/v1/preview/models/${encodeURIComponent(id)}/checkpoints?limit=100&order=desc` : null);
  const now = Date.now();
  return (
    <details open={isOpened} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{count(total, "checkpoint")}</summary>
      {isOpen && (
        <Loaded resource={list} what="checkpoints">
          {({ data }) => (
            <Scroll label={`Checkpoints of ${name}`}>
              <table class="grid">
                <thead>
                  <tr>
                    {["checkpoint", "size", "reward", "created", ""].map((column) => (
                      <th key={column} scope="col">
                        {column}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {data.map((checkpoint) => (
                    <tr key={checkpoint.id}>
                      <th scope="row">{checkpoint.step}</th>
                      <td>{bytes(checkpoint.bytes)}</td>
                      <td>{number(checkpoint.metrics["reward/mean"])}</td>
                      <td title={timeText(checkpoint.created_at)}>{ago(checkpoint.created_at, now)}</td>
                      <td>{checkpoint.pinned === true ? "pinned" : ""}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
          )}
        </Loaded>
      )}
    </details>
  );
}

interface DiskProps {
  readonly disk: DiskUse;
  readonly models: ModelList["data"];
  readonly runs: readonly RunSummary[];
}

/** Free space, and the sizes of models and runs. */
function Disk({ disk, models, runs }: DiskProps) {
  const used = disk.totalBytes - disk.freeBytes;
  const ofModels = models.reduce((sum, model) => sum + model.bytes, 0);
  const ofRuns = disk.runs.reduce((sum, run) => sum + run.sizeBytes, 0);
  return (
    <>
      <div class="disk" aria-hidden="true">
        <span style={{ "--share": used / disk.totalBytes }} />
      </div>
      <p class="about">
        {`${bytes(disk.freeBytes)} free of ${bytes(disk.totalBytes)} · models ${bytes(ofModels)} · runs ${bytes(ofRuns)}`}
      </p>
      {disk.runs.length > 0 && (
        <div class="table-card">
          <table class="list">
            <TableHead columns={["Run", { label: "Size", kind: "number" }]} />
            <tbody>
              {disk.runs.map(({ id, sizeBytes }) => (
                <tr key={id}>
                  <th scope="row">
                    <a href={href(["runs", id])}>{runs.find((run) => run.id === id)?.name ?? id}</a>
                  </th>
                  <td class="num">{bytes(sizeBytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
