/** Reader of one run directory for the dashboard: summary, details and metrics, kept up to date by reading appended lines only. */
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";
import type { ColumnsData, NotesChange, Split } from "../../run/data.ts";
import { CHECKPOINTS_FILE, RUN_CONFIG_FILE, EVENTS_FILE, METRICS_FILE, NOTES_FILE } from "../../run/files.ts";
import { type FoundRun, isInside } from "../../run/find-runs.ts";
import { type LineTail, tailOf } from "../../run/line-tail.ts";
import { appendNotes, notesOf, notesRow, type NotesRow } from "../../run/notes.ts";
import { columnsOf, discardedOf, readRunConfig, readStepNumbers, spanOf, summarizeRows } from "../../run/read-run.ts";
import { checkpointRow, eventRow, metricsRow, type RunCheckpoint, type EventRow, type MetricsRow } from "../../run/rows.ts";
import { endOf, endText, isLocked, runStatusOf } from "../../run/status.ts";
import { configRows, configSummary, factRows, titleOf } from "../report/facts.ts";
import type { RunDetails, RunMetrics, RunStateName, RunSummary, StepSummary } from "./api.ts";
import { formatPosition } from "./position.ts";
import type { RolloutFile } from "./rollouts.ts";
import { messageOf } from "../../base/util/values.ts";

/** Max number of rewards in the summary of a run. */
const SPARKLINE_VALUES = 60;

/** Incremental reader of a run directory: a refresh reads only the lines appended since the last one. */
export class RunReader {
  readonly run: FoundRun;
  readonly #metrics: LineTail<MetricsRow>;
  readonly #events: LineTail<EventRow>;
  readonly #checkpoints: LineTail<RunCheckpoint>;
  readonly #notes: LineTail<NotesRow>;
  /** End of the last change of the notes, so that changes are written one after the other. */
  #writingNotes: Promise<unknown> = Promise.resolve();
  /** Contents of `config.json`; undefined without the file. */
  #config: unknown;
  /** Inode, size and time of `config.json` when it was read; empty without the file. */
  #configVersion = "";
  /** State at the last refresh. */
  #state: RunStateName = "interrupted";
  /** Message of the first file that could not be read at the last refresh; null without one. */
  #problem: string | null = null;
  /** Refresh in progress, which later callers share; null without one. */
  #refreshing: Promise<boolean> | null = null;

  constructor(run: FoundRun) {
    this.run = run;
    this.#metrics = tailOf(run, METRICS_FILE, { schema: metricsRow });
    this.#events = tailOf(run, EVENTS_FILE, { schema: eventRow });
    this.#checkpoints = tailOf(run, CHECKPOINTS_FILE, { schema: checkpointRow });
    this.#notes = tailOf(run, NOTES_FILE, { schema: notesRow });
  }

  /** Whether a live process holds the lock of the run. */
  get isRunning(): boolean {
    return this.#state === "running";
  }

