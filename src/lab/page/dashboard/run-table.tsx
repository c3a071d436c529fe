/** Table of the runs, sortable by its columns. */
import type { RunSummary } from "../../dashboard/api.ts";
import { breakable } from "../components/controls.tsx";
import { number, rewardText } from "../components/format.ts";
import { Sparkline } from "../components/sparkline.tsx";
import { type Column, DataTable } from "../components/table.tsx";
import { href } from "./router.ts";
import { columnOf, type Order, type RunColumn, settingColumn, settingOf } from "./run-columns.ts";
import { State, updatedColumn } from "./status.tsx";

/** Order of the list. */
export interface Sorting {
  /** Id of the column. */
  readonly id: string;
  readonly order: Order;
  /** Called with the column that was pressed. */
  readonly onSort: (column: RunColumn) => void;
}

/** Properties of {@link RunTable}. */
interface RunTableProps {
  readonly runs: readonly RunSummary[];
  /** Names of the settings that are shown as columns. */
  readonly settings: readonly string[];
  readonly sorting: Sorting;
  /** Ids of the selected runs. */
  readonly selected: readonly string[];
  readonly onToggle: (id: string) => void;
}

/** Table of runs. */
export function RunTable({ runs, settings, sorting, selected, onToggle }: RunTableProps) {
  /** Returns a column with a head that sorts the list; none for an unknown id. */
  const sortableColumn = (id: string, column: Omit<Column<RunSummary>, "label">): Column<RunSummary>[] => {
    const runColumn = columnOf(id);
    if (runColumn === undefined) return [];
    const order = id === sorting.id ? sorting.order : null;
    return [{ label: runColumn.label, order, onSort: () => sorting.onSort(runColumn), ...column }];
  };
  const columns: Column<RunSummary>[] = [
    {
      label: "Select",
      kind: "hidden",
      class: "check",
      cell: ({ id, name }) => (
        <input type="checkbox" aria-label={`Select ${name}`} checked={selected.includes(id)} onChange={() => onToggle(id)} />
      ),
    },
    ...sortableColumn("name", { isHead: true, cell: (run) => <RunName run={run} /> }),
    ...sortableColumn("state", { cell: ({ state, ended }) => <State name={state} title={ended ?? undefined} /> }),
    ...sortableColumn("steps", {
      kind: "number",
      isLabeled: true,
      cell: ({ steps, plannedSteps: planned }) => [number(steps), planned !== null && <small>{` / ${number(planned)}`}</small>],
    }),
    ...sortableColumn("reward", { kind: "number", isLabeled: true, cell: ({ reward }) => (reward === null ? "–" : rewardText(reward)) }),
    ...sortableColumn("evaluation", {
      kind: "number",
      isLabeled: true,
      cell: ({ evalReward: reward }) => (reward === null ? "–" : rewardText(reward)),
    }),
    { label: "Reward over steps", kind: "hidden", class: "curve", cell: ({ rewards }) => <Sparkline values={rewards} /> },
    ...settings.flatMap((name) =>
      sortableColumn(settingColumn(name).id, { class: "setting", isLabeled: true, cell: (run) => breakable(settingOf(run, name) ?? "–") }),
    ),
    ...sortableColumn("model", {
      class: "model",
      isLabeled: true,
      cell: ({ model, baseModel }) => [model ?? "–", baseModel !== null && <small>{baseModel}</small>],
    }),
    ...sortableColumn(
      "updated",
      updatedColumn("Updated", Date.now(), ({ updated }) => updated),
    ),
  ];
  return (
    <div class="table-card">
      <DataTable class="list runs" columns={columns} rows={runs} keyOf={({ id }) => id} />
    </div>
  );
}

/** Name of a run as a link, with its tags, note and problem. */
function RunName({ run: { id, name, title, path, tags, note, problem } }: { readonly run: RunSummary }) {
  return (
    <>
      <a href={href(["runs", id])}>{name}</a>
      <small title={path}>{title}</small>
      {tags.length > 0 && (
        <span class="tags">
          {tags.map((tag) => (
            <span key={tag} class="tag">
              {tag}
            </span>
          ))}
        </span>
      )}
      {note !== "" && <small class="note">{note}</small>}
      {problem !== null && <small class="bad">{problem}</small>}
    </>
  );
}
