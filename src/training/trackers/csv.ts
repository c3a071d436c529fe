import { appendFile, mkdir, rename, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "../train/tracker.ts";

/** Options of {@link csvTracker}. */
export interface CsvOptions {
  /** File to write. @default `metrics.csv` in the run directory */
  readonly path?: string | undefined;
  /** Name of the tracker; runs with two CSV trackers need two names. @default "csv" */
  readonly name?: string | undefined;
}

/** First columns of the file; the other columns are metrics, in order of first occurrence. */
const COLUMNS = ["time", "event", "step"] as const;

type Row = ReadonlyMap<string, string>;

/**
 * Writes the metrics of a run as a table for spreadsheets and data frames: one row per step, evaluation and gradient step of a supervised
 * run, one column per metric. A metric that occurs for the first time adds a column, for which the file is written anew.
 *
 * @param options - All optional.
 * @returns The tracker.
 * @example
 * ```ts
 * import { trainRl } from "whetstone/train";
 * import { csvTracker } from "whetstone/trackers/csv";
 *
 * const run = trainRl({ model, environment, steps: 20, runDir: "runs/sums", trackers: [csvTracker()] });
 * await run.done; // runs/sums/metrics.csv
 * ```
 */
export function csvTracker({ path, name = "csv" }: CsvOptions = {}): Tracker {
  return {
    name,
    async open(run, state) {
      const file = path === undefined ? join(run.runDir, "metrics.csv") : resolve(path);
      await mkdir(dirname(file), { recursive: true });
      return CsvSession.open(file, run, state as number | null);
    },
  };
}

/** Open table. The state of the tracker is the `seq` of the last event in the file; the file is written anew at each start. */
class CsvSession implements TrackerSession {
  readonly #file: string;
  readonly #columns: Set<string>;
  readonly #rows: Row[];

  private constructor(file: string, rows: Row[]) {
    this.#file = file;
    this.#rows = rows;
    this.#columns = new Set([...COLUMNS, ...rows.flatMap((row) => [...row.keys()])]);
  }

  static async open(file: string, run: TrackedRun, lastSeq: number | null): Promise<CsvSession> {
    const rows: Row[] = [];
    if (lastSeq !== null) for await (const event of run.events(lastSeq)) rows.push(...rowOf(event));
    const session = new CsvSession(file, rows);
    await session.#writeAll();
    return session;
  }

  async log(events: readonly TrackedEvent[]): Promise<number> {
    const rows = events.flatMap(rowOf);
    const known = this.#columns.size;
    for (const row of rows) for (const column of row.keys()) this.#columns.add(column);
    this.#rows.push(...rows);
    if (this.#columns.size > known) await this.#writeAll();
    else if (rows.length > 0) await appendFile(this.#file, this.#textOf(rows));
    return (events.at(-1) as TrackedEvent).event.seq;
  }

  async close(): Promise<void> {}

  async #writeAll(): Promise<void> {
    const header = [...this.#columns].map(quoted).join(",");
    await writeFile(`${this.#file}.tmp`, `${header}\n${this.#textOf(this.#rows)}`);
    await rename(`${this.#file}.tmp`, this.#file);
  }

  #textOf(rows: readonly Row[]): string {
    return rows.map((row) => `${[...this.#columns].map((column) => quoted(row.get(column) ?? "")).join(",")}\n`).join("");
  }
}

function rowOf({ event, step, metrics }: TrackedEvent): Row[] {
  if (Object.keys(metrics).length === 0) return [];
  const values = Object.entries(metrics).map(([name, value]) => [name, String(value)] as const);
  return [new Map([["time", event.time], ["event", event.type], ["step", String(step)], ...values])];
}

/** Quotes a field as RFC 4180 requires. */
function quoted(text: string): string {
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
