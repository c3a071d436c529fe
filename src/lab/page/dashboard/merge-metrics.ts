/** Merging of rows from the event stream into the metrics that a page has. */
import type { ColumnsData, Split } from "../../../run/data.ts";

/** Returns metrics with newer rows: a known step is replaced, a new one inserted in order. */
export function mergeMetrics(
  known: Readonly<Record<Split, ColumnsData>>,
  added: Readonly<Record<Split, ColumnsData>>,
): Readonly<Record<Split, ColumnsData>> {
  return { train: mergeColumns(known.train, added.train), eval: mergeColumns(known.eval, added.eval) };
}

/** Merges the columns of one split. A missing value is null. */
function mergeColumns(known: ColumnsData, added: ColumnsData): ColumnsData {
  if (added.steps.length === 0) return known;
  const steps = [...new Set([...known.steps, ...added.steps])].toSorted((a, b) => a - b);
  const knownIndex = new Map(known.steps.map((step, index) => [step, index]));
  const addedIndex = new Map(added.steps.map((step, index) => [step, index]));
  const names = [...new Set([...Object.keys(known.columns), ...Object.keys(added.columns)])].toSorted();
  const column = (name: string) =>
    steps.map((step) => {
      const index = addedIndex.get(step);
      if (index !== undefined) return added.columns[name]?.[index] ?? null;
      return known.columns[name]?.[knownIndex.get(step) ?? -1] ?? null;
    });
  return { steps, columns: Object.fromEntries(names.map((name) => [name, column(name)])) };
}