  /** Position in the files of the run up to which they were read. */
  get position(): string {
    return formatPosition({ events: this.#events.end, metrics: this.#metrics.end });
  }

  /**
   * Refreshes only if there are new events or metrics. Does not notice a process that ended without recording an event; {@link refresh}
   * does. Returns true if the summary has changed.
   */
  async poll(): Promise<boolean> {
    const changed = await Promise.all([this.#events.hasChanged(), this.#metrics.hasChanged()]);
    return changed.includes(true) && (await this.refresh());
  }

  /** Reads appended lines; concurrent calls share one read. Returns true if the summary has changed. */
  refresh(): Promise<boolean> {
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = null;
    });
    return this.#refreshing;
  }

  /** Reads all files and the state. */
  async #read(): Promise<boolean> {
    const previousState = this.#state;
    const previousProblem = this.#problem;
    let hasChanged = false;
    let problem: string | null = null;
    const tails = [this.#metrics, this.#events, this.#checkpoints, this.#notes];
    const reads = [() => this.#readConfig(), ...tails.map((tail) => () => tail.read())];
    // A damaged file does not keep the others from being read.
    for (const read of reads) {
      try {
        const hasNewContent = await read();
        hasChanged ||= hasNewContent;
      } catch (error) {
        problem ??= messageOf(error);
      }
    }
    this.#problem = problem;
    this.#state = await this.#currentState();
    return hasChanged || this.#state !== previousState || this.#problem !== previousProblem;
  }

  /** Reads `config.json` if it has changed. Returns whether it has. */
  async #readConfig(): Promise<boolean> {
    const path = join(this.run.path, RUN_CONFIG_FILE);
    const file = await stat(path).catch(() => null);
    const version = file === null ? "" : `${file.ino}:${file.size}:${file.mtimeMs}`;
    if (version === this.#configVersion) return false;
    this.#config = (await isInside(this.run.root, path)) ? await readRunConfig(path) : undefined;
    this.#configVersion = version;
    return true;
  }

  /** Returns the state from the recorded end and the lock of the directory. */
  async #currentState(): Promise<RunStateName> {
    const { kind } = runStatusOf(endOf(this.#events.rows), {
      isLocked: await isLocked(this.run.path),
      hasEvents: this.#events.rows.length > 0,
    });
    return kind === "unknown" ? "interrupted" : kind;
  }

  /** Returns the summary of the run as of the last refresh. */
  summary(): RunSummary {
    const { id, path, name } = this.run;
    const [metrics, events, checkpoints] = [this.#metrics.rows, this.#events.rows, this.#checkpoints.rows];
    const rewards = this.#rewards("train");
    // The rows of each file are in the order of time.
    const span = spanOf([metrics, events, checkpoints].flatMap((rows) => [rows[0]?.time, rows.at(-1)?.time]));
    const plannedSteps = events.findLast(({ type }) => type === "run-start" || type === "run-resume")?.steps;
    return {
      id,
      title: titleOf(this.#config, basename(path)),
      path,
      name,
      ...configSummary(this.#config),
      state: this.#state,
      ended: endText(endOf(this.#events.rows)),
      steps: rewards.size,
      plannedSteps: typeof plannedSteps === "number" ? plannedSteps : null,
      reward: lastNumber(rewards),
      evalReward: lastNumber(this.#rewards("eval")),
      rewards: evenlySpaced([...rewards.values()]),
      started: span === null ? null : new Date(span[0]).toISOString(),
      updated: span === null ? null : new Date(span[1]).toISOString(),
      config: configRows(this.#config),
      ...notesOf(this.#notes.rows),
      problem: this.#problem,
    };
  }

  /** Returns the mean reward by step; null for a step without a reward. */
  #rewards(split: Split): Map<number, number | null> {
    const name = split === "train" ? "reward/mean" : "eval/reward/mean";
    const rows = this.#metrics.rows.filter((row) => row.split === split);
    return new Map(rows.map((row) => [row.step, typeof row[name] === "number" ? row[name] : null]));
  }

  /** Reads everything but metrics and trajectories, in the form of a report page. */
  async details(): Promise<RunDetails> {
    const run = {
      config: this.#config,
      ...summarizeRows({ metrics: this.#metrics.rows, events: this.#events.rows, checkpoints: this.#checkpoints.rows }),
      trajectories: await readStepNumbers(this.run.path),
    };
    const namesOf = ({ columns }: ColumnsData) => Object.keys(columns);
    const { checkpoints, events, notices } = run;
    return {
      ...this.summary(),
      ...{ facts: factRows(run), checkpoints, events, notices },
      metricNames: { train: namesOf(run.metrics.train), eval: namesOf(run.metrics.eval) },
      position: this.position,
    };
  }

  /** Returns metrics as columns. @param names - Names of the metrics; empty for all. */
  metrics(names: readonly string[]): RunMetrics {
    const rows = this.#metrics.rows;
    return {
      run: this.run.id,
      metrics: { train: withColumns(columnsOf(rows, "train"), names), eval: withColumns(columnsOf(rows, "eval"), names) },
      position: this.position,
    };
  }

  /** Records a change of the note or the tags. @throws DataError `E_DATA` if the file cannot be written. */
  async annotate(change: NotesChange): Promise<void> {
    const write = () => appendNotes(this.run, change);
    this.#writingNotes = this.#writingNotes.then(write, write);
    await this.#writingNotes;
  }

  /** Returns the trajectory file of a step, with the groups that were discarded as of the last refresh. */
  file(split: Split, step: number): RolloutFile {
    const discarded = split === "train" ? discardedOf(this.#events.rows).get(step) : undefined;
    return { run: this.run, split, step, discarded: discarded ?? new Set() };
  }

  /** Lists the steps with a trajectory file: train before eval, ascending. */
  async steps(): Promise<StepSummary[]> {
    const available = await readStepNumbers(this.run.path);
    return (["train", "eval"] as const).flatMap((split) => {
      const prefix = split === "train" ? "" : "eval/";
      const rows = new Map(this.#metrics.rows.filter((row) => row.split === split).map((row) => [row.step, row]));
      const metric = (step: number, name: string) => {
        const value = rows.get(step)?.[`${prefix}${name}`];
        return typeof value === "number" ? value : null;
      };
      return available[split].map((step) => ({
        split,
        step,
        trajectories: metric(step, "rollout/trajectories"),
        groups: metric(step, "rollout/groups"),
        reward: metric(step, "reward/mean"),
      }));
    });
  }
}

/** Returns the columns of some metrics; all columns for an empty list of names. */
function withColumns({ steps, columns }: ColumnsData, names: readonly string[]): ColumnsData {
  if (names.length === 0) return { steps, columns };
  const existing = names.filter((name) => columns[name] !== undefined);
  return { steps, columns: Object.fromEntries(existing.map((name) => [name, columns[name] ?? []])) };
}

/** Returns the last value that is not null; null without one. */
function lastNumber(values: ReadonlyMap<number, number | null>): number | null {
  return [...values.values()].findLast((value) => value !== null) ?? null;
}

/** Returns at most {@link SPARKLINE_VALUES} of the values, evenly spaced, with the first and the last. */
function evenlySpaced(values: readonly (number | null)[]): (number | null)[] {
  const count = Math.min(values.length, SPARKLINE_VALUES);
  const distance = (values.length - 1) / Math.max(count - 1, 1);
  return Array.from({ length: count }, (_, index) => values[Math.round(index * distance)] ?? null);
}
