/** Axes of the charts: steps, ranges and tick labels. The pages and the SVG charts of `experiment` share them. */

/**
 * Formats a tick with as many digits as distinguish it from the next tick.
 *
 * @param step - Distance between two ticks, above 0.
 */
export function tickText(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  // Digits after the first one. The tolerance counters the rounding of `log10`.
  const decades = Math.max(0, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9));
  if (size >= 1e5 || size < 1e-3) return value.toExponential(decades).replace(/\.?0+e/, "e");
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(decades + 1))}k`;
  return String(Number(value.toPrecision(Math.max(4, decades + 1))));
}

/** Differences below this share of the size are rounding, such as in the mean of a constant; an axis cannot divide them. */
const MIN_RELATIVE_RANGE = 1e-9;

/** Returns the range of the value axis: padded by a tenth; around a constant, a tenth of its size, and 0 to 1 for zero. */
export function valueRange(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null) return [0, 1];
  const size = Math.max(Math.abs(min), Math.abs(max));
  const padding = (max - min) / 10;
  if (max - min > size * MIN_RELATIVE_RANGE) return [min - padding, max + padding];
  return size === 0 ? [0, 1] : [min - size / 10, max + size / 10];
}

/** Returns the range of a logarithmic value axis: positive values rounded outwards to one digit; 1 to 10 without values. */
export function logRange(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || min <= 0) return [1, 10];
  const powerOfTen = (value: number) => 10 ** Math.floor(Math.log10(value));
  const low = Math.floor(min / powerOfTen(min)) * powerOfTen(min);
  const high = Math.ceil(max / powerOfTen(max)) * powerOfTen(max);
  return [low, high > low ? high : low + powerOfTen(min)];
}

/** Returns all integers from the lowest to the highest of some steps, so that a missing step is a gap in the curves. */
export function consecutive(steps: readonly number[]): number[] {
  if (steps.length === 0) return [];
  const first = steps.reduce((low, step) => Math.min(low, step));
  const last = steps.reduce((high, step) => Math.max(high, step));
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/**
 * Returns round tick values inside a range: multiples of 1, 2 or 5 times a power of ten.
 *
 * @param count - Max number of intervals between ticks, at least 1.
 * @param minStep - Min distance between two ticks, e.g. 1 for steps. @default 0
 */
export function roundTicks([low, high]: readonly [number, number], count: number, minStep = 0): { values: number[]; step: number } {
  const minDistance = Math.max((high - low) / count, minStep);
  const power = 10 ** Math.floor(Math.log10(minDistance));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= minDistance * (1 - 1e-9)) as number;
  // The tolerance keeps a tick at the end of the range in spite of rounding.
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return { values: Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step), step };
}
