/** Values of the compared runs by unit: one per scenario of an evaluation, or one per training step. */
import { ConfigError, NotFoundError } from "../../base/errors.ts";
import { getOrInsert, zip } from "../../base/util/values.ts";
import type { Units } from "./pairs.ts";
import type { ScenarioResult, Subject } from "./run.ts";

/**
 * Reads the mean of each scenario over its rollouts. Scenarios with equal ids are one unit.
 *
 * @param metric - `reward`, or the name of a trajectory metric.
 */
export async function evaluationUnits(subjects: readonly Subject[], metric: string, signal: AbortSignal | undefined): Promise<Units[]> {
  const results = await Promise.all(subjects.map(({ run, step }) => run.evaluation(step, { signal })));
  // A scenario without a successful rollout has no id of its own; the other runs name it by its position in the environment's list.
  const ids = new Map(results.flat().flatMap(({ index, scenario }) => (scenario === null ? [] : [[index, scenario]])));
  return zip(subjects, results).map(([{ name }, scenarios]) => {
    const valuesByUnit = new Map<string, number[]>();
    for (const result of scenarios) {
      const unit = result.scenario ?? ids.get(result.index) ?? `#${result.index}`;
      getOrInsert(valuesByUnit, unit, () => []).push(...valuesOf(result, metric, name));
    }
    const withValues = [...valuesByUnit].filter(([, values]) => values.length > 0);
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
    return {
      name,
      all: new Set(valuesByUnit.keys()),
      values: new Map(withValues.map(([unit, values]) => [unit, mean(values)])),
      missing: valuesByUnit.size - withValues.length,
    };
  });
}

/** Returns a value per rollout that did not fail. */
function valuesOf({ rewards, metrics, scenario, index }: ScenarioResult, metric: string, name: string): readonly number[] {
  if (metric === "reward") return rewards;
  return metrics.map((rolloutMetrics) => {
    const value = rolloutMetrics[metric];
    if (value !== undefined) return Number(value);
    throw new NotFoundError(
      `A rollout of scenario \`${scenario ?? index}\` of run \`${name}\` has no metric \`${metric}\`; it has: reward, ${Object.keys(rolloutMetrics).join(", ")}`,
      { param: "metric" },
    );
  });
}

/** Returns the metric of each training step from `from` to `to`; undefined for no limit. */
export function stepUnits(
  subjects: readonly Subject[],
  metric: string,
  { from = 0, to = Number.POSITIVE_INFINITY }: { readonly from: number | undefined; readonly to: number | undefined },
): Units[] {
  return subjects.map(({ run, step, name }) => {
    if (step !== undefined) {
      throw new ConfigError(`\`${name}\` selects an evaluation; pass the run itself to compare training steps`, { param: "by" });
    }
    const points = run.series(metric).filter(([trainStep]) => trainStep >= from && trainStep <= to);
    const values = new Map(points.map(([trainStep, value]) => [String(trainStep), value]));
    return { name, all: new Set(values.keys()), values, missing: 0 };
  });
}
