/** View of a run that lists its trajectories, filtered or found by text, and shows the chosen one. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { StepSummary } from "../../dashboard/api.ts";
import { Select } from "../components/controls.tsx";
import { count, rewardText, signClass, signed } from "../components/format.ts";
import { focusTrajectory } from "../components/trajectory.tsx";
import { type FoundRows, useFoundRows } from "./found-rows.ts";
import type { Segment } from "./fetched-rows.ts";
import { type PagedRows, usePagedRows } from "./paged-rows.ts";
import { go, goWith, href, type PageRoute } from "./router.ts";
import { Problem } from "./status.tsx";
import { placeOf, TrajectoryPanel, type TrajectoryPlace } from "./trajectory-panel.tsx";
import { VirtualList } from "./virtual-list.tsx";

/** Height of a row of the list. */
const ROW_HEIGHT_PX = 28;
/** Segments of the list while a search shows its own rows. */
const NO_SEGMENTS: readonly Segment[] = [];
/** Max number of trajectories that a search lists. */
const MAX_FOUND = 500;
/** Milliseconds after the last key press until the active row is opened, so that rows passed by are not loaded. */
const OPEN_MS = 150;
/** Columns of the list. */
const COLUMNS = [
  { name: "step", isNumeric: true },
  { name: "scenario" },
  { name: "reward", isNumeric: true },
  { name: "advantage", isNumeric: true },
  { name: "tokens", isNumeric: true },
  { name: "answer" },
];
/** Choices of the rollouts. */
const SPLITS = [
  { value: "train", label: "Training" },
  { value: "eval", label: "Evaluation" },
];
/** Choices of the order: a field and a direction, as in the query. */
const SORTS = [
  { value: "", label: "File order" },
  { value: "reward ascending", label: "Reward, lowest first" },
  { value: "reward descending", label: "Reward, highest first" },
  { value: "tokens descending", label: "Tokens, most first" },
  { value: "turns descending", label: "Turns, most first" },
];

/** Properties of {@link RunTrajectories} and {@link Filters}. */
interface RunTrajectoriesProps {
  readonly run: string;
  readonly steps: readonly StepSummary[];
  readonly route: PageRoute;
}

/** All trajectories of a run as one list, and the open one next to it. */
export function RunTrajectories({ run, steps, route }: RunTrajectoriesProps) {
  const place = placeOf(route.path.slice(3));
  const filters = useFilters(steps, route);
  const { key, segments, query, search } = filters;
  const paged = usePagedRows(run, search === "" ? segments : NO_SEGMENTS, query);
  const found = useFoundRows(run, search);
  const rows: PagedRows = search === "" ? paged : found;
  const shown = place === null ? -1 : rows.indexOf(place);
  /** Index of the active row; -1 for none. */
  const [active, setActive] = useState(-1);
  /** Timer that opens the active row. */
  const openTimer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (shown >= 0) setActive(shown);
  }, [shown]);
  useEffect(() => {
    setActive(-1);
    // A row of the former list must not be opened.
    return () => clearTimeout(openTimer.current);
  }, [key]);

  const address = (target: TrajectoryPlace) =>
    href(
      ["runs", run, "trajectories", target.split, `${target.step}`, `${target.line}`, `${target.index}`],
      Object.fromEntries(route.query),
    );
  const activate = (index: number, how: "move" | "open") => {
    setActive(index);
    clearTimeout(openTimer.current);
    const target = rows.row(index);
    if (target === undefined) return;
    if (how === "move") {
      const { hash } = location;
      openTimer.current = setTimeout(() => {
        // Another place may have been opened in the meantime.
        if (location.hash === hash) go(address(target), { isReplaced: true });
      }, OPEN_MS);
      return;
    }
    go(address(target));
    if (matchMedia("(max-width: 1100px)").matches) requestAnimationFrame(() => requestAnimationFrame(focusTrajectory));
  };
  const { show } = rows;
  const onRange = useCallback((first: number, last: number) => show(first, last), [show]);
  const cells = (index: number) => {
    const row = rows.row(index);
    if (row === undefined) return ["…"];
    return [
      row.split === "eval" ? `eval ${row.step}` : row.step,
      <span title={row.scenario}>{`${row.scenario} · ${row.index}`}</span>,
      rewardText(row.reward),
      <span class={signClass(row.advantage)}>{signed(row.advantage)}</span>,
      row.tokens,
      <span class="preview">{row.preview}</span>,
    ];
  };
  return (
    <div class="split">
      <section class="split-list" aria-label="List of trajectories">
        <Filters run={run} steps={steps} route={route} />
        {rows.error && <Problem error={rows.error} />}
        <p class={search !== "" && found.isLoading ? "about loading" : "about"} role="status">
          {search === "" ? count(rows.total, "trajectory", "trajectories") : foundText(found)}
        </p>
        <VirtualList
          key={key}
          label="Trajectories"
          columns={COLUMNS}
          total={rows.total}
          rowHeight={ROW_HEIGHT_PX}
          active={active}
          anchor={place === null ? -1 : rows.startOf(place)}
          onActivate={activate}
          onRange={onRange}
          row={cells}
        />
      </section>
      <div class="split-detail">
        {place === null ? (
          <p class="empty">Choose a trajectory to read it token by token.</p>
        ) : (
          <TrajectoryPanel run={run} place={place} onOpen={(index) => go(address({ ...place, index }))} />
        )}
      </div>
    </div>
  );
}

