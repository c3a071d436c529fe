/** Directory of a run: records events, derives the other files from them, and restores the state from which the run resumes. */

import { mkdir, readFile, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Observable, Subject } from "rxjs";
import { JsonLog } from "../library/dataset/append.ts";
import { readJsonLines, writeJsonLines } from "../library/dataset/jsonl.ts";
import { ConfigError, DataError } from "../base/errors.ts";
import { TrajectoryGroup } from "../base/trajectory/index.ts";
import { eventFromDisk, eventToDisk, type LiveEventBody, type RecordedEvent, type RecordedEventBody, type RunEvent } from "./events.ts";
import type { Split } from "./data.ts";
import {
  CHECKPOINTS_FILE,
  RUN_CONFIG_FILE,
  EVENTS_FILE,
  LOCK_FILE,
  METRICS_FILE,
  TRAJECTORIES_FOLDER,
  trainedFile,
  trajectoryFile,
} from "./files.ts";
import { numberedEventLine, parseLine, type TrainedLine } from "./rows.ts";
import { rxjs } from "../library/follow/rxjs.ts";
import { isFileSystemError, isMissingFile } from "../base/util/file-system-error.ts";
import { takeLock } from "../base/util/process-lock.ts";
import { replaceFile } from "../base/util/replace-file.ts";
import { getOrInsert } from "../base/util/values.ts";
import { derivedRows, keyOf, type DerivedRow } from "./derived-rows.ts";
import { nextState, stateOf, type ResumeState } from "./resume-state.ts";

/** Configuration of a run as plain data, stored in `config.json` and compared when the run resumes. */
export interface RunConfig {
  readonly version: 1;
  readonly kind: "rl" | "sft" | "preference" | "eval";
  /** Settings that must be the same at every start of the run. */
  readonly fixed: Readonly<Record<string, unknown>>;
  /** Settings that may differ from one start to the next. */
  readonly free: Readonly<Record<string, unknown>>;
}

/**
 * A run on disk: its events, metrics, groups and checkpoints, and the state derived from the events.
 *
 * `events.jsonl` is the source of truth. `metrics.jsonl` and `checkpoints.jsonl` are derived from it; rows lost in a crash are added when
 * the directory is opened.
 */
export class RunDirectory {
  readonly path: string;
  readonly #events: JsonLog;
  readonly #metrics: JsonLog;
  readonly #checkpoints: JsonLog;
  readonly #unlock: () => Promise<void>;
  /** Events as they occur; completes when the directory is closed. */
  readonly #live: Subject<RunEvent> = new (rxjs().Subject)();
  /** Open group files by path, from the first `addGroup` of a step to its `closeGroups`. */
  readonly #groupLogs = new Map<string, Promise<JsonLog>>();
  #state: ResumeState;
  /** Number of the next recorded event. */
  #seq: number;

