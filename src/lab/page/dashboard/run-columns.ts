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
  readonly firstOrder: Order;
  readonly value: (run: RunSummary) => Value;
}

/** Prefix of the id of a setting's column. */
const SETTING = "config.";

/** Columns that every list has, by id. */
export const RUN_COLUMNS: readonly RunColumn[] = [
  { id: "name", label: "Run", firstOrder: "ascending", value: ({ name }) => name },
  { id: "state", label: "State", firstOrder: "ascending", value: ({ state }) => state },
  { id: "steps", label: "Steps", firstOrder: "descending", value: ({ steps }) => steps },
  { id: "reward", label: "Reward", firstOrder: "descending", value: ({ reward }) => reward },
  { id: "evaluation", label: "Evaluation", firstOrder: "descending", value: ({ evalReward }) => evalReward },
  { id: "model", label: "Model", firstOrder: "ascending", value: ({ model }) => model },
  { id: "updated", label: "Updated", firstOrder: "descending", value: ({ updated }) => updated },
];

/** Returns the column of a setting. */
export function settingColumn(name: string): RunColumn {
  return { id: `${SETTING}${name}`, label: name, firstOrder: "ascending", value: (run) => valueOf(settingOf(run, name)) };
}

/** Returns the column with an id; undefined for an unknown id. */
export function columnOf(id: string): RunColumn | undefined {
  return id.startsWith(SETTING) ? settingColumn(id.slice(SETTING.length)) : RUN_COLUMNS.find((column) => column.id === id);
}

/** Returns a setting of a run as text; null if the run does not have it. */
export function settingOf({ config }: Pick<RunSummary, "config">, name: string): string | null {
  return config.find(([settingName]) => settingName === name)?.[1] ?? null;
}

/** Converts the text of a number to the number, so that 8 is before 16. */
function valueOf(text: string | null): Value {
  const isNumber = text !== null && text.trim() !== "" && Number.isFinite(Number(text));
  return isNumber ? Number(text) : text;
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
  const choices = [...names].map((name) => ({ name, isDifferent: new Set(runs.map((run) => settingOf(run, name))).size > 1 }));
  return [...choices.filter(({ isDifferent }) => isDifferent), ...choices.filter(({ isDifferent }) => !isDifferent)];
}

/** Returns the runs in the order of a column; runs without a value are last in both orders, and equal runs keep their order. */
export function sortedRuns(runs: readonly RunSummary[], { value }: RunColumn, order: Order): RunSummary[] {
  const sign = order === "ascending" ? 1 : -1;
  return runs.toSorted((a, b) => {
    const [valueA, valueB] = [value(a), value(b)];
    if (valueA === null || valueB === null) return Number(valueA === null) - Number(valueB === null);
    if (typeof valueA === "number" && typeof valueB === "number") return sign * (valueA - valueB);
    return sign * String(valueA).localeCompare(String(valueB), "en", { numeric: true });
  });
}
