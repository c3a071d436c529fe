/** Differences between the settings of two starts of a run. */
import type { SettingChange } from "../../run/events.ts";
import { camelCase } from "../../base/util/letter-case.ts";

type Settings = Readonly<Record<string, unknown>>;

/** Returns the settings by name, `train.learning_rate` for a member of an object. */
function flattened(settings: Settings, prefix = ""): Map<string, unknown> {
  const found = new Map<string, unknown>();
  for (const [key, value] of Object.entries(settings)) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) found.set(`${prefix}${key}`, value);
    else for (const [name, inner] of flattened(value as Settings, `${prefix}${key}.`)) found.set(name, inner);
  }
  return found;
}

/**
 * Returns the settings that differ between two starts of a run. A setting that only one of the two starts has recorded
 * does not count: another version of the package may have written it. Neither does `default_learning_rate`, which `train.learning_rate`
 * contains.
 */
export function settingChanges(before: Settings, after: Settings): SettingChange[] {
  const shared = Object.keys(after).filter((key) => key in before && key !== "default_learning_rate");
  const pick = (settings: Settings) => flattened(Object.fromEntries(shared.map((key) => [key, settings[key]])));
  const [old, now] = [pick(before), pick(after)];
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((name) => {
    const change = { name, before: old.get(name) ?? null, after: now.get(name) ?? null };
    return JSON.stringify(change.before) === JSON.stringify(change.after) ? [] : [change];
  });
}

/** Returns changes as text, under the names of the library's options: `train.learningRate 0.0003 → 0.0001`. */
export function changesText(changes: readonly SettingChange[]): string {
  const text = (value: unknown) => (value === null ? "none" : JSON.stringify(value));
  return changes.map(({ name, before, after }) => `${camelCase(name)} ${text(before)} → ${text(after)}`).join(", ");
}
