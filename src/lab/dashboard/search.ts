/** Full-text search in the trajectories of a run. */
import { join } from "node:path";
import { readLines } from "../../library/dataset/lines.ts";
import { DataError } from "../../base/errors.ts";
import { detailData } from "../report/groups.ts";
import type { ItemData } from "../report/page-data.ts";
import { trajectoryFile } from "../../run/files.ts";
import { parseLine } from "../../run/rows.ts";
import { trajectoryGroup } from "../../base/schema/index.ts";
import type { SearchAnswer, TrajectoryRow } from "./api.ts";
import { isInside } from "../../run/find-runs.ts";
import type { RolloutFile, Rollouts } from "./rollouts.ts";
import { messageOf } from "../../base/util/values.ts";

/** Characters of a text that are shown before and after a match. */
const CONTEXT = { before: 40, after: 120 };
/** Texts that a JSON file contains unchanged, however its writer escapes characters: a line without such a text needs no parsing. */
const UNESCAPED = /^[\w .,:;!?()[\]{}<>=+*@#$%&|~^'`-]+$/u;

/** Options of {@link searchTrajectories}. */
export interface SearchOptions {
  /** Text to find, in any case. */
  readonly text: string;
  /** Max number of trajectories. */
  readonly limit: number;
  /** Signal that stops the search. */
  readonly signal: AbortSignal;
}

/**
 * Finds the trajectories with a text in a message, reasoning, tool call or log line. Reads the files in the given order, up to `limit`
 * trajectories; only lines that contain the text are parsed.
 *
 * @throws DataError `E_DATA` with file and line for a damaged line.
 */
export async function searchTrajectories(
  rollouts: Rollouts,
  files: readonly RolloutFile[],
  { text, limit, signal }: SearchOptions,
): Promise<SearchAnswer> {
  const wanted = text.toLowerCase();
  const items: TrajectoryRow[] = [];
  for (const file of files) {
    const matches = await matchesIn(file, wanted, signal);
    if (matches.size === 0) continue;
    for (const row of await rollouts.rows(file)) {
      const preview = matches.get(`${row.line}/${row.index}`);
      if (preview === undefined) continue;
      if (items.length === limit) return { items, isComplete: false };
      items.push({ ...row, preview });
    }
  }
  return { items, isComplete: true };
}

/**
 * Returns the text around the first match of each trajectory, by `line/index`.
 *
 * @param wanted - Text to find, in lower case.
 */
async function matchesIn({ run, split, step }: RolloutFile, wanted: string, signal: AbortSignal): Promise<Map<string, string>> {
  const path = join(run.path, trajectoryFile(split, step));
  const previews = new Map<string, string>();
  if (!(await isInside(run.root, path))) return previews;
  for await (const { line, text, isWhole } of readLines(path, { signal })) {
    if (!isWhole || text === null) continue;
    if (UNESCAPED.test(wanted) && !text.toLowerCase().includes(wanted)) continue;
    const { trajectories } = parseLine(path, line, { value: jsonOf(text, `${path}:${line}`), schema: trajectoryGroup });
    for (const [index, trajectory] of trajectories.entries()) {
      const { histories, logs } = detailData(trajectory, undefined);
      const texts = [...histories.flat().flatMap(textsOf), ...logs];
      const match = texts.find((candidate) => candidate.toLowerCase().includes(wanted));
      if (match !== undefined) previews.set(`${line}/${index}`, around(match, wanted));
    }
  }
  return previews;
}

/** Parses a line. @throws DataError `E_DATA` with file and line. */
function jsonOf(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DataError(`${place}: expected JSON: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the texts of a message that a search reads. */
function textsOf({ text, reasoning, calls }: ItemData): string[] {
  return [text, reasoning ?? "", ...calls.map(({ name, args }) => `${name} ${args}`)];
}

/** Returns the first match with the text around it on one line. */
function around(text: string, wanted: string): string {
  const start = text.toLowerCase().indexOf(wanted);
  const from = Math.max(0, start - CONTEXT.before);
  const to = start + wanted.length + CONTEXT.after;
  const beginning = from > 0 ? "…" : "";
  const ending = to < text.length ? "…" : "";
  return `${beginning}${text.slice(from, to)}${ending}`.replaceAll(/\s+/gu, " ");
}
