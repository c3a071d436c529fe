/** Comparison of runs by paired differences. `compare.ts` compares two steps of one run. */
import { ArgumentError } from "../../base/errors.ts";
import { zip } from "../../base/util/values.ts";
import { compare } from "../experiment/compare.ts";
import { openRun } from "../experiment/open-runs.ts";
import type { Run, Subject } from "../experiment/run.ts";
import { CHECKPOINTS_FILE, RUN_CONFIG_FILE, EVENTS_FILE, METRICS_FILE, trajectoryFile } from "../../run/files.ts";
import type { MeanEstimate, RunComparison } from "./api.ts";
import { isInside } from "../../run/find-runs.ts";
import type { RunReader } from "./run-reader.ts";
import type { Runs } from "./runs.ts";

/** Files of a run directory that a comparison reads, apart from the evaluation. */
const FILES = [RUN_CONFIG_FILE, METRICS_FILE, EVENTS_FILE, CHECKPOINTS_FILE];

/** Run to compare, opened as an experiment. */
interface OpenedRun {
  readonly reader: RunReader;
  readonly run: Run;
  /** Steps completed before the compared evaluation; undefined for the last one. */
  readonly step: number | undefined;
}

/**
 * Compares runs by paired differences to the first one, see `compare` of `whetstone/experiment`.
 *
 * @param wanted - Ids of runs, or `id@step` for the evaluation after `step` steps.
 * @param by - Unit of the pairs: scenarios of an evaluation, or the training steps that all runs have reached.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown run or a missing evaluation or metric.
 * @throws ConfigError `E_CONFIG` if the runs do not have the same scenarios or steps.
 * @throws ArgumentError `E_ARGUMENT` for fewer than two runs or a malformed step.
 */
export async function compareRuns(
  runs: Runs,
  { wanted, by, signal }: { readonly wanted: readonly string[]; readonly by: "scenario" | "step"; readonly signal: AbortSignal },
): Promise<RunComparison> {
  const opened = await Promise.all(wanted.map((text) => open(runs, text, signal)));
  if (by === "scenario") for (const each of opened) await checkEvaluation(each);
  const subjects = opened.map((each): Subject => ({ run: each.run, step: each.step, name: nameOf(each, opened) }));
  const range = by === "step" ? commonSteps(opened) : {};
  // The comparison has the runs in the order of the subjects.
  const { metric, runs: compared, differences } = await compare(subjects, { by, signal, ...range });
  return {
    metric,
    by,
    runs: zip(opened, compared).map(([{ reader, run, step }, estimate]) => ({
      run: reader.run.id,
      step: by === "scenario" ? run.evaluationStep(step) : null,
      missing: estimate.missing,
      estimate: finite(estimate),
      difference: finite(differences.find(({ name }) => name === estimate.name)),
    })),
  };
}

/** Returns a name that no other compared run has: the path of a run if other runs have its name, and the step of the evaluation. */
function nameOf({ reader: { run }, step }: OpenedRun, opened: readonly OpenedRun[]): string {
  const isShared = opened.some(({ reader }) => reader.run.name === run.name && reader.run.id !== run.id);
  const name = isShared ? run.path : run.name;
  return step === undefined ? name : `${name} after ${step} steps`;
}

/** Opens the run of a query parameter `id` or `id@step`. */
async function open(runs: Runs, text: string, signal: AbortSignal): Promise<OpenedRun> {
  const [, id = "", step] = /^([^@]*)(?:@(\d{1,9}))?$/u.exec(text) ?? [];
  if (id === "") throw new ArgumentError(`Expected the id of a run, or id@step, got ${JSON.stringify(text)}`, { param: "run" });
  const reader = await runs.get(id);
  // Throws for a file that is a link out of the root.
  for (const name of FILES) await isInside(reader.run.root, `${reader.run.path}/${name}`);
  return { reader, run: await openRun(reader.run.path, { signal }), step: step === undefined ? undefined : Number(step) };
}

/** Throws a DataError if the file of the compared evaluation is a link that leads out of the root. */
async function checkEvaluation({ reader, run, step }: OpenedRun): Promise<void> {
  await isInside(reader.run.root, `${reader.run.path}/${trajectoryFile("eval", run.evaluationStep(step))}`);
}

/** Returns the range of steps that all runs have: a run that continues is compared with the start of a longer one. */
function commonSteps(opened: readonly OpenedRun[]): { readonly from: number; readonly to: number } {
  const stepsOfRuns = opened.map(({ run }) => run.metrics().steps);
  const from = Math.max(...stepsOfRuns.map((steps) => steps[0] ?? 0));
  const to = Math.min(...stepsOfRuns.map((steps) => steps.at(-1) ?? 0));
  return { from, to };
}

/** Returns the estimate with null for bounds that are not finite; null without a value. */
function finite(estimate: MeanEstimate | undefined): MeanEstimate | null {
  if (estimate === undefined || estimate.count === 0) return null;
  const { mean, low, high, count } = estimate;
  return { mean, low: Number.isFinite(low) ? low : null, high: Number.isFinite(high) ? high : null, count };
}
