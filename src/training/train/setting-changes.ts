/** Differences between the settings of two starts of a run. */
import type { SettingChange } from "../../run/events.ts";
import { camelCase } from "../../base/util/letter-case.ts";

/** Settings by their names in `config.json`. */
type Settings = Readonly<Record<string, unknown>>;

/** Returns the settings by name, `train.learning_rate` for a member of an object. */
function flattened(settings: Settings, prefix = ""): Map<string, unknown> {
  const values = new Map<string, unknown>();
  for (const [key, value] of Object.entries(settings)) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) values.set(`${prefix}${key}`, value);
    else for (const [name, member] of flattened(value as Settings, `${prefix}${key}.`)) values.set(name, member);
  }
  return values;
}

/**
 * Returns the settings that differ between two starts of a run. A setting that only one of the two starts has recorded
 * does not count: another version of the package may have written it. Neither does `default_learning_rate`, which `train.learning_rate`
 * contains.
 */
export function settingChanges(before: Settings, after: Settings): SettingChange[] {
  const sharedKeys = Object.keys(after).filter((key) => key in before && key !== "default_learning_rate");
  const pick = (settings: Settings) => flattened(Object.fromEntries(sharedKeys.map((key) => [key, settings[key]])));
  const valuesBefore = pick(before);
  const valuesAfter = pick(after);
  return [...new Set([...valuesBefore.keys(), ...valuesAfter.keys()])].flatMap((name) => {
    const change = { name, before: valuesBefore.get(name) ?? null, after: valuesAfter.get(name) ?? null };
    return JSON.stringify(change.before) === JSON.stringify(change.after) ? [] : [change];
  });
}

/** Returns changes as text, under the names of the library's options: `train.learningRate 0.0003 → 0.0001`. */
export function changesText(changes: readonly SettingChange[]): string {
  const text = (value: unknown) => (value === null ? "none" : JSON.stringify(value));
  return changes.map(({ name, before, after }) => `${camelCase(name)} ${text(before)} → ${text(after)}`).join(", ");
}
