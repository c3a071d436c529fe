/** Operations on sets of code points, represented as ranges. */
import { LAST_CODE_POINT, type CodePointRange } from "./expression.ts";

/** Returns the same set as sorted ranges that neither overlap nor adjoin. A range from a higher to a lower code point is empty. */
export function normalized(ranges: readonly CodePointRange[]): CodePointRange[] {
  const result: [number, number][] = [];
  for (const [first, last] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const previous = result.at(-1);
    if (previous !== undefined && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else if (first <= last) result.push([first, last]);
  }
  return result;
}

/** Returns all code points outside the ranges. */
export function complement(ranges: readonly CodePointRange[]): CodePointRange[] {
  const result: CodePointRange[] = [];
  let gapStart = 0;
  for (const [first, last] of normalized(ranges)) {
    if (first > gapStart) result.push([gapStart, first - 1]);
    gapStart = last + 1;
  }
  if (gapStart <= LAST_CODE_POINT) result.push([gapStart, LAST_CODE_POINT]);
  return result;
}

/** Returns the code points that are in both sets. */
export function intersection(a: readonly CodePointRange[], b: readonly CodePointRange[]): CodePointRange[] {
  const [left, right] = [normalized(a), normalized(b)];
  const result: CodePointRange[] = [];
  let [leftAt, rightAt] = [0, 0];
  for (;;) {
    const [leftRange, rightRange] = [left[leftAt], right[rightAt]];
    if (leftRange === undefined || rightRange === undefined) return result;
    const [first, last] = [Math.max(leftRange[0], rightRange[0]), Math.min(leftRange[1], rightRange[1])];
    if (first <= last) result.push([first, last]);
    // The range that ends first has no further overlap.
    if (leftRange[1] < rightRange[1]) leftAt++;
    else rightAt++;
  }
}
