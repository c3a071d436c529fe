/** Page of all runs, with filter, order, and columns of settings. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunSummary } from "../../dashboard/api.ts";
import { Select } from "../components/controls.tsx";
import { goWith, href, type PageRoute } from "./router.ts";
import { columnOf, RUN_COLUMNS, type SettingChoice, settingColumn, settingChoices, sortedRuns } from "./run-columns.ts";
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
    onSort: ({ id, firstOrder }) => {
      const reversedOrder = sorting.order === "ascending" ? "descending" : "ascending";
      setQuery({ sort: id, order: id === sorting.id ? reversedOrder : firstOrder });
    },
  };
  const words = text.toLowerCase().split(/\s+/u).filter(Boolean);
  const matching = runs.filter((run) => words.every((word) => searchText(run).includes(word)));
  const listed = column === undefined ? matching : sortedRuns(matching, column, order);
  const toggle = (id: string) => setSelected(toggled(selected, id));
  const [firstSelected, ...otherSelected] = selected.filter((id) => runs.some((run) => run.id === id));
  return (
    <section aria-labelledby="runs-title">
      <div class="bar">
        <h1 id="runs-title">Runs</h1>
        <div class="controls">
          {firstSelected !== undefined && otherSelected.length > 0 && (
            <>
              <a class="button primary" href={href(["runs", firstSelected], { with: otherSelected.join(",") })}>
                {`Overlay ${otherSelected.length + 1} runs`}
              </a>
              <a class="button" href={href(["runs", firstSelected, "compare"], { with: otherSelected.join(",") })}>
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
        <RunTable runs={listed} settings={settings} sorting={sorting} selected={selected} onToggle={toggle} />
      )}
      {runs.length > 0 && listed.length === 0 && <p class="empty">{`No run matches “${text}”.`}</p>}
    </section>
  );
}

/** Returns a list without the item if it has the item, else with it. */
function toggled(items: readonly string[], item: string): string[] {
  return items.includes(item) ? items.filter((each) => each !== item) : [...items, item];
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
  const choose = (columnId: string) => {
    const column = columns.find((each) => each.id === columnId);
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

/** Properties of {@link SettingsMenu}. */
interface SettingsMenuProps {
  readonly runs: readonly RunSummary[];
  /** Names of the settings that are shown as columns. */
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
  const different = choices.filter(({ isDifferent }) => isDifferent);
  const equal = choices.filter(({ isDifferent }) => !isDifferent);
  const group = (label: string, settings: readonly SettingChoice[]) => {
    if (settings.length === 0) return null;
    return (
      <fieldset>
        <legend>{label}</legend>
        {settings.map(({ name }) => (
          <label key={name}>
            <input type="checkbox" checked={shown.includes(name)} onChange={() => onChange(toggled(shown, name))} />
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
        {group("Different between runs", different)}
        {group("Equal in all runs", equal)}
      </div>
    </details>
  );
}
