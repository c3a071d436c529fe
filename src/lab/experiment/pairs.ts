/** Paired differences of values by unit. A unit is a scenario, a training step or a seed. */
import { ArgumentError, ConfigError } from "../../base/errors.ts";
import { bootstrapMean, type BootstrapOptions } from "./bootstrap.ts";
import { Comparison, type ComparedRun, type Difference } from "./comparison.ts";

/** Values of one run, or of one combination of settings, by unit. */
export interface Units {
  readonly name: string;
  /** All units of the run, also without a value. */
  readonly all: ReadonlySet<string>;
  /** Values by unit, in order. */
  readonly values: ReadonlyMap<string, number>;
  /** Number of units without a value, because all their rollouts or the training failed. */
  readonly missing: number;
}

/** Settings of {@link compareUnits}. */
export interface PairOptions {
  readonly metric: string;
  readonly by: Comparison["by"];
  /** Index of the baseline. */
  readonly baseline: number;
  readonly bootstrap: BootstrapOptions;
}

/**
 * Computes the mean of each run, and its differences to the baseline over the units with a value in both.
 *
 * @throws ConfigError `E_CONFIG` if the units differ.
 * @throws ArgumentError `E_ARGUMENT` for a baseline that is not an index, or invalid bootstrap options.
 */
export function compareUnits(units: readonly Units[], { metric, by, baseline, bootstrap }: PairOptions): Comparison {
  const reference = units[baseline];
  if (reference === undefined) {
    throw new ArgumentError(`Expected \`baseline\` to be an index from 0 to ${units.length - 1}, got \`${baseline}\``, {
      param: "baseline",
    });
  }
  for (const run of units) checkPairs(run, reference, by);
  const runs = units.map(({ name, values, missing }): ComparedRun => ({
    name,
    missing,
    ...bootstrapMean([...values.values()], bootstrap),
  }));
  const otherRuns = units.filter((run) => run !== reference);
  return new Comparison({
    metric,
    by,
    baseline: reference.name,
    runs,
    differences: otherRuns.map((run) => differenceOf(run, reference, bootstrap)),
  });
}

/** Pairs the values of a run with the values of the baseline; units without a value in either are left out. */
function differenceOf(run: Units, reference: Units, bootstrap: BootstrapOptions): Difference {
  const pairs = [...reference.values].flatMap(([unit, referenceValue]) => {
    const value = run.values.get(unit);
    return value === undefined ? [] : [{ unit, difference: value - referenceValue }];
  });
  const differences = pairs.map((pair) => pair.difference);
  return { name: run.name, baseline: reference.name, pairs, ...bootstrapMean(differences, bootstrap) };
}

/** Max number of unpaired units in an error message. */
const MAX_LISTED = 5;

/** Checks that a run has the same units as the baseline. @throws ConfigError `E_CONFIG` listing the units that one of them lacks. */
function checkPairs(run: Units, reference: Units, by: Comparison["by"]): void {
  const missing = [...reference.all].filter((unit) => !run.all.has(unit));
  const extra = [...run.all].filter((unit) => !reference.all.has(unit));
  if (missing.length + extra.length === 0) return;
  const problems: string[] = [];
  if (missing.length > 0) problems.push(`\`${run.name}\` lacks ${listed(missing)}`);
  if (extra.length > 0) problems.push(`\`${reference.name}\` lacks ${listed(extra)}`);
  const remedy = by === "scenario" ? 'Evaluate both on the same scenarios, or compare `by: "step"`' : commonSteps(run, reference);
  throw new ConfigError(`Expected the same ${by}s in every run, so that differences are paired: ${problems.join("; ")}. ${remedy}`, {
    param: "runs",
  });
}

/** Returns the remedy for runs with different steps. */
function commonSteps(run: Units, reference: Units): string {
  const common = [...reference.all].filter((unit) => run.all.has(unit)).map(Number);
  if (common.length === 0) return "The runs have no step in common";
  return `Compare the common steps: \`from: ${Math.min(...common)}\`, \`to: ${Math.max(...common)}\``;
}

/** Returns the number of units, and the first of them. */
function listed(units: readonly string[]): string {
  const more = units.length > MAX_LISTED ? ", …" : "";
  return `${units.length} of them (${units.slice(0, MAX_LISTED).join(", ")}${more})`;
}
