/** Page of a run: headline, tabs, and the view that the address names. */
import { useMemo } from "preact/hooks";
import type { RunDetails, RunSummary, StepSummary } from "../../dashboard/api.ts";
import { Curves } from "../components/curves.tsx";
import { Numbers } from "../components/headline.tsx";
import { RunFacts } from "../components/run-facts.tsx";
import type { Live } from "./live.ts";
import { type Resource, useResource } from "./requests.ts";
import { go, href, type PageRoute } from "./router.ts";
import { RunAnswers } from "./run-answers.tsx";
import { RunCompare } from "./run-compare.tsx";
import { RunGroups } from "./run-groups.tsx";
import { RunNotes } from "./run-notes.tsx";
import { RunPicker } from "./run-picker.tsx";
import { RunTrajectories } from "./run-trajectories.tsx";
import { Loaded, Problem, State } from "./status.tsx";

/** Views of a run, by the part of the address after the run. */
const TABS = [
  { id: "curves", label: "Curves" },
  { id: "groups", label: "Groups" },
  { id: "trajectories", label: "Trajectories" },
  { id: "answers", label: "Answers" },
  { id: "compare", label: "Compare" },
  { id: "details", label: "Details" },
] as const;

/** Views that show trajectories, and therefore need the steps that have some. */
const STEP_TABS: ReadonlySet<string> = new Set(["groups", "trajectories", "answers"]);

/** Page of a run: headline numbers, and its views as tabs. */
export function RunPage({ run, route, live }: { readonly run: string; readonly route: PageRoute; readonly live: Live }) {
  const tab = TABS.find(({ id }) => id === route.path[2])?.id ?? "curves";
  const summary = live.runs?.find(({ id }) => id === run);
  // A change of the run requests the details again.
  const version = `${summary?.state} ${summary?.updated}`;
  const base = `/ui/api/runs/${encodeURIComponent(run)}`;
  const details = useResource<RunDetails>(base, version);
  const steps = useResource<readonly StepSummary[]>(STEP_TABS.has(tab) ? `${base}/steps` : null, summary?.steps);
  const added = route.query.get("with");
  if (summary === undefined && details.error !== null) return <UnavailableRun error={details.error} />;
  return (
    <>
      <RunTop summary={summary ?? details.value} live={live} run={run} details={details} />
      <nav class="tabs" aria-label="Views of the run" ref={(tabs) => showCurrent(tabs)}>
        {TABS.map(({ id, label }) => (
          <a key={id} href={href(["runs", run, id], { with: added })} aria-current={id === tab ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {tab === "curves" && <RunCurves run={run} route={route} live={live} />}
      {tab === "compare" && <RunCompare run={run} route={route} live={live} />}
      {tab === "details" && (
        <Loaded resource={details} what="details">
          {(value) => <RunFacts {...value} />}
        </Loaded>
      )}
      {STEP_TABS.has(tab) && (
        <Loaded resource={steps} what="steps">
          {(value) => {
            const properties = { run, steps: value, route };
            if (value.length === 0) return <p class="empty">The run has no file of trajectories yet.</p>;
            if (tab === "groups") return <RunGroups {...properties} />;
            return tab === "answers" ? <RunAnswers {...properties} /> : <RunTrajectories {...properties} />;
          }}
        </Loaded>
      )}
    </>
  );
}

/** Page of a run that does not exist or cannot be read. */
function UnavailableRun({ error }: { readonly error: Error }) {
  return (
    <div class="top">
      <p class="eyebrow">
        <a href={href(["runs"])}>Runs</a>
      </p>
      <h1>Run</h1>
      <Problem error={error} />
    </div>
  );
}

/** Scrolls to the current tab, because the tabs do not fit on a narrow screen. A part of the tab before it stays visible. */
function showCurrent(tabs: HTMLElement | null): void {
  const current = tabs?.querySelector<HTMLElement>("[aria-current]");
  if (tabs && current) tabs.scrollLeft = current.offsetLeft - tabs.offsetLeft - 40;
}

/** Properties of {@link RunTop}. */
interface RunTopProps {
  readonly summary: RunSummary | undefined;
  readonly live: Live;
  readonly run: string;
  readonly details: Resource<RunDetails>;
}

/** Name, state and main numbers of the run. */
function RunTop({ summary, live, run, details }: RunTopProps) {
  const metrics = live.metrics?.find((each) => each.run === run)?.metrics;
  return (
    <div class="top">
      <p class="eyebrow">
        <a href={href(["runs"])}>Runs</a>
        {summary && ` / ${summary.title}`}
      </p>
      <div class="bar">
        <h1>{summary?.name ?? "Run"}</h1>
        <div class="controls">
          {summary && <State name={summary.state} title={summary.ended ?? undefined} />}
          {summary?.model && summary.model !== summary.name && <span class="hint">{summary.model}</span>}
          {summary?.state === "running" && summary.plannedSteps !== null && (
            <progress max={summary.plannedSteps} value={summary.steps} aria-label={`${summary.steps} of ${summary.plannedSteps} steps`} />
          )}
        </div>
      </div>
      {summary && <RunNotes run={summary} />}
      {details.error && <Problem error={details.error} />}
      {summary && summary.problem !== null && <Problem error={summary.problem} />}
      {metrics && <Numbers metrics={metrics} checkpoints={details.value?.checkpoints ?? []} />}
    </div>
  );
}

/** Curves of the run and of the runs that are drawn into the same charts. */
function RunCurves({ run, route, live }: { readonly run: string; readonly route: PageRoute; readonly live: Live }) {
  const { metrics, runs, error } = live;
  // The list of runs changes with every new row; the curves depend on the names alone.
  const names = runs?.map(({ id, name }) => `${id} ${name}`).join("\n");
  const namedMetrics = useMemo(
    () =>
      metrics?.map((each) => {
        const defaultName = metrics.length > 1 ? each.run : "run";
        return { name: runs?.find(({ id }) => id === each.run)?.name ?? defaultName, metrics: each.metrics };
      }),
    [metrics, names],
  );
  if (error !== null) return <Problem error={error} />;
  if (namedMetrics === undefined) return <p class="empty loading">Loading curves …</p>;
  return (
    <>
      <RunPicker run={run} route={route} live={live} label="Overlay another run" />
      <Curves runs={namedMetrics} mark={null} onPick={(step) => go(href(["runs", run, "groups", "train", `${step}`]))} />
    </>
  );
}
