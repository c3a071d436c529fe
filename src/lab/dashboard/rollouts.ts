/** Trajectories of runs for the dashboard: indexes of trajectory files, and single trajectories read through them. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { LinePosition } from "../../library/dataset/lines.ts";
import { NotFoundError } from "../../base/errors.ts";
import { detailData, groupData, type StoredGroupData } from "../report/groups.ts";
import type { GroupData, TrajectoryData } from "../report/page-data.ts";
import type { Split } from "../../run/data.ts";
import { trainedFile, trajectoryFile } from "../../run/files.ts";
import { readGroups, readTrained } from "../../run/read-groups.ts";
import type { TrajectoryGroup } from "../../base/schema/index.ts";
import { isChoice } from "../../base/trajectory/messages.ts";
import { Lru } from "../../base/util/lru.ts";
import type { TrajectoryAnswer, TrajectoryRow } from "./api.ts";
import { type FoundRun, isInside } from "../../run/find-runs.ts";

/** Max number of indexes of trajectory files in memory. */
const MAX_INDEXES = 64;
/** Max characters of the preview of a trajectory. */
const PREVIEW_LENGTH = 160;

/** Group of a trajectory file without the contents of its trajectories. */
interface IndexedGroup {
  /** Position of the group's line. */
  readonly start: LinePosition;
  readonly scenario: number;
  readonly data: StoredGroupData;
  readonly previews: readonly string[];
}

/** Trajectory file of a step of a run. */
export interface RolloutFile {
  readonly run: FoundRun;
  readonly split: Split;
  readonly step: number;
  /** Scenario indices of the groups that the filters of the run discarded. */
  readonly discarded: ReadonlySet<number>;
}

/** Index of one trajectory file. It grows with the file. */
class RolloutIndex {
  readonly #path: string;
  /** Groups by scenario; of duplicates, the first counts, as in training. */
  #groups = new Map<number, IndexedGroup>();
  /** End of the last indexed line. */
  #position: LinePosition = { line: 0, end: 0 };
  /** Inode of the file at the last refresh; 0 before the first. */
  #inode = 0;
  /** Refresh in progress, which later callers share; null without one. */
  #refreshing: Promise<void> | null = null;

  constructor(path: string) {
    this.#path = path;
  }

