/** Readers of the files with a row per group or trajectory: sampled groups, and the trainer's values. */

import { readJsonLines, type JsonLine } from "../library/dataset/jsonl.ts";
import type { LinePosition } from "../library/dataset/lines.ts";
import { trajectoryGroup, type TrajectoryGroup } from "../base/schema/index.ts";
import { pathExists } from "../base/util/file-system-error.ts";
import { parseLine, parseLines, trainedRow } from "./rows.ts";

/** Trainer's values of a sampled turn. */
export interface TrainedTurn {
  /** Advantage of the turn, or the mean of `advantages`; null if the turn was not trained. */
  readonly advantage: number | null;
  /** Advantage of each sampled token, if they differ. */
  readonly advantages?: readonly number[] | null | undefined;
  /** Log-probability of each sampled token before the step, null for an untrained token; null if the turn was not trained. */
  readonly logprobs: readonly (number | null)[] | null;
}

/** Group in a trajectory file, with its line number and position. */
interface GroupLine extends Omit<JsonLine, "value"> {
  /** Index of the scenario; the index of the line, from 0, if the group has no `scenario_index`. */
  readonly scenario: number;
  readonly group: TrajectoryGroup;
}

/**
 * Reads the groups of a trajectory file in file order. An incomplete last line is skipped.
 *
 * @param options - `from`: position of an earlier reading to resume at.
 * @throws DataError `E_DATA` with file and line for a line without a group.
 */
export async function* readGroups(
  path: string,
  options: { readonly signal?: AbortSignal | undefined; readonly from?: LinePosition | undefined },
): AsyncGenerator<GroupLine, void, undefined> {
  for await (const { line, value, isWhole, end } of readJsonLines(path, { tornLine: "skip", ...options })) {
    const group = parseLine(path, line, { value, schema: trajectoryGroup });
    yield { line, scenario: Number(group.metadata["scenario_index"] ?? line - 1), group, isWhole, end };
  }
}

/**
 * Reads the trainer's values of a step.
 *
 * @returns turns by `scenario/trajectory`; null if the run stored none for the step.
 * @throws DataError `E_DATA` with file and line for a line that does not match its schema.
 */
export async function readTrained(path: string, signal?: AbortSignal): Promise<Map<string, readonly TrainedTurn[]> | null> {
  if (!(await pathExists(path))) return null;
  const rows = await parseLines(path, trainedRow, signal);
  const trained = new Map<string, readonly TrainedTurn[]>();
  for (const { scenario_index: scenario, trajectory_index: trajectory, turns } of rows) {
    const trainedTurns = turns.map(({ advantage = null, advantages, logprobs = null }) => ({ advantage, advantages, logprobs }));
    trained.set(`${scenario}/${trajectory}`, trainedTurns);
  }
  return trained;
}
