import { useState } from "preact/hooks";
import type { RunSummary } from "../../dashboard/api.ts";
import { number, rewardText } from "../components/format.ts";
import { Sparkline } from "../components/sparkline.tsx";
import { ago, timeText } from "../components/time.ts";
import { href } from "./router.ts";
import { State } from "./status.tsx";
import { TableHead } from "./table-head.tsx";

/** List of runs, the last written first. Selected runs are opened together. */
export function RunsPage({ runs }: { readonly runs: readonly RunSummary[] | undefined }) {
  const [text, setText] = useState("");
  const [selected, setSelected] = useState<readonly string[]>([]);
  if (runs === undefined) return <p class="empty loading">Loading runs …</p>;
  const words = text.toLowerCase().split(/\s+/u).filter(Boolean);
  const shown = runs.filter((run) => words.every((word) => searchText(run).includes(word)));
  const toggle = (id: string) => setSelected(selected.includes(id) ? selected.filter((each) => each !== id) : [...selected, id]);
  const [first, ...others] = selected.filter((id) => runs.some((run) => run.id === id));
  return (
    <section aria-labelledby="runs-title">
      <div class="bar">
        <h1 id="runs-title">Runs</h1>
        <div class="controls">
          {first !== undefined && others.length > 0 && (
            <a class="button primary" href={href(["runs", first], { with: others.join(",") })}>
              {`Overlay ${others.length + 1} runs`}
            </a>
          )}
          <input
            type="search"
            placeholder="Filter by name, model, state"
            aria-label="Filter runs"
            value={text}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        </div>
      </div>
      {runs.length === 0 ? (
        <p class="empty">
          No run was found. A run appears here as soon as it writes to a directory that this service reads: start one with{" "}
          <code>whetstone train</code>, or open a directory with <code>whetstone ui &lt;directory&gt;</code>.
        </p>
      ) : (
        <RunTable runs={shown} selected={selected} onToggle={toggle} />
      )}
      {runs.length > 0 && shown.length === 0 && <p class="empty">{`No run matches “${text}”.`}</p>}
    </section>
  );
}

function searchText({ title, name, model, baseModel, state, kind }: RunSummary): string {
  return [title, name, model, baseModel, state, kind].filter(Boolean).join(" ").toLowerCase();
}

interface RunTableProps {
  readonly runs: readonly RunSummary[];
  readonly selected: readonly string[];
  readonly onToggle: (id: string) => void;
}

function RunTable({ runs, selected, onToggle }: RunTableProps) {
  const now = Date.now();
  return (
    <div class="table-card">
      <table class="list runs">
        <TableHead
          columns={[
            { label: "Select", kind: "hidden" },
            "Run",
            "State",
            { label: "Steps", kind: "number" },
            { label: "Reward", kind: "number" },
            { label: "Evaluation", kind: "number" },
            { label: "Reward over steps", kind: "hidden" },
            "Model",
            { label: "Updated", kind: "number" },
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