  /** Groups ordered by scenario, because the file has them in order of completion. */
  get groups(): IndexedGroup[] {
    return [...this.#groups.values()].sort((a, b) => a.scenario - b.scenario);
  }

  /** Returns the group of a line; undefined if the line has none. */
  groupAt(line: number): IndexedGroup | undefined {
    return this.groups.find(({ data }) => data.line === line);
  }

  /** Reads the groups appended since the last call. @throws DataError `E_DATA` with file and line for a line without a group. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = null;
    });
    return this.#refreshing;
  }

  /** Indexes the lines after `#position`. */
  async #read(): Promise<void> {
    const { size, ino } = await stat(this.#path);
    // A shorter file, or another file of the same name, is indexed anew.
    if (size < this.#position.end || (ino !== this.#inode && this.#inode !== 0)) {
      this.#groups = new Map();
      this.#position = { line: 0, end: 0 };
    }
    this.#inode = ino;
    if (size === this.#position.end) return;
    for await (const { line, scenario, group, isWhole, end } of readGroups(this.#path, { from: this.#position })) {
      // The run may still be writing the last line.
      if (!isWhole) break;
      const start = this.#position;
      this.#position = { line, end };
      if (this.#groups.has(scenario)) continue;
      const data = groupData(group, line, () => null);
      this.#groups.set(scenario, { start, scenario, data, previews: group.trajectories.map(previewOf) });
    }
  }
}

/** Returns the data of a group with the decision of the run's filters, which the run records after the groups of the step. */
function dataOf({ scenario, data }: IndexedGroup, { discarded }: RolloutFile): GroupData {
  return { ...data, isDiscarded: discarded.has(scenario) };
}

/** Returns the start of the last text that the model wrote. */
function previewOf({ messages_and_choices: items }: TrajectoryGroup["trajectories"][number]): string {
  const content = items.findLast(isChoice)?.message.content;
  return typeof content === "string" ? content.slice(0, PREVIEW_LENGTH) : "";
}

/** Trajectories of runs, read file by file: an index of the requested step, and single lines through the index. */
export class Rollouts {
  readonly #indexes = new Lru<string, RolloutIndex>({ maxEntries: MAX_INDEXES });

  /**
   * Returns the groups of a step by scenario, without the contents of their trajectories.
   *
   * @throws NotFoundError `E_NOT_FOUND` if the step has no file.
   * @throws DataError `E_DATA` with file and line for a damaged line.
   */
  async groups(file: RolloutFile): Promise<{ readonly scenario: number; readonly data: GroupData }[]> {
    return (await this.#indexOf(file)).groups.map((group) => ({ scenario: group.scenario, data: dataOf(group, file) }));
  }

  /** Returns a row for each trajectory of a step, by scenario, then index. @throws see {@link groups}. */
  async rows(file: RolloutFile): Promise<TrajectoryRow[]> {
    const { split, step } = file;
    const { groups } = await this.#indexOf(file);
    return groups.flatMap(({ data: { line, id, trajectories }, previews }) =>
      trajectories.map(({ reward, advantage, tokens, turns }, index) => ({
        ...{ split, step, line, index, scenario: id, reward, advantage, tokens, turns },
        preview: previews[index] ?? "",
      })),
    );
  }

  /**
   * Reads one trajectory with its contents.
   *
   * @param line - Line of the group in the file, from 1.
   * @param index - Index of the trajectory in the group.
   * @throws NotFoundError `E_NOT_FOUND` if the trajectory does not exist.
   */
  async trajectory(file: RolloutFile, line: number, index: number): Promise<TrajectoryAnswer> {
    const { run, split, step } = file;
    const indexed = (await this.#indexOf(file)).groupAt(line);
    if (indexed?.data.trajectories[index] === undefined) {
      throw new NotFoundError(`The run ${run.name} has no trajectory ${index} on line ${line} of ${trajectoryFile(split, step)}`);
    }
    const trained = split === "train" ? await trainedOf(run, step) : null;
    const turns = trained?.get(`${indexed.scenario}/${index}`);
    const path = await pathOf(file);
    for await (const { group } of readGroups(path, { from: indexed.start })) {
      const withDetail = groupData(group, line, (trajectory, position) => (position === index ? detailData(trajectory, turns) : null));
      return {
        ...{ split, step, line, index, hasTrained: trained !== null },
        group: dataOf(indexed, file),
        trajectory: withDetail.trajectories[index] as TrajectoryData,
      };
    }
    throw new NotFoundError(`${path} has lost its line ${line}: the file was replaced. Load the step again`);
  }

  /** Returns the index of a file, up to date. */
  async #indexOf(file: RolloutFile): Promise<RolloutIndex> {
    const path = await pathOf(file);
    const index = this.#indexes.get(path) ?? new RolloutIndex(path);
    this.#indexes.set(path, index);
    await index.refresh();
    return index;
  }
}

/** Reads the token report of a step; null without one. */
async function trainedOf(run: FoundRun, step: number): ReturnType<typeof readTrained> {
  const path = join(run.path, trainedFile(step));
  return (await isInside(run.root, path)) ? readTrained(path) : null;
}

/** Returns the path of a trajectory file. @throws NotFoundError `E_NOT_FOUND` if it does not exist inside of the root. */
async function pathOf({ run, split, step }: RolloutFile): Promise<string> {
  const name = trajectoryFile(split, step);
  const path = join(run.path, name);
  if (await isInside(run.root, path)) return path;
  throw new NotFoundError(`The run ${run.name} has no file ${name}`);
}
