/** Columns of the list of runs: order of the rows, and settings as columns. */
import type { RunSummary } from "../../dashboard/api.ts";

/** Order of the rows of a list. */
export type Order = "ascending" | "descending";

/** Value that rows are sorted by; null for a missing one. */
type Value = string | number | null;

/** Column that runs can be sorted by. */
export interface RunColumn {
  /** Name in the address; a setting has the prefix `config.`. */
  readonly id: string;
  readonly label: string;
  /** Order of the first press. */
  readonly first: Order;
  readonly value: (run: RunSummary) => Value;
}

/** Prefix of the id of a setting's column. */
const SETTING = "config.";

/** Columns that every list has, by id. */
export const RUN_COLUMNS: readonly RunColumn[] = [
  { id: "name", label: "Run", first: "ascending", value: ({ name }) => name },
  { id: "state", label: "State", first: "ascending", value: ({ state }) => state },
  { id: "steps", label: "Steps", first: "descending", value: ({ steps }) => steps },
  { id: "reward", label: "Reward", first: "descending", value: ({ reward }) => reward },
  { id: "evaluation", label: "Evaluation", first: "descending", value: ({ evalReward }) => evalReward },
  { id: "model", label: "Model", first: "ascending", value: ({ model }) => model },
  { id: "updated", label: "Updated", first: "descending", value: ({ updated }) => updated },
];

/** Returns the column of a setting. */
export function settingColumn(name: string): RunColumn {
  return { id: `${SETTING}${name}`, label: name, first: "ascending", value: (run) => valueOf(settingOf(run, name)) };
}

/** Returns the column with an id; undefined for an unknown id. */
export function columnOf(id: string): RunColumn | undefined {
  return id.startsWith(SETTING) ? settingColumn(id.slice(SETTING.length)) : RUN_COLUMNS.find((column) => column.id === id);
}

/** Returns a setting of a run as text; null if the run does not have it. */
export function settingOf({ config }: Pick<RunSummary, "config">, name: string): string | null {
  return config.find(([each]) => each === name)?.[1] ?? null;
}

/** Converts the text of a number to the number, so that 8 is before 16. */
function valueOf(text: string | null): Value {
  return text === null || text.trim() === "" || !Number.isFinite(Number(text)) ? text : Number(text);
}

/** Setting of some runs. */
export interface SettingChoice {
  readonly name: string;
  /** Whether two of the runs have different values. */
  readonly isDifferent: boolean;
}

/** Returns the settings of all runs in written order, first the ones in which the runs differ. */
export function settingChoices(runs: readonly Pick<RunSummary, "config">[]): SettingChoice[] {
  const names = new Set(runs.flatMap(({ config }) => config.map(([name]) => name)));
  const all = [...names].map((name) => ({ name, isDifferent: new Set(runs.map((run) => settingOf(run, name))).size > 1 }));
  return [...all.filter(({ isDifferent }) => isDifferent), ...all.filter(({ isDifferent }) => !isDifferent)];
}

/** Returns the runs in the order of a column; runs without a value are last in both orders, and equal runs keep their order. */
export function sortedRuns(runs: readonly RunSummary[], { value }: RunColumn, order: Order): RunSummary[] {
  const sign = order === "ascending" ? 1 : -1;
  return runs.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    return sign * String(x).localeCompare(String(y), "en", { numeric: true });
  });
}
