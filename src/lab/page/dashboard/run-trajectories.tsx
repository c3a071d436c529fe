import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { StepSummary } from "../../dashboard/api.ts";
import { Select } from "../components/controls.tsx";
import { count, rewardText, signed } from "../components/format.ts";
import { focusTrajectory } from "../components/trajectory.tsx";
import { type FoundRows, useFoundRows } from "./found-rows.ts";
import { type PagedRows, type Segment, usePagedRows } from "./paged-rows.ts";
import { go, goWith, href, type PageRoute } from "./router.ts";
import { Problem } from "./status.tsx";
import { placeOf, TrajectoryPanel, type TrajectoryPlace } from "./trajectory-panel.tsx";
import { VirtualList } from "./virtual-list.tsx";

const ROW_HEIGHT_PX = 28;
/** Segments of the list while a search shows its own rows. */
const NO_SEGMENTS: readonly Segment[] = [];
/** Max number of trajectories that a search lists. */
const MAX_FOUND = 500;
/** Milliseconds after the last key press until the active row is opened, so that rows passed by are not loaded. */
const OPEN_MS = 150;
const COLUMNS = [
  { name: "step", isNumeric: true },
  { name: "scenario" },
  { name: "reward", isNumeric: true },
  { name: "advantage", isNumeric: true },
  { name: "tokens", isNumeric: true },
  { name: "answer" },
];
const SPLITS = [
  { value: "train", label: "Training" },
  { value: "eval", label: "Evaluation" },
];
const SORTS = [
  { value: "", label: "File order" },
  { value: "reward ascending", label: "Reward, lowest first" },
  { value: "reward descending", label: "Reward, highest first" },
  { value: "tokens descending", label: "Tokens, most first" },
  { value: "turns descending", label: "Turns, most first" },
];

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
  const [active, setActive] = useState(-1);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (shown >= 0) setActive(shown);
  }, [shown]);
  useEffect(() => {
    setActive(-1);
    // A row of the former list must not be opened.
    return () => clearTimeout(timer.current);
  }, [key]);

  const address = (target: TrajectoryPlace) =>
    href(
      ["runs", run, "trajectories", target.split, `${target.step}`, `${target.line}`, `${target.index}`],
      Object.fromEntries(route.query),
    );
  const activate = (index: number, how: "move" | "open") => {
    setActive(index);
    clearTimeout(timer.current);
    const target = rows.row(index);
    if (target === undefined) return;
    if (how === "move") {
      const { hash } = location;
      timer.current = setTimeout(() => {
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
      <span class={row.advantage < 0 ? "negative" : row.advantage > 0 ? "positive" : undefined}>{signed(row.advantage)}</span>,
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
    const wanted = split === "eval" ? "eval" : "train";
    const own = steps.filter((each) => each.split === wanted && (step === "" || each.step === Number(step)));
    const segments = own.map((each) => ({ split: each.split, step: each.step, count: each.trajectories ?? 0 }));
    const selected = { text, split: wanted, ...(step === "" ? {} : { step }), limit: `${MAX_FOUND}` };
    const search = text === "" ? "" : new URLSearchParams(selected).toString();
    if (step === "" || text !== "") return { key, segments, query: "", search };
    const [by, order] = sort.split(" ");
    const values = { sort: by ?? "", order: order ?? "", min, max, scenario };
    const parts = Object.entries(values).flatMap(([name, value]) => (value === "" ? [] : [`&${name}=${encodeURIComponent(value)}`]));
    return { key, segments, query: parts.join(""), search };
  }, [steps, key]);
}

/** Choice of the steps and of a text to search for; of one step also order, range of rewards and scenario. */
function Filters({ run, steps, route }: RunTrajectoriesProps) {
  const get = (name: string) => route.query.get(name) ?? "";
  const setQuery = (values: Readonly<Record<string, string>>) => goWith(route, ["runs", run, "trajectories"], values);
  const split = get("split") === "eval" ? "eval" : "train";
  const own = steps.filter((each) => each.split === split);
  const choices = [
    { value: "", label: `All ${own.length} steps` },
    ...own.map(({ step }) => ({ value: `${step}`, label: `step ${step}` })),
  ];
  const hasEvaluations = steps.some((each) => each.split === "eval");
  const bound = (name: string, label: string) => (
    <label class="control">
      <span>{label}</span>
      <input type="number" step="any" value={get(name)} onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })} />
    </label>
  );
  return (
    <div class="filters">
      {hasEvaluations && (
        <Select label="Rollouts of" options={SPLITS} value={split} onChange={(value) => setQuery({ split: value, step: "" })} />
      )}
      <Select label="Step" options={choices} value={get("step")} onChange={(step) => setQuery({ step })} />
      <input
        type="search"
        class="text"
        aria-label="Search texts"
        placeholder="Search texts"
        value={get("text")}
        onChange={({ currentTarget }) => setQuery({ text: currentTarget.value })}
      />
      {get("step") !== "" && get("text") === "" && (
        <>
          <Select label="Order" options={SORTS} value={get("sort")} onChange={(sort) => setQuery({ sort })} />
          {bound("min", "Reward from")}
          {bound("max", "to")}
          <input
            type="search"
            aria-label="Scenario"
            placeholder="Scenario"
            value={get("scenario")}
            onChange={({ currentTarget }) => setQuery({ scenario: currentTarget.value })}
          />
        </>
      )}
    </div>
  );
}
