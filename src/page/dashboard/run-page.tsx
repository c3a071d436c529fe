import { useMemo } from "preact/hooks";
import type { RunDetails, RunSummary, StepSummary } from "../../dashboard/api.ts";
import { Curves } from "../components/curves.tsx";
import { rewardText } from "../components/format.ts";
import { Numbers } from "../components/headline.tsx";
import { RunFacts } from "../components/run-facts.tsx";
import { runColor } from "../components/series.ts";
import type { Live } from "./live.ts";
import { type Resource, useResource } from "./requests.ts";
import { go, href, type Route } from "./router.ts";
import { RunAnswers } from "./run-answers.tsx";
import { RunGroups } from "./run-groups.tsx";
import { RunTrajectories } from "./run-trajectories.tsx";
import { Loaded, Problem, State } from "./status.tsx";

const TABS = [
  { id: "curves", label: "Curves" },
  { id: "groups", label: "Groups" },
  { id: "trajectories", label: "Trajectories" },
  { id: "answers", label: "Answers" },
  { id: "details", label: "Details" },
] as const;

/** Page of a run: headline numbers, and its views as tabs. */
export function RunPage({ run, route, live }: { readonly run: string; readonly route: Route; readonly live: Live }) {
  const tab = TABS.find(({ id }) => id === route.path[2])?.id ?? "curves";
  const summary = live.runs?.find(({ id }) => id === run);
  const version = `${summary?.state} ${summary?.updated}`;
  const base = `/ui/api/runs/${encodeURIComponent(run)}`;
  const details = useResource<RunDetails>(base, version);
  const steps = useResource<readonly StepSummary[]>(tab === "curves" || tab === "details" ? null : `${base}/steps`, summary?.steps);
  const over = route.query.get("with");
  return (
    <>
      <RunTop summary={summary ?? details.value} live={live} run={run} details={details} />
      <nav class="tabs" aria-label="Views of the run" ref={(tabs) => showCurrent(tabs)}>
        {TABS.map(({ id, label }) => (
          <a key={id} href={href(["runs", run, id], { with: over })} aria-current={id === tab ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {tab === "curves" && <RunCurves run={run} route={route} live={live} />}
      {tab === "details" && (
        <Loaded resource={details} what="details">
          {(value) => <RunFacts {...value} />}
        </Loaded>
      )}
      {tab !== "curves" && tab !== "details" && (
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

/** Scrolls to the current tab: on a narrow screen, the tabs do not fit. */
function showCurrent(tabs: HTMLElement | null): void {
  const current = tabs?.querySelector<HTMLElement>("[aria-current]");
  if (tabs && current) tabs.scrollLeft = current.offsetLeft - tabs.offsetLeft - 40;
}

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
      {details.error && <Problem error={details.error} />}
      {summary && summary.problem !== null && <Problem error={summary.problem} />}
      {metrics && <Numbers metrics={metrics} checkpoints={details.value?.checkpoints ?? []} />}
    </div>
  );
}

/** Curves of the run and of the runs laid over it. */
function RunCurves({ run, route, live }: { readonly run: string; readonly route: Route; readonly live: Live }) {
  const { metrics, runs, error } = live;
  const named = useMemo(
    () =>
      metrics?.map((each) => {
        const found = runs?.find(({ id }) => id === each.run);
        return { name: metrics.length > 1 ? (found?.name ?? each.run) : (found?.name ?? "run"), metrics: each.metrics };
      }),
    [metrics, runs?.map(({ id, name }) => `${id} ${name}`).join("\n")],
  );
  if (error !== null) return <Problem error={error} />;
  if (named === undefined) return <p class="empty loading">Loading curves …</p>;
  return (
    <>
      <Overlay run={run} route={route} live={live} />
      <Curves runs={named} mark={null} onPick={(step) => go(href(["runs", run, "groups", "train", `${step}`]))} />
    </>
  );
}

/** Choice of the runs that are laid over this one. */
function Overlay({ run, route, live: { runs = [], metrics = [] } }: { readonly run: string; readonly route: Route; readonly live: Live }) {
  const chosen = metrics.map((each) => each.run).filter((id) => id !== run);
  const others = runs.filter(({ id }) => id !== run);
  const set = (ids: readonly string[]) =>
    go(href(["runs", run, "curves"], { ...Object.fromEntries(route.query), with: ids.join(",") }), { isReplaced: true });
  const summaryOf = (id: string) => runs.find((each) => each.id === id);
  if (others.length === 0) return null;
  return (
    <div class="overlay">
      {chosen.length > 0 &&
        [run, ...chosen].map((id, at) => (
          <span key={id} class="chip">
            <i class="swatch" style={{ color: `var(--${runColor(at)})` }} />
            {summaryOf(id)?.name ?? id}
            {id !== run && (
              <button
                type="button"
                aria-label={`Remove ${summaryOf(id)?.name ?? id}`}
                onClick={() => set(chosen.filter((each) => each !== id))}
              >
                ×
              </button>
            )}
          </span>
        ))}
      <select aria-label="Overlay another run" value="" onChange={({ currentTarget }) => set([...chosen, currentTarget.value])}>
        <option value="">Overlay another run …</option>
        {others
          .filter(({ id }) => !chosen.includes(id))
          .map(({ id, name, reward }) => (
            <option key={id} value={id}>
              {`${name}${reward === null ? "" : ` · ${rewardText(reward)}`}`}
            </option>
          ))}
      </select>
    </div>
  );
}
