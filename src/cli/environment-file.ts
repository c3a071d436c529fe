/** Loading of the environments that a file of the user exports. TypeScript files run through tsx. */
import { access, readFile } from "node:fs/promises";
import { dirname, extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import type { Environment } from "../library/environment/index.ts";
import { ConfigError, WhetstoneError } from "../base/errors.ts";
import { userLocation } from "../base/util/user-location.ts";
import { messageOf } from "../base/util/values.ts";

/** Options of a command that takes an environment file. */
export interface EnvironmentOptions {
  /** Name of the environment, or of its export, in a file that exports several. */
  readonly env?: string;
}

/** Exports of a module by name. */
type Exports = Readonly<Record<string, unknown>>;

/** Adds the argument and the option of {@link loadEnvironment} to a command. */
export function addEnvironment(command: Command): Command {
  return command
    .argument("<environment>", "JavaScript or TypeScript file that exports an environment, made by `defineEnvironment`")
    .option("--env <name>", "the environment, if the file exports several");
}

/**
 * Imports a file and returns the environment among its exports.
 *
 * @param file - JavaScript or TypeScript file, in an ESM or a CommonJS project.
 * @throws ConfigError `E_CONFIG` if the file does not exist, exports no environment, several without `env`, or none of the name `env`.
 */
export async function loadEnvironment(file: string, options: EnvironmentOptions = {}): Promise<Environment<unknown>> {
  const selected = await selectedExports(file, options);
  // One environment may have several exports.
  const [environment, ...others] = new Set(selected.map((entry) => entry[1]));
  if (environment === undefined || others.length > 0)
    throw new ConfigError(`${resolve(file)} exports several environments: ${namesOf(selected)}. Name one with --env`, { param: "--env" });
  return withSource(environment, resolve(file));
}

/** Imports a file and returns all environments among its exports, or the one of the name `env`; otherwise as {@link loadEnvironment}. */
export async function loadEnvironments(file: string, options: EnvironmentOptions = {}): Promise<Environment<unknown>[]> {
  const selected = await selectedExports(file, options);
  return [...new Set(selected.map(([, environment]) => environment))].map((environment) => withSource(environment, resolve(file)));
}

/** Environment with the name of its export. */
type ExportedEnvironment = readonly [string, Environment<unknown>];

/** Imports a file and returns its environments, at least one. */
async function selectedExports(file: string, { env }: EnvironmentOptions): Promise<ExportedEnvironment[]> {
  const path = resolve(file);
  try {
    await access(path);
  } catch (cause) {
    throw new ConfigError(`Expected an environment in ${path}, found no such file`, { cause, param: "environment" });
  }
  const exported = environmentsOf(await importUserFile(path));
  if (exported.length === 0) {
    throw new ConfigError(`Expected ${path} to export an environment: \`export default defineEnvironment({ … })\``, {
      param: "environment",
    });
  }
  const selected = env === undefined ? exported : exported.filter(([exportName, { name }]) => name === env || exportName === env);
  if (selected.length === 0)
    throw new ConfigError(`${path} exports no environment "${env}"; it exports ${namesOf(exported)}`, { param: "--env" });
  return selected;
}

/** Returns the names of environments for an error message. */
function namesOf(environments: readonly ExportedEnvironment[]): string {
  return environments.map(([exportName, { name }]) => `${name} (export ${exportName})`).join(", ");
}

/** Returns an environment with the file as its source, unless it has another. */
function withSource(environment: Environment<unknown>, path: string): Environment<unknown> {
  return environment.source === undefined ? { ...environment, source: path } : environment;
}

/** Returns the environments among the exports, each with the name of its export. */
function environmentsOf(module: Exports): ExportedEnvironment[] {
  // The exports of a CommonJS module are members of its `default`, too.
  const { default: defaultExport } = module;
  const isNamespace = typeof defaultExport === "object" && defaultExport !== null && !isEnvironment(defaultExport);
  const members = isNamespace ? Object.entries(defaultExport) : [];
  const exported = new Map([...members, ...Object.entries(module)]);
  return [...exported].filter((entry): entry is [string, Environment<unknown>] => isEnvironment(entry[1]));
}

/** Whether a value is an environment, also of another copy of the package. */
function isEnvironment(value: unknown): value is Environment<unknown> {
  return typeof value === "object" && value !== null && "scenarios" in value && "rollout" in value && "name" in value;
}

/** Whether Node runs a file as CommonJS: by its extension, or by `type` of the nearest package.json, whose default is CommonJS. */
async function isCommonJs(path: string): Promise<boolean> {
  if (/\.[cm]tsx?$/u.test(path)) return /\.ctsx?$/u.test(path);
  for (let directory = dirname(path); ; directory = dirname(directory)) {
    const text = await readFile(join(directory, "package.json"), "utf8").catch(() => null);
    if (text !== null) return (JSON.parse(text) as { readonly type?: string }).type !== "module";
    if (dirname(directory) === directory) return true;
  }
}

/**
 * Imports a file with {@link importFile}.
 *
 * @throws ConfigError `E_CONFIG` with the position in the file, for an error that its code throws.
 */
async function importUserFile(path: string): Promise<Exports> {
  try {
    return await importFile(path);
  } catch (cause) {
    if (WhetstoneError.isInstance(cause)) throw cause;
    const name = cause instanceof Error ? cause.name : "a thrown value";
    const location = cause instanceof Error ? userLocation(cause.stack ?? "") : null;
    const locationText = location === null ? "" : ` at ${location}`;
    throw new ConfigError(`Expected ${path} to load, got ${name}${locationText}: ${messageOf(cause)}. Correct the file`, {
      cause,
      param: "environment",
    });
  }
}

/** Registration of tsx, started by the first TypeScript file. */
let registration: Promise<void> | undefined;

/** Registers tsx as a loader of this process, once: each registration adds a loader that all later imports pass through. */
function registerLoader(): Promise<void> {
  registration ??= import("tsx/esm/api").then(({ register }) => void register());
  return registration;
}

/** Imports a file, TypeScript with tsx. */
async function importFile(path: string): Promise<Exports> {
  const url = pathToFileURL(path).href;
  if (!/^\.[cm]?tsx?$/u.test(extname(path))) return (await import(url)) as Exports;
  // Node's own type stripping resolves imports differently and rejects enums, so every Node version runs TypeScript with tsx.
  if (!(await isCommonJs(path))) {
    await registerLoader();
    return (await import(url)) as Exports;
  }
  const { require } = await import("tsx/cjs/api");
  try {
    return require(path, url) as Exports;
  } catch (cause) {
    if (!(cause instanceof Error) || cause.name !== "TransformError") throw cause;
    throw new ConfigError(`${cause.message}. The file is CommonJS: rename it to .mts, or set "type": "module" in package.json`, {
      cause,
      param: "environment",
    });
  }
}
