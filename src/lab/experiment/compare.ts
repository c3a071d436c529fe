/** Comparison of runs by paired differences. `compare-units.ts` reads the values of each run, and `pairs.ts` pairs them. */
import { ArgumentError } from "../../base/errors.ts";
import type { BootstrapOptions } from "./bootstrap.ts";
import { evaluationUnits, stepUnits } from "./compare-units.ts";
import type { Comparison } from "./comparison.ts";
import { compareUnits } from "./pairs.ts";
import { Run, type Subject } from "./run.ts";

/** Metric, unit of the pairs and bootstrap settings of {@link compare}. */
export interface CompareOptions extends BootstrapOptions {
  /**
   * Metric to compare. By scenario: `reward`, or the name of a trajectory metric such as `reward/exact`. By step: a metric of
   * `metrics.jsonl`.
   *
   * @default "reward" by scenario, "reward/mean" by step
   */
  readonly metric?: string | undefined;
  /**
   * Unit of the pairs: scenarios of an evaluation, or training steps. Metrics of neighboring steps are correlated, and an interval over steps
   * is therefore too narrow for a statement about further runs.
   *
   * @default "scenario" if every run has an evaluation, else "step"
   */
  readonly by?: "scenario" | "step" | undefined;
  /** Index of the run that the others are compared with. @default 0 */
  readonly baseline?: number | undefined;
  /** First training step to compare. Only by step. @default the first */
  readonly from?: number | undefined;
  /** Last training step to compare. Only by step. @default the last */
  readonly to?: number | undefined;
  /** Stops reading: the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Compares runs by paired differences: of the mean of each scenario over its rollouts, or of the metric at each step. The interval of a mean
 * difference is a paired percentile bootstrap, see `bootstrapMean`: pairs are drawn with replacement, so that the variation between
 * scenarios cancels. The interval covers the choice of scenarios, not the seed of the training.
 *
 * @param runs - At least two runs, or evaluations selected by `run.at(step)`. A run without a step stands for its last evaluation.
 * @param options - Metric, unit, baseline and bootstrap.
 * @returns Mean per run and paired differences to the baseline.
 * @throws ConfigError `E_CONFIG` if the runs do not have the same scenarios or steps, so that pairs do not exist; the message lists them.
 * @throws NotFoundError `E_NOT_FOUND` for a missing evaluation or metric; the message lists the existing ones.
 * @throws ArgumentError `E_ARGUMENT` for fewer than two runs, equal names, or an option outside its bounds.
 * @throws DataError `E_DATA` with file and line for a file that does not match its schema.
 * @example
 * ```ts
 * import { openRun } from "whetstone/experiment";
 *
 * const run = await openRun("runs/reverse");
 * const { differences } = await compare([run.at(0), run.at(20)], { seed: 7 });
 * for (const { name, mean, low, high } of differences) console.log(`${name}: ${mean} (${low} to ${high})`);
 * ```
 */
export async function compare(runs: readonly (Run | Subject)[], options: CompareOptions = {}): Promise<Comparison> {
  const { baseline = 0, from, to, signal, level, draws, seed } = options;
  const subjects = runs.map((run): Subject => (run instanceof Run ? { run, name: run.name } : run));
  checkSubjects(subjects);
  const by = options.by ?? (subjects.every(({ run }) => run.evaluations.length > 0) ? "scenario" : "step");
  if (by === "scenario" && (from !== undefined || to !== undefined))
    throw new ArgumentError('`from` and `to` select training steps; use them with `by: "step"`', {
      param: from === undefined ? "to" : "from",
    });
  const metric = options.metric ?? (by === "scenario" ? "reward" : "reward/mean");
  const units = by === "scenario" ? await evaluationUnits(subjects, metric, signal) : stepUnits(subjects, metric, { from, to });
  return compareUnits(units, { metric, by, baseline, bootstrap: { level, draws, seed } });
}

/** Requires at least two runs with distinct names. @throws ArgumentError `E_ARGUMENT` for others. */
function checkSubjects(subjects: readonly Subject[]): void {
  if (subjects.length < 2) throw new ArgumentError(`Expected at least two runs to compare, got ${subjects.length}`, { param: "runs" });
  const names = subjects.map(({ name }) => name);
  const duplicate = names.find((name, index) => names.indexOf(name) !== index);
  if (duplicate !== undefined) {
    const remedy = "open them with `openRuns`, or use `run.named(…)`";
    throw new ArgumentError(`Expected runs with distinct names, got \`${duplicate}\` twice; ${remedy}`, { param: "runs" });
  }
}
