/** Report of a run as a single HTML file: `writeReport` reads the run, selects steps, and writes the page. */
import { basename, join, resolve } from "node:path";
import { ArgumentError } from "../../base/errors.ts";
import { replaceFile } from "../../base/util/replace-file.ts";
import { configRows, factRows, titleOf } from "./facts.ts";
import { reportHtml } from "./html.ts";
import type { ColumnsData } from "../../run/data.ts";
import { REPORT_FILE } from "../../run/files.ts";
import { readRun } from "../../run/read-run.ts";
import { readSteps } from "./read-steps.ts";

/** Options of {@link writeReport}. */
export interface WriteReportOptions {
  /** Output path; an existing file is replaced. @default `report.html` in the run directory */
  readonly path?: string | undefined;
  /**
   * Max number of steps with trajectories in the page; a third of them is reserved for evaluations. Selected are the last, the first and
   * the best step, then evenly spaced steps. Metrics of all steps are always included.
   *
   * @default 24
   */
  readonly steps?: number | undefined;
  /**
   * Max bytes of trajectory contents in the page. Beyond the limit contents are omitted; rewards and advantages of the selected steps stay.
   *
   * @default 8388608
   */
  readonly trajectoryBytes?: number | undefined;
  /** Stops the writing, which then rejects with the signal's reason and leaves no page. */
  readonly signal?: AbortSignal | undefined;
}

/** Result of {@link writeReport}. */
export interface WrittenReport {
  /** Absolute path of the page. */
  readonly path: string;
  /** Size of the page in bytes. */
  readonly sizeBytes: number;
  /** Steps with trajectories in the page. */
  readonly steps: readonly {
    /** Purpose of the rollouts. */
    readonly split: "train" | "eval";
    /** Step of the run, from 0. */
    readonly step: number;
  }[];
}

/**
 * Writes a run directory as a single HTML page that needs no network: curves, groups side by side, and the selected trajectories with their
 * tokens. The run may still be active. The page is written to a temporary file and then renamed, so that a reader never sees a partial
 * page.
 *
 * @param runDir - Directory written by a training run.
 * @param options - Output path and size limits.
 * @returns path and size of the page, and the steps with trajectories in it.
 * @throws NotFoundError `E_NOT_FOUND` if `runDir` contains no files of a run.
 * @throws DataError `E_DATA` with file and line for a file that does not match its schema; an incomplete last line is skipped.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const { path, sizeBytes } = await writeReport("runs/reverse");
 * console.log(`${path}, ${sizeBytes} bytes`);
 * ```
 */
export async function writeReport(runDir: string, options: WriteReportOptions = {}): Promise<WrittenReport> {
  if (typeof runDir !== "string" || runDir === "") {
    throw new ArgumentError(`Expected \`runDir\` to be the path of a run directory, got ${JSON.stringify(runDir)}`, { param: "runDir" });
  }
  const { signal } = options;
  const limits = {
    steps: requireWhole("steps", options.steps ?? 24),
    bytes: requireWhole("trajectoryBytes", options.trajectoryBytes ?? 8 * 1024 * 1024),
  };
  signal?.throwIfAborted();
  const run = await readRun(runDir, signal);
  const steps = await readSteps(runDir, run, { limits, signal });
  const html = await reportHtml({
    title: titleOf(run.config, basename(resolve(runDir))),
    written: new Date().toISOString(),
    facts: factRows(run),
    config: configRows(run.config),
    metrics: { train: withRoundedValues(run.metrics.train), eval: withRoundedValues(run.metrics.eval) },
    checkpoints: run.checkpoints,
    events: run.events,
    notices: run.notices,
    steps,
    available: { train: run.trajectories.train.length, eval: run.trajectories.eval.length },
  });
  const path = resolve(options.path ?? join(runDir, REPORT_FILE));
  await replaceFile(path, html, signal);
  return { path, sizeBytes: Buffer.byteLength(html), steps: steps.map(({ split, step }) => ({ split, step })) };
}

/** Rounds metrics to six significant digits: more than a curve can show, in less than half the bytes. */
function withRoundedValues({ steps, columns }: ColumnsData): ColumnsData {
  const round = (values: readonly (number | null)[]) => values.map((value) => (value === null ? null : Number(value.toPrecision(6))));
  return { steps, columns: Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, round(values)])) };
}

/** Returns an option after checking that it is an integer of at least 0. */
function requireWhole(name: "steps" | "trajectoryBytes", value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ArgumentError(`Expected \`${name}\` to be a whole number from 0, got ${String(value)}`, { param: name });
}
