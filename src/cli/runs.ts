/** Command `whetstone runs`: a table of the run directories below a folder. */
import { relative, resolve } from "node:path";
import { Command } from "commander";
import { findRuns, openRun, type Run, type RunState } from "../lab/experiment/index.ts";
import { isDirectory } from "../lab/experiment/open-runs.ts";
import { DataError, NotFoundError } from "../base/errors.ts";
import { directorySize } from "../base/util/directory-size.ts";
import { formatBytes, formatDuration } from "../base/util/units.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { table } from "./table.ts";

/** A run directory as `whetstone runs` lists it. */
interface ListedRun {
  /** Path relative to the listed folder. */
  readonly run: string;
  /** Kind of training as recorded in `config.json`; null if not recorded. */
  readonly kind: string | null;
  /** `unreadable` for a directory with damaged files. */
  readonly state: RunState | "unreadable";
  /** Number of completed steps; null if the run cannot be read. */
  readonly steps: number | null;
  /** Mean reward of the last step with rollouts; null without one. */
  readonly reward: number | null;
  /** Mean reward of the last evaluation; null without one. */
  readonly evaluationReward: number | null;
  /** Time of the last record, ISO 8601; null without any. */
  readonly lastWritten: string | null;
  readonly sizeBytes: number;
  /** Reason why the run failed or cannot be read; null otherwise. */
  readonly error: string | null;
}

/** Creates the command `whetstone runs [folder]`, which lists the run directories below a folder, newest first. */
export function runsCommand(): Command {
  return new Command("runs")
    .description("list the run directories below a folder: state, steps, reward, age and size")
    .argument("[folder]", "folder with run directories", "runs")
    .action(list);
}

/** Runs the command. */
async function list(this: Command, folder: string, options: OutputOptions): Promise<void> {
  const root = resolve(folder);
  // The default folder does not exist before the first run.
  if (this.args.length > 0 && !(await isDirectory(root))) {
    throw new NotFoundError(`Expected a folder with run directories at ${root}, found none`, { param: "folder" });
  }
  const dirs = await findRuns(root);
  const listedRuns = await Promise.all(dirs.map((dir) => listedRun(root, dir)));
  const timeOf = ({ lastWritten }: ListedRun) => (lastWritten === null ? 0 : Date.parse(lastWritten));
  const runs = listedRuns.toSorted((a, b) => timeOf(b) - timeOf(a));
  printResult(options, { folder: root, runs }, function* () {
    if (runs.length === 0) {
      yield `no run below ${root}`;
      return;
    }
    const rewardText = (value: number | null) => (value === null ? "" : value.toFixed(4));
    yield* table(runs, [
      { title: "run", cell: ({ run }) => run, isWhole: true },
      { title: "kind", cell: ({ kind }) => kind ?? "" },
      { title: "state", cell: ({ state }) => state },
      { title: "steps", cell: ({ steps }) => String(steps ?? ""), align: "right" },
      { title: "reward", cell: ({ reward }) => rewardText(reward), align: "right" },
      { title: "eval", cell: ({ evaluationReward }) => rewardText(evaluationReward), align: "right" },
      {
        title: "age",
        cell: (run) => (run.lastWritten === null ? "" : formatDuration(Math.max(0, Date.now() - timeOf(run)))),
        align: "right",
      },
      { title: "size", cell: ({ sizeBytes: bytes }) => formatBytes(bytes), align: "right" },
    ]);
    for (const { run, error } of runs) if (error !== null) yield `${run}: ${error}`;
  });
}

/** Returns the row of a run directory, also of a damaged one. */
async function listedRun(root: string, dir: string): Promise<ListedRun> {
  const shared = { run: relative(root, dir) || ".", sizeBytes: await directorySize(dir) };
  try {
    const run = await openRun(dir);
    const { kind } = run.config;
    return {
      ...shared,
      kind: typeof kind === "string" ? kind : null,
      state: run.state,
      steps: run.steps,
      reward: lastReward(run, "train"),
      evaluationReward: lastReward(run, "eval"),
      lastWritten: run.span === null ? null : new Date(run.span[1]).toISOString(),
      error: run.error,
    };
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    const unknown = { steps: null, reward: null, evaluationReward: null, lastWritten: null };
    return { ...shared, kind: null, state: "unreadable", ...unknown, error: error.message };
  }
}

/** Returns the newest mean reward of a split; null without one. */
function lastReward(run: Run, split: "train" | "eval"): number | null {
  const { columns } = run.metrics(split);
  return columns["reward/mean"]?.findLast((value) => value !== null) ?? null;
}
