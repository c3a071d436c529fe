/** File of `whetstone sweep`: the settings that differ between the runs, and the seeds. */
import { z } from "zod";
import { ConfigError } from "../../base/errors.ts";
import type { Grid, Setting } from "../../lab/experiment/index.ts";
import { isRecord } from "../../base/util/values.ts";
import { problemOf, readJsonObject } from "./read.ts";
import { schemaAddress, schemaOf, SETTINGS } from "./schema.ts";

/** Settings that a sweep may vary: all but the seed, which has a list of its own. */
const VARIED = [...SETTINGS.keys()].filter((name) => name !== "seed");

/** Returns an object schema with one optional member per setting. */
function bySetting<T extends z.ZodType>(schema: (name: string) => T): z.ZodObject<Record<string, z.ZodOptional<T>>> {
  return z.strictObject(Object.fromEntries(VARIED.map((name) => [name, schema(name).optional()])));
}

/** Schema of the file. */
export const sweepFile = z.strictObject({
  $schema: schemaAddress,
  grid: bySetting((name) => z.array(schemaOf(name)).min(1))
    .optional()
    .describe("values of each setting; every combination is run"),
  list: z.array(bySetting(schemaOf)).min(1).optional().describe("combinations of settings; each is run"),
  seeds: z.array(z.int()).min(1).optional().describe("seeds of each combination (default: [0])"),
});

/** Combinations of settings, and their seeds. */
export interface SweepPlan {
  /** Values of each setting. A list of combinations is a grid with one setting, `settings`, with the combinations as values. */
  readonly grid: Grid;
  /** Whether the file has `list` instead of `grid`. */
  readonly isList: boolean;
  readonly seeds: readonly number[];
}

/** Returns the first problem of the values of a file; null without one. */
function problemIn(file: Readonly<Record<string, unknown>>): string | null {
  const { grid, list } = file as { readonly grid?: unknown; readonly list?: unknown };
  if ((grid === undefined) === (list === undefined)) return "expected either `grid` or `list`";
  const members = (value: unknown) => (isRecord(value) ? Object.entries(value) : []);
  const gridValues = members(grid).flatMap(([name, values]) =>
    Array.isArray(values) ? values.map((value: unknown) => [name, value] as const) : [],
  );
  const listValues = Array.isArray(list) ? list.flatMap(members) : [];
  for (const [name, value] of [...gridValues, ...listValues]) {
    if (name === "seed") return "expected the seeds in `seeds`, got the setting `seed`";
    const problem = problemOf(name, value);
    if (problem !== null) return problem;
  }
  const result = sweepFile.safeParse(file);
  if (result.success) return null;
  const [issue] = result.error.issues;
  const path = issue?.path.join(".") ?? "";
  if (issue?.code === "unrecognized_keys") return `expected only \`grid\` or \`list\`, and \`seeds\`; got \`${issue.keys[0]}\``;
  return `\`${path}\`: ${issue?.message}`;
}

/**
 * Reads the file of a sweep.
 *
 * @throws ConfigError `E_CONFIG` for a missing file, an unknown setting or a value that a setting does not accept.
 */
export async function readSweep(path: string): Promise<SweepPlan> {
  const file = await readJsonObject(path, "--sweep");
  const problem = problemIn(file);
  if (problem !== null) throw new ConfigError(`${path}: ${problem}`, { param: "--sweep" });
  const { grid, list, seeds = [0] } = file as { readonly grid?: Grid; readonly list?: readonly Setting[]; readonly seeds?: number[] };
  return { grid: grid ?? { settings: list ?? [] }, isList: list !== undefined, seeds };
}