  private constructor(
    path: string,
    logs: readonly [JsonLog, JsonLog, JsonLog],
    unlock: () => Promise<void>,
    events: readonly RecordedEvent[],
  ) {
    this.path = path;
    [this.#events, this.#metrics, this.#checkpoints] = logs;
    this.#unlock = unlock;
    this.#state = stateOf(events);
    this.#seq = (events.at(-1)?.seq ?? -1) + 1;
  }

  /**
   * Creates the directory, or opens it to resume the run in it.
   *
   * @throws ConfigError `E_CONFIG` if the directory holds another run, or cannot be written.
   * @throws ConflictError `E_CONFLICT` while another process uses the directory.
   */
  static async open(runDir: string, config: RunConfig): Promise<RunDirectory> {
    const path = resolve(runDir);
    const unlock = await createLocked(path);
    const logs: JsonLog[] = [];
    try {
      await requireSameRun(join(path, RUN_CONFIG_FILE), config);
      await writeConfig(join(path, RUN_CONFIG_FILE), config);
      for (const name of [EVENTS_FILE, METRICS_FILE, CHECKPOINTS_FILE]) logs.push(await JsonLog.open(join(path, name)));
      const events: RecordedEvent[] = [];
      for await (const event of readEvents(path)) events.push(event);
      const directory = new RunDirectory(path, logs as [JsonLog, JsonLog, JsonLog], unlock, events);
      await directory.#appendMissingRows();
      return directory;
    } catch (error) {
      await Promise.allSettled(logs.map((log) => log.close()));
      await unlock();
      throw error;
    }
  }

  /** Current state of the run. */
  get state(): ResumeState {
    return this.#state;
  }

  /** Appends an event to the log, updates the derived files, emits the event to subscribers and returns the new state. */
  async record(body: RecordedEventBody): Promise<ResumeState> {
    const event: RecordedEvent = { seq: this.#seq++, time: new Date().toISOString(), ...body };
    await this.#events.append(eventToDisk(event));
    // Jobs and checkpoints that may exist on the service must stay on record even if the machine crashes.
    if (event.type === "job-intent" || event.type === "step-end") await this.#events.sync();
    this.#state = nextState(this.#state, event);
    for (const row of derivedRows(event)) await this.#append(row);
    this.#live.next(event);
    return this.#state;
  }

  /** Emits a live event to subscribers without recording it. */
  report(body: LiveEventBody): void {
    this.#live.next({ seq: null, time: new Date().toISOString(), ...body });
  }

  /** Events from now on as they occur, recorded and live. */
  get live$(): Observable<RunEvent> {
    return this.#live;
  }

  /** Replays the recorded events from the file, then emits live events; completes when the directory is closed. */
  events(): Observable<RunEvent> {
    return new (rxjs().Observable)((subscriber) => {
      /** Live events that arrive during the replay; null once the replay has ended. */
      let liveEvents: RunEvent[] | null = [];
      /** Whether the directory was closed. */
      let isClosed = false;
      /** `seq` of the last emitted recorded event. */
      let lastSeq = -1;
      // An event recorded during the subscription may arrive twice, from the file and live: emit it once.
      const emit = (event: RunEvent) => {
        if (event.seq !== null && event.seq <= lastSeq) return;
        lastSeq = event.seq ?? lastSeq;
        subscriber.next(event);
      };
      const subscription = this.#live.subscribe({
        next: (event) => (liveEvents === null ? emit(event) : liveEvents.push(event)),
        complete: () => {
          isClosed = true;
          if (liveEvents === null) subscriber.complete();
        },
      });
      const replay = async () => {
        for await (const event of readEvents(this.path)) {
          if (subscriber.closed) break;
          emit(event);
        }
        const missedEvents = liveEvents ?? [];
        liveEvents = null;
        for (const event of missedEvents) emit(event);
        if (isClosed) subscriber.complete();
      };
      replay().catch((error: unknown) => subscriber.error(error));
      return subscription;
    });
  }

  /** Reads a step's groups from disk, ordered by scenario index; of duplicates, the first counts. */
  async groups(split: Split, step: number): Promise<TrajectoryGroup[]> {
    const groups = new Map<number, TrajectoryGroup>();
    const path = this.#groupFile(split, step);
    await this.#groupLogs.get(path);
    try {
      for await (const { value } of readJsonLines(path, { tornLine: "skip" })) {
        const group = TrajectoryGroup.fromJSON(value);
        const index = scenarioIndex(group);
        if (!groups.has(index)) groups.set(index, group);
      }
    } catch (error) {
      if (!(error instanceof Error && (isMissingFile(error) || isMissingFile(error.cause)))) throw error;
    }
    return [...groups.values()].sort((a, b) => scenarioIndex(a) - scenarioIndex(b));
  }

  /** Appends a finished group to the file of its step. */
  async addGroup(split: Split, step: number, group: TrajectoryGroup): Promise<void> {
    const log = await this.#groupLog(split, step);
    await log.append(group.toJSON());
  }

  /** Flushes a step's groups to disk and closes their file. Called after the last group of the step. */
  async closeGroups(split: Split, step: number): Promise<void> {
    const path = this.#groupFile(split, step);
    const log = await this.#groupLogs.get(path);
    if (log === undefined) return;
    this.#groupLogs.delete(path);
    try {
      await log.sync();
    } finally {
      await log.close();
    }
  }

  /** Writes the trainer's values of a step's trajectories, one trajectory per line. */
  async writeTrained(step: number, lines: readonly TrainedLine[], signal: AbortSignal): Promise<void> {
    const path = join(this.path, trainedFile(step));
    await mkdir(dirname(path), { recursive: true });
    await writeJsonLines(path, lines, { signal });
  }

