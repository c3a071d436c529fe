/** Cells of a sweep: one combination of settings and seed, with a directory and a record of its state. */
import { createHash } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { ArgumentError, ConfigError, DataError } from "../../base/errors.ts";
import { replaceFile } from "../../base/util/replace-file.ts";
import { isRecord, parseJson } from "../../base/util/values.ts";

/** Value of a setting in a sweep: JSON, because the settings are recorded and name the cell. */
export type Setting = string | number | boolean | null | readonly Setting[] | { readonly [name: string]: Setting };

/** Values of each setting; a sweep runs every combination. */
export type Grid = Readonly<Record<string, readonly Setting[]>>;

/** Combination of one value per grid setting. */
export type Settings<G extends Grid> = { readonly [K in keyof G]: G[K][number] };

/** Combination of settings and seed in a sweep. */
export interface SweepCell<S> {
  /** Name of the cell's directory, derived from settings and seed alone; also valid as the name of a model. */
  readonly name: string;
  /** Directory of the cell, which exists: the `runDir` of its training run. */
  readonly dir: string;
  /** Values of the settings. */
  readonly settings: S;
  /** Seed of the cell. */
  readonly seed: number;
}

/** Schema of `cell.json`. */
const recordSchema = z.strictObject({
  version: z.literal(1),
  settings: z.record(z.string(), z.json()),
  seed: z.int(),
  state: z.enum(["running", "completed", "failed"]),
  attempts: z.int(),
  seconds: z.number().nullable(),
  value: z.json(),
  error: z.strictObject({ type: z.string(), code: z.string().nullable(), message: z.string() }).nullable(),
});

/** Contents of `cell.json`. */
export type CellRecord = z.infer<typeof recordSchema>;

/** Max characters of the settings in the name of a cell, without the hash. */
const MAX_NAME = 96;
/** Names that are valid as the name of a directory and of a model. */
const SAFE = /^[\w-][\w.-]*$/u;

/**
 * Returns the cells of a grid: all combinations for the first seed, then for the next.
 *
 * @throws ArgumentError `E_ARGUMENT` for a setting without values, a value that is not JSON, a duplicate value, or a seed that is not an
 *   integer.
 */
export function cellsOf<G extends Grid>(dir: string, grid: G, seeds: readonly number[]): SweepCell<Settings<G>>[] {
  for (const [name, values] of Object.entries(grid)) checkValues(name, values);
  if (seeds.length === 0 || seeds.some((seed, index) => !Number.isSafeInteger(seed) || seeds.indexOf(seed) !== index)) {
    throw new ArgumentError(`Expected \`seeds\` to be distinct integers, at least one, got ${JSON.stringify(seeds)}`, { param: "seeds" });
  }
  let combinations: Record<string, Setting>[] = [{}];
  for (const [name, values] of Object.entries(grid))
    combinations = combinations.flatMap((combination) => values.map((value) => ({ ...combination, [name]: value })));
  return seeds.flatMap((seed) =>
    combinations.map((settings) => {
      const name = `${settingsName(settings)}seed-${seed}`;
      return { name, dir: join(dir, name), settings: settings as Settings<G>, seed };
    }),
  );
}

/** Checks the values of a setting. */
function checkValues(name: string, values: readonly Setting[]): void {
  const param = `grid.${name}`;
  if (!Array.isArray(values) || values.length === 0)
    throw new ArgumentError(`Expected \`${param}\` to be a list of at least one value, got ${JSON.stringify(values)}`, { param });
  const texts = values.map((value) => {
    if (z.json().safeParse(value).success) return canonical(value);
    throw new ArgumentError(`Expected \`${param}\` to contain JSON values, got \`${String(value)}\`; look up other objects in \`run\``, {
      param,
    });
  });
  const duplicate = texts.find((text, index) => texts.indexOf(text) !== index);
  if (duplicate !== undefined)
    throw new ArgumentError(`Expected \`${param}\` to contain each value once, got ${duplicate} twice`, { param });
}

/** Returns `learningRate-0.0003_lora-8_`: settings sorted by name, with a hash where characters are replaced or the name is long. */
function settingsName(settings: Readonly<Record<string, Setting>>): string {
  const textOf = (value: Setting | undefined) => (typeof value === "string" ? value : JSON.stringify(value));
  const parts = Object.keys(settings)
    .sort()
    .map((key) => `${key}-${textOf(settings[key])}_`);
  const name = parts.join("");
  // The text "1" and the number 1 would give the same name. A text that is JSON gets a hash, and so does an object or a list.
  const isPlain = Object.values(settings).every(
    (value) => typeof value !== "object" && !(typeof value === "string" && parseJson(value) !== undefined),
  );
  if (name === "" || (isPlain && SAFE.test(name) && name.length <= MAX_NAME)) return name;
  const hash = createHash("sha256").update(canonical(settings)).digest("hex").slice(0, 8);
  const readable = name
    .replaceAll(/[^\w.-]+/gu, "-")
    .replace(/^\.+/u, "")
    .slice(0, MAX_NAME);
  return `${readable.replace(/[_-]+$/u, "")}_${hash}_`;
}

/** Returns JSON with sorted keys. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    isRecord(member) ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1))) : member,
  );
}

/**
 * Reads the record of a cell; null if the cell was never started.
 *
 * @throws DataError `E_DATA` for a file that does not match the schema.
 * @throws ConfigError `E_CONFIG` if the directory belongs to other settings.
 */
export async function readCell(cell: SweepCell<unknown>): Promise<CellRecord | null> {
  const path = join(cell.dir, "cell.json");
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (text === null) return null;
  const { data: record, error } = recordSchema.safeParse(parseJson(text));
  if (error !== undefined) throw new DataError(`${path}: expected the record of a cell: ${error.issues[0]?.message}. Delete its directory`);
  const hasSameSettings = isDeepStrictEqual(record.settings, JSON.parse(JSON.stringify(cell.settings)));
  if (record.seed === cell.seed && hasSameSettings) return record;
  throw new ConfigError(`${path} records other settings than the cell of this name: ${JSON.stringify(record.settings)}`, {
    param: "dir",
  });
}

/** Writes the record of a cell, creating its directory. */
export async function writeCell(cell: SweepCell<unknown>, contents: CellRecord): Promise<void> {
  await mkdir(cell.dir, { recursive: true });
  await replaceFile(join(cell.dir, "cell.json"), `${JSON.stringify(contents, null, 2)}\n`);
}
