/**
 * Title, settings and summary of a run, for the report and the dashboard.
 *
 * The configuration is the `config.json` of any run directory. The trainers of this package write texts in snake_case (`model`,
 * `base_model`, `environment`). Directories of recipes and of other programs may have objects instead (`model: { name, baseModel }`), or no
 * such key.
 */
import type { RunFiles } from "../../run/read-run.ts";
import { endText } from "../../run/status.ts";

/** Names of settings that may contain a credential, which a shared report must not reveal. `maxTokens` and similar names do not match. */
const SECRET =
  /(?:^|[._-])(?:authorization|password|passphrase|secret|credentials?)$|(?:api|access|private|secret|auth)[._-]?(?:key|token)$/i;
/** Text in place of a hidden value. */
const HIDDEN = "(hidden)";

/**
 * Flattens a configuration to `name, value` rows in written order, with nested settings as `evaluation.every`. An empty object and a list
 * of plain values are one row. Values of settings that look like credentials are hidden.
 */
export function configRows(config: unknown): [string, string][] {
  if (config === undefined) return [];
  if (typeof config !== "object" || config === null) return [["config", JSON.stringify(config)]];
  return Object.entries(config).flatMap(([name, value]) => rowsOf(name, value));
}

/** Returns the rows of one setting: its members, or the setting itself. */
function rowsOf(name: string, value: unknown): [string, string][] {
  if (SECRET.test(name)) return [[name, HIDDEN]];
  if (typeof value === "string") return [[name, value]];
  const isTree = typeof value === "object" && value !== null && !isFlatList(value) && Object.keys(value).length > 0;
  if (!isTree) return [[name, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, member]) => rowsOf(`${name}.${key}`, member));
}

/** Whether an object is a list without objects or lists in it. */
function isFlatList(value: object): boolean {
  return Array.isArray(value) && value.every((item) => typeof item !== "object" || item === null);
}

/** Returns the summary rows of a run: durations in seconds, steps, evaluations, checkpoints, stored trajectories. */
export function factRows(run: RunFiles): [string, string][] {
  const { train, eval: evaluations } = run.metrics;
  const kept = run.checkpoints.filter(({ state }) => state !== "deleted");
  const rows: [string, string | null][] = [
    ["Model", modelOf(run.config)],
    ["Base model", baseModelOf(run.config)],
    ["Ended", endText(run.end)],
    ["Steps", train.steps.length === 0 ? null : `${train.steps.length} (${train.steps[0]} to ${train.steps.at(-1)})`],
    ["Evaluations", evaluations.steps.length === 0 ? null : String(evaluations.steps.length)],
    ["Started", run.span && timeText(run.span[0])],
    ["Last written", run.span && timeText(run.span[1])],
    // The sum over the steps excludes interruptions of the run.
    ["Seconds in steps", sumText(train.columns["time/step_seconds"])],
    ["Seconds from start to last write", run.span && ((run.span[1] - run.span[0]) / 1000).toFixed(1)],
    ["Checkpoints", run.checkpoints.length === 0 ? null : `${run.checkpoints.length} made, ${kept.length} kept`],
    ["Files of trajectories", `${run.trajectories.train.length} train, ${run.trajectories.eval.length} eval`],
  ];
  return rows.filter((row): row is [string, string] => row[1] !== null);
}

/** Formats the sum of a column; null without the column. */
function sumText(values: readonly (number | null)[] | undefined): string | null {
  return values === undefined ? null : values.reduce<number>((sum, value) => sum + (value ?? 0), 0).toFixed(1);
}

/** Returns the model's name: `model` of the configuration, a text or an object with a `name` or `id`. */
function modelOf(config: unknown): string | null {
  const model = property(config, "model");
  return firstText([model, property(model, "name"), property(model, "id")]);
}

/** Returns the base model: `base_model` of the configuration, or `baseModel` of its object `model`. */
function baseModelOf(config: unknown): string | null {
  return firstText([property(config, "base_model"), property(property(config, "model"), "baseModel")]);
}

/** Returns the kind of training, the model and the base model that a configuration names; null for each that it does not name. */
export function configSummary(config: unknown): {
  readonly kind: "rl" | "sft" | "preference" | null;
  readonly model: string | null;
  readonly baseModel: string | null;
} {
  const kind = property(config, "kind");
  return {
    kind: kind === "rl" || kind === "sft" || kind === "preference" ? kind : null,
    model: modelOf(config),
    baseModel: baseModelOf(config),
  };
}

/** Returns the title of a run: `name` of its configuration, or the name of its environment, else the name of its directory. */
export function titleOf(config: unknown, directoryName: string): string {
  const environment = property(config, "environment");
  return firstText([property(config, "name"), environment, property(environment, "name")]) ?? directoryName;
}

/** Returns the first candidate that is a text and not empty; null without such a candidate. */
function firstText(candidates: readonly unknown[]): string | null {
  return candidates.find((candidate): candidate is string => typeof candidate === "string" && candidate !== "") ?? null;
}

/** Returns a property of an object; undefined for any other value. */
export function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** Formats a time as `2026-11-22 14:05:09 UTC`. */
function timeText(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
