import { useEffect, useRef, useState } from "preact/hooks";
import type { RunSummary } from "../../dashboard/api.ts";
import { Select } from "../components/controls.tsx";
import { goWith, href, type PageRoute } from "./router.ts";
import { columnOf, RUN_COLUMNS, settingColumn, settingChoices, sortedRuns } from "./run-columns.ts";
import { RunTable, type Sorting } from "./run-table.tsx";

/** List of runs, the last written first unless the address names another order. Selected runs are opened together. */
export function RunsPage({ runs, route }: { readonly runs: readonly RunSummary[] | undefined; readonly route: PageRoute }) {
  const [text, setText] = useState("");
  const [selected, setSelected] = useState<readonly string[]>([]);
  if (runs === undefined) return <p class="empty loading">Loading runs …</p>;
  const setQuery = (values: Readonly<Record<string, string>>) => goWith(route, ["runs"], values);
  const column = columnOf(route.query.get("sort") ?? "");
  const order = route.query.get("order") === "ascending" ? "ascending" : "descending";
  const settings = shownSettings(route);
  const sorting: Sorting = {
    id: column?.id ?? "updated",
    order: column === undefined ? "descending" : order,
    onSort: ({ id, first }) => {
      const isAgain = id === sorting.id;
      setQuery({ sort: id, order: isAgain ? (sorting.order === "ascending" ? "descending" : "ascending") : first });
    },
  };
  const words = text.toLowerCase().split(/\s+/u).filter(Boolean);
  const matching = runs.filter((run) => words.every((word) => searchText(run).includes(word)));
  const shown = column === undefined ? matching : sortedRuns(matching, column, order);
  const toggle = (id: string) => setSelected(selected.includes(id) ? selected.filter((each) => each !== id) : [...selected, id]);
  const [first, ...others] = selected.filter((id) => runs.some((run) => run.id === id));
  return (
    <section aria-labelledby="runs-title">
      <div class="bar">
        <h1 id="runs-title">Runs</h1>
        <div class="controls">
          {first !== undefined && others.length > 0 && (
            <>
              <a class="button primary" href={href(["runs", first], { with: others.join(",") })}>
                {`Overlay ${others.length + 1} runs`}
              </a>
              <a class="button" href={href(["runs", first, "compare"], { with: others.join(",") })}>
                Compare
              </a>
            </>
          )}
          <input
            type="search"
            placeholder="Filter by name, tag, state"
            aria-label="Filter runs"
            value={text}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
          <SortChoice sorting={sorting} settings={settings} />
          {runs.length > 0 && (
            <SettingsMenu
              runs={runs}
              shown={settings}
              onChange={(names) => setQuery({ settings: names.map((name) => encodeURIComponent(name)).join(",") })}
            />
          )}
        </div>
      </div>
      {runs.length === 0 ? (
        <p class="empty">
          No run was found. A run appears here as soon as it writes to a directory that this service reads: start one with{" "}
          <code>whetstone train</code>, or open a directory with <code>whetstone ui &lt;directory&gt;</code>.
        </p>
      ) : (
        <RunTable runs={shown} settings={settings} sorting={sorting} selected={selected} onToggle={toggle} />
      )}
      {runs.length > 0 && shown.length === 0 && <p class="empty">{`No run matches “${text}”.`}</p>}
    </section>
  );
}

/** Returns the text of a run that the filter searches. */
function searchText({ title, name, model, baseModel, state, kind, note, tags }: RunSummary): string {
  return [title, name, model, baseModel, state, kind, note, ...tags].filter(Boolean).join(" ").toLowerCase();
}

/** Returns the settings that the address names as columns. */
function shownSettings({ query }: PageRoute): string[] {
  return (query.get("settings") ?? "").split(",").filter(Boolean).map(decodeURIComponent);
}

/** Choice of the order on a narrow screen, where the list has no heads to press. */
function SortChoice({ sorting, settings }: { readonly sorting: Sorting; readonly settings: readonly string[] }) {
  const columns = [...RUN_COLUMNS, ...settings.map(settingColumn)];
  const { id, order, onSort } = sorting;
  const choose = (wanted: string) => {
    const column = columns.find((each) => each.id === wanted);
    if (column !== undefined) onSort(column);
  };
  return (
    <span class="sort-choice">
      <Select label="Sort by" options={columns.map((each) => ({ value: each.id, label: each.label }))} value={id} onChange={choose} />
      <button type="button" class="button" aria-label={`Order: ${order}`} onClick={() => choose(id)}>
        {order === "ascending" ? "↑" : "↓"}
      </button>
    </span>
  );
}

interface SettingsMenuProps {
  readonly runs: readonly RunSummary[];
  readonly shown: readonly string[];
  readonly onChange: (names: readonly string[]) => void;
}

/** Menu of the settings that are shown as columns, first the ones in which the runs differ. */
function SettingsMenu({ runs, shown, onChange }: SettingsMenuProps) {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = ({ target }: Event) => {
      if (menu.current !== null && target instanceof Node && !menu.current.contains(target)) menu.current.open = false;
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || menu.current === null) return;
    menu.current.open = false;
    menu.current.querySelector("summary")?.focus();
  };
  const choices = settingChoices(runs);
  const group = (isDifferent: boolean, label: string) => {
    const own = choices.filter((each) => each.isDifferent === isDifferent);
    if (own.length === 0) return null;
    return (
      <fieldset>
        <legend>{label}</legend>
        {own.map(({ name }) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={shown.includes(name)}
              onChange={() => onChange(shown.includes(name) ? shown.filter((each) => each !== name) : [...shown, name])}
            />
            {name}
          </label>
        ))}
      </fieldset>
    );
  };
  return (
    <details class="menu" ref={menu} onKeyDown={onKeyDown}>
      <summary class="button">{shown.length === 0 ? "Settings" : `Settings (${shown.length})`}</summary>
      <div class="menu-list">
        {group(true, "Different between runs")}
        {group(false, "Equal in all runs")}
      </div>
    </details>
  );
}
