/** Tracker that writes the metrics of a run to a CSV file. */
import { appendFile, mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { replaceFile } from "../../base/util/replace-file.ts";
import { last } from "../../base/util/values.ts";
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

/** Text of the fields by column. */
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
      return openTable(file, run, state as number | null);
    },
  };
}

/**
 * Opens the table of a run. Each start writes the file anew from the recorded events, so that an interrupted delivery leaves no row twice.
 *
 * @param lastSeq - Saved state of the tracker: `seq` of the last confirmed event; null at the first start.
 */
async function openTable(file: string, run: TrackedRun, lastSeq: number | null): Promise<TrackerSession> {
  const rows: Row[] = [];
  if (lastSeq !== null) for await (const event of run.events(lastSeq)) rows.push(...rowsOf(event));
  const columns = new Set<string>(COLUMNS);
  const addColumns = (added: readonly Row[]) => {
    for (const row of added) for (const column of row.keys()) columns.add(column);
  };
  const writeAll = () => replaceFile(file, lineOf([...columns]) + linesOf(rows, columns));
  addColumns(rows);
  await writeAll();
  return {
    async log(events) {
      const added = events.flatMap(rowsOf);
      const knownColumns = columns.size;
      addColumns(added);
      rows.push(...added);
      if (columns.size > knownColumns) await writeAll();
      else if (added.length > 0) await appendFile(file, linesOf(added, columns));
      return last(events).event.seq;
    },
    close: async () => {},
  };
}

/** Formats rows as lines; a column that a row lacks is empty. */
function linesOf(rows: readonly Row[], columns: ReadonlySet<string>): string {
  return rows.map((row) => lineOf([...columns].map((column) => row.get(column) ?? ""))).join("");
}

/** Formats fields as one line. */
function lineOf(fields: readonly string[]): string {
  return `${fields.map(quoted).join(",")}\n`;
}

/** Returns the row of an event; none for an event without metrics. */
function rowsOf({ event, step, metrics }: TrackedEvent): Row[] {
  if (Object.keys(metrics).length === 0) return [];
  const values = Object.entries(metrics).map(([name, value]) => [name, String(value)] as const);
  return [new Map([["time", event.time], ["event", event.type], ["step", String(step)], ...values])];
}

/** Quotes a field as RFC 4180 requires. */
function quoted(text: string): string {
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
