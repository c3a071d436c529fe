/** Settings of a run in `config.json` of its directory: a resumed run must have the settings of its first start. */
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError } from "whetstone/errors";
import type { SftThenRlConfig } from "./sft-then-rl.ts";

/** All settings of a run. */
export interface RunSettings extends SftThenRlConfig {
  /** Name of the recipe's command. */
  readonly recipe: string;
  /** Names of the given flags, sorted. */
  readonly flags: readonly string[];
}

/** Setting that may change when a run is resumed: more steps extend it. */
const EXTENDABLE = "rl.steps";

/**
 * Writes the settings to `config.json`, after comparing them with the settings of an earlier start in the same directory.
 *
 * @throws ConfigError `E_CONFIG` if a setting differs from the earlier start; the directory is unchanged.
 */
export async function writeSettings(settings: RunSettings, runDir: string): Promise<void> {
  const path = join(runDir, "config.json");
  const earlier = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (earlier !== null) compare(valuesOf(parsed(earlier, path)), valuesOf(settings), runDir);
  await mkdir(runDir, { recursive: true });
  // Renamed, so that an interrupted process leaves no partial file.
  await writeFile(`${path}.partial`, JSON.stringify(settings, null, 2));
  await rename(`${path}.partial`, path);
}

function parsed(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigError(`Expected ${path} to be the JSON settings of a run, got text that is not JSON; choose another --run-dir`, {
      param: "run-dir",
    });
  }
}

function compare(earlier: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>, runDir: string): void {
  const names = [...new Set([...earlier.keys(), ...now.keys()])];
  const changed = names.filter((name) => name !== EXTENDABLE && earlier.get(name) !== now.get(name));
  if (changed.length === 0) return;
  const list = (values: ReadonlyMap<string, string>) => changed.map((name) => `${name} ${values.get(name) ?? "not set"}`).join(", ");
  throw new ConfigError(
    `Expected the settings of the run in ${runDir}: ${list(earlier)}; got ${list(now)}. ` +
      "Start with the same options to resume the run, or choose another --run-dir for a new run",
    { param: "run-dir" },
  );
}

/** Returns the JSON of each value by its path, such as `rl.steps`. */
function valuesOf(settings: unknown, prefix = ""): Map<string, string> {
  if (typeof settings !== "object" || settings === null || Array.isArray(settings)) return new Map([[prefix, JSON.stringify(settings)]]);
  const entries = Object.entries(settings).filter(([, value]) => value !== undefined);
  return new Map(entries.flatMap(([name, value]) => [...valuesOf(value, prefix === "" ? name : `${prefix}.${name}`)]));
}
