/** Reading and writing of trajectories and groups as JSON Lines, the format in which runs store them. */
import { DataError } from "../../base/errors.ts";
import { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";
import { Dataset } from "./dataset.ts";
import { readJsonLines, writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "./jsonl.ts";
import { statedCount } from "./metadata.ts";
import { expandPaths, type Patterns } from "./paths.ts";
import { unversioned, versioned } from "./records.ts";
import { validateTrajectory, validateTrajectoryGroup } from "../../base/trajectory/validate.ts";

/**
 * Reads trajectories from JSON Lines files, lazily, with all their data: token ids, log-probabilities and keys of other writers.
 *
 * A line is a trajectory, or a group that yields its trajectories in order. Files ending in `.gz` are decompressed.
 *
 * @param patterns - Paths or globs (`*`, `?`, `**`, `{a,b}`); read in order of their names.
 * @param options - Handling of a torn last line, and a signal.
 * @returns Dataset; each iteration reads the files again. Iterating throws DataError `E_DATA` with file and line, or for a pattern that
 *   matches nothing.
 * @example
 * ```ts
 * const good = readTrajectories("runs/*\/trajectories/train/*.jsonl").filter((t) => t.reward > 0.5);
 * for await (const t of good) console.log(t.reward, t.lastText);
 * ```
 */
export function readTrajectories(patterns: Patterns, options: ReadOptions = {}): Dataset {
  return Dataset.from({
    async *[Symbol.asyncIterator]() {
      for await (const { value, where } of readRecords(patterns, options)) {
        yield* trajectoriesOf(value, where);
      }
    },
  });
}

/**
 * Reads groups from JSON Lines files, lazily, with their exceptions, metrics, metadata and logs.
 *
 * @param patterns - Paths or globs, as for {@link readTrajectories}.
 * @param options - Handling of a torn last line, and a signal.
 * @returns The groups in file order; each iteration reads the files again. Iterating throws DataError `E_DATA` with file and line, also for
 *   a line that is a single trajectory, or the signal's reason.
 * @example
 * ```ts
 * for await (const { rewards, exceptions } of readTrajectoryGroups("runs/reverse/trajectories/train/*.jsonl")) {
 *   console.log(rewards, exceptions.length);
 * }
 * ```
 */
export function readTrajectoryGroups(patterns: Patterns, options: ReadOptions = {}): AsyncIterable<TrajectoryGroup> {
  return {
    async *[Symbol.asyncIterator]() {
      for await (const { value, where } of readRecords(patterns, options)) {
        if (!isGroup(value))
          throw new DataError(`${where}: expected a trajectory group with \`trajectories\`; \`readTrajectories\` reads both`);
        yield toGroup(value, where);
      }
    },
  };
}

/**
 * Writes trajectories, one per line. Atomic: a failed call leaves `path` unchanged.
 *
 * @param path - File to write; compressed if the name ends in `.gz`.
 * @param trajectories - Trajectories, in order.
 * @param options - Signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for a value that JSON cannot represent.
 * @throws the signal's reason.
 * @example
 * ```ts
 * await writeTrajectories("best.jsonl.gz", groups.flatMap(({ trajectories }) => trajectories));
 * ```
 */
export function writeTrajectories(
  path: string,
  trajectories: Iterable<Trajectory> | AsyncIterable<Trajectory>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  return writeJsonLines(path, records(trajectories), options);
}

/**
 * Writes groups, one per line, atomically like {@link writeTrajectories}.
 *
 * @param path - File to write; compressed if the name ends in `.gz`.
 * @param groups - Groups, in order.
 * @param options - Signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for a value that JSON cannot represent.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { streamTrajectoryGroups } from "whetstone";
 * import { environmentRollout } from "whetstone/environment";
 *
 * const played = streamTrajectoryGroups(environment.scenarios.eval, environmentRollout(environment), { policy });
 * await writeTrajectoryGroups("groups.jsonl", played);
 * ```
 */
export function writeTrajectoryGroups(
  path: string,
  groups: Iterable<TrajectoryGroup> | AsyncIterable<TrajectoryGroup>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  return writeJsonLines(path, records(groups), options);
}

/** Yields the wire form of each item, with the schema version. */
async function* records(items: Iterable<{ toJSON(): object }> | AsyncIterable<{ toJSON(): object }>): AsyncGenerator<object> {
  for await (const item of items) yield versioned(item.toJSON());
}

/**
 * Reads the values of JSON Lines files, without their schema version.
 *
 * @throws DataError `E_DATA` for an invalid line, or if `metadata.json` of a file states another number of lines.
 */
export async function* readRecords(
  patterns: Patterns,
  options: ReadOptions,
): AsyncGenerator<{ readonly value: unknown; readonly where: string }, void, undefined> {
  for (const path of await expandPaths(patterns)) {
    const expectedCount = await statedCount(path);
    let count = 0;
    for await (const { line, value } of readJsonLines(path, options)) {
      count++;
      const where = `${path}:${line}`;
      yield { value: unversioned(value, where), where };
    }
    if (expectedCount !== null && expectedCount !== count) {
      throw new DataError(
        `${path}: expected ${expectedCount} records, as its metadata.json says, got ${count}; was the file cut or changed?`,
      );
    }
  }
}

/**
 * Returns a parsed trajectory, or the trajectories of a parsed group.
 *
 * @throws DataError `E_DATA` that starts with `where`.
 */
export function trajectoriesOf(value: unknown, where: string): readonly Trajectory[] {
  return isGroup(value) ? toGroup(value, where).trajectories : [toTrajectory(value, where)];
}

/** Whether a parsed line is a group and not a trajectory. */
function isGroup(value: unknown): boolean {
  return typeof value === "object" && value !== null && "trajectories" in value && !("messages_and_choices" in value);
}

/** Validates a parsed trajectory, whose memory it takes over. @throws DataError `E_DATA` that starts with `where`. */
function toTrajectory(value: unknown, where: string): Trajectory {
  const mismatch = formatMismatch(value);
  if (mismatch !== null) throw new DataError(`${where}: ${mismatch}`);
  const result = validateTrajectory(value);
  if (result.success) return Trajectory.fromOwned(result.data);
  throw schemaError("trajectory", result.error, where);
}

/** Validates a parsed group as {@link toTrajectory} does a trajectory. */
function toGroup(value: unknown, where: string): TrajectoryGroup {
  const result = validateTrajectoryGroup(value);
  if (!result.success) throw schemaError("trajectory group", result.error, where);
  return TrajectoryGroup.fromOwned(result.data);
}

/** Returns the error of a value that the schema rejects, with the first problem. @param what - Noun for the expected value. */
function schemaError(
  what: string,
  error: { readonly issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[] },
  where: string,
): DataError {
  const [issue] = error.issues;
  const path = issue === undefined || issue.path.length === 0 ? "(root)" : issue.path.map(String).join(".");
  return new DataError(`${where}: expected a ${what}; at \`${path}\`: ${issue?.message ?? "invalid"}`, { cause: error });
}

/**
 * Returns an error message for a value that is not a trajectory, else null. The schema alone would accept any object as an empty
 * trajectory, because every field has a default.
 */
function formatMismatch(value: unknown): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "expected a trajectory object";
  if ("messages_and_choices" in value) return null;
  if ("messages" in value) return "expected a trajectory with `messages_and_choices`, got a chat example; `readChatJsonl` reads those";
  if ("chosen" in value || "preferred_output" in value)
    return "expected a trajectory with `messages_and_choices`, got a preference pair; `readPreferences` and `whetstone prefer` read those";
  return "expected a trajectory with `messages_and_choices`";
}
