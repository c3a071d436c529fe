import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Environment } from "../environment/index.ts";
import { ConfigError } from "../errors.ts";

/**
 * Imports a file and returns the environment that it exports as default.
 *
 * @throws ConfigError `E_CONFIG` if the file does not exist, does not export an environment, or is TypeScript on a Node version that cannot
 *   run it.
 */
export async function loadEnvironment(file: string): Promise<Environment<unknown>> {
  const path = resolve(file);
  try {
    await access(path);
  } catch (cause) {
    throw new ConfigError(`Expected an environment in ${path}, found no such file`, { cause, param: "environment" });
  }
  const module = await load(path);
  const environment = module["default"];
  const isEnvironment =
    typeof environment === "object" &&
    environment !== null &&
    "scenarios" in environment &&
    "rollout" in environment &&
    "name" in environment;
  if (isEnvironment) return environment as Environment<unknown>;
  throw new ConfigError(`Expected ${path} to export an environment: \`export default defineEnvironment({ … })\``, { param: "environment" });
}

async function load(path: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    return (await import(pathToFileURL(path).href)) as Readonly<Record<string, unknown>>;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ERR_UNKNOWN_FILE_EXTENSION") throw cause;
    throw new ConfigError(
      `This Node cannot run TypeScript by itself. Install tsx and run: node --import tsx node_modules/whetstone/dist/cli/main.js, or give a .js file`,
      { cause, param: "environment" },
    );
  }
}
