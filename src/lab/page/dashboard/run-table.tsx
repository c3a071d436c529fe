import type { RunSummary } from "../../dashboard/api.ts";
import { breakable } from "../components/controls.tsx";
import { number, rewardText } from "../components/format.ts";
import { Sparkline } from "../components/sparkline.tsx";
import { ago, timeText } from "../components/time.ts";
import { href } from "./router.ts";
import { type Order, RUN_COLUMNS, type RunColumn, settingColumn, settingOf } from "./run-columns.ts";
import { State } from "./status.tsx";
import { type Column, TableHead } from "./table-head.tsx";

/** Order of the list. */
export interface Sorting {
  /** Id of the column. */
  readonly id: string;
  readonly order: Order;
  /** Called with the column that was pressed. */
  readonly onSort: (column: RunColumn) => void;
}

interface RunTableProps {
  readonly runs: readonly RunSummary[];
  /** Names of the settings that are shown as columns. */
  readonly settings: readonly string[];
  readonly sorting: Sorting;
  readonly selected: readonly string[];
  readonly onToggle: (id: string) => void;
}

const NUMERIC: ReadonlySet<string> = new Set(["steps", "reward", "evaluation", "updated"]);

/** Table of runs. */
export function RunTable({ runs, settings, sorting, selected, onToggle }: RunTableProps) {
  const now = Date.now();
  const head = (column: RunColumn): Column => ({
    label: column.label,
    kind: NUMERIC.has(column.id) ? "number" : "text",
    order: column.id === sorting.id ? sorting.order : null,
    onSort: () => sorting.onSort(column),
  });
  const heads = RUN_COLUMNS.map(head);
  return (
    <div class="table-card">
      <table class="list runs">
        <TableHead
          columns={[
            { label: "Select", kind: "hidden" },
            ...heads.slice(0, 5),
            { label: "Reward over steps", kind: "hidden" },
            ...settings.map((name) => head(settingColumn(name))),
            ...heads.slice(5),
          ]}
        />
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td class="check">
                <input
                  type="checkbox"
                  aria-label={`Select ${run.name}`}
                  checked={selected.includes(run.id)}
                  onChange={() => onToggle(run.id)}
                />
              </td>
              <th scope="row">
                <a href={href(["runs", run.id])}>{run.name}</a>
                <small title={run.path}>{run.title}</small>
                {run.tags.length > 0 && (
                  <span class="tags">
                    {run.tags.map((tag) => (
                      <span key={tag} class="tag">
                        {tag}
                      </span>
                    ))}
                  </span>
                )}
                {run.note !== "" && <small class="note">{run.note}</small>}
                {run.problem !== null && <small class="bad">{run.problem}</small>}
              </th>
              <td>
                <State name={run.state} title={run.ended ?? undefined} />
              </td>
              <td class="num" data-label="Steps">
                {number(run.steps)}
                {run.plannedSteps !== null && <small>{` / ${number(run.plannedSteps)}`}</small>}
              </td>
              <td class="num" data-label="Reward">
                {run.reward === null ? "–" : rewardText(run.reward)}
              </td>
              <td class="num" data-label="Evaluation">
                {run.evalReward === null ? "–" : rewardText(run.evalReward)}
              </td>
              <td class="curve">
                <Sparkline values={run.rewards} />
              </td>
              {settings.map((name) => (
                <td key={name} class="setting" data-label={name}>
                  {breakable(settingOf(run, name) ?? "–")}
                </td>
              ))}
              <td class="model" data-label="Model">
                {run.model ?? "–"}
                {run.baseModel !== null && <small>{run.baseModel}</small>}
              </td>
              <td class="num updated" title={timeText(run.updated)}>
                {ago(run.updated, now)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