  /** Deletes the file of a step's groups, if it exists. */
  async removeGroups(split: Split, step: number): Promise<void> {
    await rm(this.#groupFile(split, step), { force: true });
  }

  /** Completes the event streams, closes every file and releases the directory's lock. */
  async close(): Promise<void> {
    this.#live.complete();
    // The caller of `addGroup` gets the error of a file that cannot be opened.
    const opened = await Promise.allSettled(this.#groupLogs.values());
    const logs = opened.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    try {
      await Promise.all([this.#events, this.#metrics, this.#checkpoints, ...logs].map((log) => log.close()));
    } finally {
      await this.#unlock();
    }
  }

  /** Returns the path of a step's groups. */
  #groupFile(split: Split, step: number): string {
    return join(this.path, trajectoryFile(split, step));
  }

  /** Opens the file of a step's groups, once until {@link closeGroups}. */
  #groupLog(split: Split, step: number): Promise<JsonLog> {
    const path = this.#groupFile(split, step);
    return getOrInsert(this.#groupLogs, path, async () => {
      try {
        await mkdir(dirname(path), { recursive: true });
        return await JsonLog.open(path);
      } catch (error) {
        // The next group tries again.
        this.#groupLogs.delete(path);
        throw error;
      }
    });
  }

  /** Appends a row to its derived file. */
  async #append({ file, row }: DerivedRow): Promise<void> {
    await (file === METRICS_FILE ? this.#metrics : this.#checkpoints).append(row);
  }

  /** Appends the rows that a crash between recording an event and appending its rows has prevented. */
  async #appendMissingRows(): Promise<void> {
    const existing = new Set<string>();
    for (const file of [METRICS_FILE, CHECKPOINTS_FILE] as const) {
      for await (const { value } of readJsonLines(join(this.path, file))) existing.add(keyOf(value as DerivedRow["row"]));
    }
    for await (const event of readEvents(this.path)) {
      for (const derived of derivedRows(event)) if (!existing.has(keyOf(derived.row))) await this.#append(derived);
    }
  }
}

/** Creates a run directory, locks it, and returns the function that releases the lock. */
async function createLocked(path: string): Promise<() => Promise<void>> {
  try {
    await mkdir(join(path, TRAJECTORIES_FOLDER), { recursive: true });
    return await takeLock(join(path, LOCK_FILE), { noun: "run directory", param: "runDir" });
  } catch (cause) {
    if (!isFileSystemError(cause)) throw cause;
    throw new ConfigError(
      `The run directory '${path}' cannot be written: ${cause.message}. Make it writable, or choose another \`runDir\``,
      { cause, param: "runDir" },
    );
  }
}

/** Reads the events of a run directory, oldest first, skipping a torn last line. @throws DataError `E_DATA` for a line without an event. */
export async function* readEvents(runDir: string): AsyncGenerator<RecordedEvent, void, undefined> {
  const path = join(runDir, EVENTS_FILE);
  for await (const { line, value } of readJsonLines(path, { tornLine: "skip" })) {
    yield eventFromDisk(parseLine(path, line, { value, schema: numberedEventLine }));
  }
}

/** Returns the run-wide index of a group's scenario. @throws DataError `E_DATA` if the group lacks the metadata `scenario_index`. */
export function scenarioIndex(group: TrajectoryGroup): number {
  const index = group.metadata["scenario_index"];
  if (typeof index !== "number") throw new DataError("Expected a group of a run to have the metadata `scenario_index`");
  return index;
}

/**
 * Checks that a directory with a `config.json` holds the run of a configuration.
 *
 * @throws ConfigError `E_CONFIG` if the file has other fixed settings.
 */
async function requireSameRun(path: string, { version, kind, fixed }: RunConfig): Promise<void> {
  const text = await readFile(path, "utf8").catch(() => null);
  if (text === null) return;
  const stored = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const current: Readonly<Record<string, unknown>> = { version, kind, ...fixed };
  // Directories of earlier versions lack the keys of newer options, which are null at their defaults.
  const isChanged = (key: string) => JSON.stringify(stored[key] ?? null) !== JSON.stringify(current[key] ?? null);
  const changes = Object.keys(current)
    .filter(isChanged)
    .map((key) => `\`${key}\` was ${JSON.stringify(stored[key])} and is now ${JSON.stringify(current[key])}`);
  if (changes.length === 0) return;
  const message = `The run directory holds another run: ${changes.join("; ")}. Use the same settings to go on with it, or another \`runDir\``;
  throw new ConfigError(message, { param: "runDir" });
}

/** Writes `config.json`. */
async function writeConfig(path: string, { version, kind, fixed, free }: RunConfig): Promise<void> {
  await replaceFile(path, `${JSON.stringify({ version, kind, ...fixed, ...free }, null, 2)}\n`);
}
