/** Settings of a run from the command line and from configuration files. */
import { readFile } from "node:fs/promises";
import { InvalidArgumentError } from "commander";
import type { z } from "zod";
import { ConfigError, InternalError } from "../../base/errors.ts";
import { expectationOf, schemaOf, settingTypeOf, trainSettings, unknownSetting, type TrainSettings } from "./schema.ts";
import { isRecord, parseJson } from "../../base/util/values.ts";

/** Values of settings by name, such as `train.learningRate`. */
export type NamedValues = Readonly<Record<string, unknown>>;

/** Settings as nested objects, before they are checked: `train.learningRate` is the member `learningRate` of `train`. */
interface Tree {
  [name: string]: unknown;
}

/** Describes a value that a setting does not accept, and the values that it accepts. */
function describeInvalid(name: string, value: unknown): string {
  const expected = expectationOf(settingTypeOf(name)?.schema ?? {});
  return `expected \`${name}\` to be ${expected}, got ${value === undefined ? "nothing" : JSON.stringify(value)}`;
}

/** Returns the problem of a value of a setting; null if the setting accepts it. */
export function problemOf(name: string, value: unknown): string | null {
  if (settingTypeOf(name) === undefined) return unknownSetting(name);
  const { error } = schemaOf(name).safeParse(value);
  return error === undefined ? null : firstProblem(error, value, name.split("."));
}

/** Describes the first problem of a value that a schema rejects; `prefix` is the path of the value among the settings. */
function firstProblem({ issues: [issue] }: z.ZodError, value: unknown, prefix: readonly string[] = []): string {
  if (issue === undefined) throw new InternalError("A rejected value has no problem");
  const path = [...prefix, ...issue.path.map(String)];
  if (issue.code === "unrecognized_keys") return unknownSetting([...path, issue.keys[0] ?? ""].join("."));
  // An element of a list is reported with its list.
  while (path.length > prefix.length && settingTypeOf(path.join(".")) === undefined) path.pop();
  const rejected = path.slice(prefix.length).reduce<unknown>((container, part) => (container as Tree)[part], value);
  return describeInvalid(path.join("."), rejected);
}

/**
 * Parses `name=value` and adds the setting to the previous ones. The value is JSON; if the setting does not accept the JSON, the value is a
 * text without quotes.
 *
 * @throws InvalidArgumentError for a name or value that the setting does not accept.
 */
export function parseSetting(text: string, previous: NamedValues = {}): NamedValues {
  const [, name = text, valueText] = /^([^=]*)=(.*)$/su.exec(text) ?? [];
  if (settingTypeOf(name) === undefined) throw new InvalidArgumentError(capitalized(unknownSetting(name)));
  if (valueText === undefined) throw new InvalidArgumentError("Expected name=value, such as train.learningRate=1e-4");
  const json = parseJson(valueText);
  const value = json === undefined || problemOf(name, json) !== null ? valueText : json;
  if (problemOf(name, value) === null) return { ...previous, [name]: value };
  throw new InvalidArgumentError(capitalized(problemOf(name, json ?? valueText) ?? ""));
}

/** Returns a text with a capital first letter. */
function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Sets the value at a path of a tree. An object is merged into the object that is there. */
function put(tree: Tree, [name = "", ...remainingPath]: readonly string[], value: unknown): void {
  if (remainingPath.length === 0 && !isRecord(value)) {
    tree[name] = value;
    return;
  }
  const present = Object.hasOwn(tree, name) ? tree[name] : undefined;
  const subtree = isRecord(present) ? present : {};
  tree[name] = subtree;
  if (remainingPath.length > 0) put(subtree, remainingPath, value);
  else for (const [key, member] of Object.entries(value as Tree)) put(subtree, [key], member);
}

/**
 * Reads a JSON file.
 *
 * @throws ConfigError `E_CONFIG` for a missing file, or one that is not a JSON object.
 */
export async function readJsonObject(path: string, param: string): Promise<Readonly<Record<string, unknown>>> {
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new ConfigError(`Expected ${path} to be a JSON file: ${(cause as Error).message}`, { cause, param });
  }
  if (isRecord(value)) return value;
  throw new ConfigError(`Expected ${path} to contain a JSON object`, { param });
}

/**
 * Returns `settings` overridden by `values`; objects are merged.
 *
 * @throws ConfigError `E_CONFIG` for an unknown setting, or a value that a setting does not accept.
 */
export function withSettings(settings: NamedValues, values: NamedValues): TrainSettings {
  // Without a prototype, so that every name of a file is a key like any other.
  const tree = Object.create(null) as Tree;
  for (const source of [settings, values]) for (const [name, value] of Object.entries(source)) put(tree, name.split("."), value);
  const result = trainSettings.safeParse(tree);
  if (result.success) return result.data;
  throw new ConfigError(capitalized(firstProblem(result.error, tree)), { param: "--set" });
}

/**
 * Reads the settings of a configuration file.
 *
 * @throws ConfigError `E_CONFIG` for a missing file, an unknown setting, or a value that a setting does not accept.
 */
export async function readSettingsFile(path: string): Promise<NamedValues> {
  const { $schema: _, ...settings } = await readJsonObject(path, "--config");
  const [problem] = Object.entries(settings).flatMap(([name, value]) => problemOf(name, value) ?? []);
  if (problem !== undefined) throw new ConfigError(`${path}: ${problem}`, { param: "--config" });
  return settings;
}