/** Returns the text about the result of a search. */
function foundText({ total, isLoading, isComplete }: FoundRows): string {
  if (isLoading) return "Searching …";
  if (total === 0) return "No trajectory has this text.";
  return isComplete ? `${count(total, "trajectory", "trajectories")} with this text` : `The newest ${total} trajectories with this text`;
}

/** Steps and query of a list. */
interface FilteredList {
  /** Values of all filters as text: another key is another list. */
  readonly key: string;
  readonly segments: readonly Segment[];
  /** Query of the list of trajectories. */
  readonly query: string;
  /** Query of the search for a text; empty without a text. */
  readonly search: string;
}

/** Returns the list that the address names. */
function useFilters(steps: readonly StepSummary[], { query }: PageRoute): FilteredList {
  const key = ["split", "step", "sort", "min", "max", "scenario", "text"].map((name) => query.get(name) ?? "").join("\n");
  return useMemo(() => {
    const [split = "", step = "", sort = "", min = "", max = "", scenario = "", text = ""] = key.split("\n");
    const listedSplit = split === "eval" ? "eval" : "train";
    const listedSteps = steps.filter((each) => each.split === listedSplit && (step === "" || each.step === Number(step)));
    const segments = listedSteps.map((each) => ({ split: each.split, step: each.step, count: each.trajectories ?? 0 }));
    const searchValues = { text, split: listedSplit, ...(step === "" ? {} : { step }), limit: `${MAX_FOUND}` };
    const search = text === "" ? "" : new URLSearchParams(searchValues).toString();
    // Order and bounds are for the rows of one step.
    if (step === "" || text !== "") return { key, segments, query: "", search };
    const [field = "", order = ""] = sort.split(" ");
    const values = { sort: field, order, min, max, scenario };
    const parts = Object.entries(values).flatMap(([name, value]) => (value === "" ? [] : [`&${name}=${encodeURIComponent(value)}`]));
    return { key, segments, query: parts.join(""), search };
  }, [steps, key]);
}

/** Choice of the steps and of a text to search for; of one step also order, range of rewards and scenario. */
function Filters({ run, steps, route }: RunTrajectoriesProps) {
  const valueOf = (name: string) => route.query.get(name) ?? "";
  const setQuery = (values: Readonly<Record<string, string>>) => goWith(route, ["runs", run, "trajectories"], values);
  const split = valueOf("split") === "eval" ? "eval" : "train";
  const splitSteps = steps.filter((each) => each.split === split);
  const choices = [
    { value: "", label: `All ${splitSteps.length} steps` },
    ...splitSteps.map(({ step }) => ({ value: `${step}`, label: `step ${step}` })),
  ];
  const hasEvaluations = steps.some((each) => each.split === "eval");
  const bound = (name: string, label: string) => (
    <label class="control">
      <span>{label}</span>
      <input type="number" step="any" value={valueOf(name)} onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })} />
    </label>
  );
  return (
    <div class="filters">
      {hasEvaluations && (
        <Select label="Rollouts of" options={SPLITS} value={split} onChange={(value) => setQuery({ split: value, step: "" })} />
      )}
      <Select label="Step" options={choices} value={valueOf("step")} onChange={(step) => setQuery({ step })} />
      <input
        type="search"
        class="text"
        aria-label="Search texts"
        placeholder="Search texts"
        value={valueOf("text")}
        onChange={({ currentTarget }) => setQuery({ text: currentTarget.value })}
      />
      {valueOf("step") !== "" && valueOf("text") === "" && (
        <>
          <Select label="Order" options={SORTS} value={valueOf("sort")} onChange={(sort) => setQuery({ sort })} />
          {bound("min", "Reward from")}
          {bound("max", "to")}
          <input
            type="search"
            aria-label="Scenario"
            placeholder="Scenario"
            value={valueOf("scenario")}
            onChange={({ currentTarget }) => setQuery({ scenario: currentTarget.value })}
          />
        </>
      )}
    </div>
  );
}
