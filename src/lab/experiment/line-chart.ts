import { ArgumentError } from "../../base/errors.ts";
import { roundTicks, tickText, valueRange } from "../report/axis.ts";
import { Chart } from "./chart.ts";
import { COLORS, Plot, rounded } from "./plot.ts";

/** Curve of a line chart. */
export interface Series {
  /** Name in the legend. */
  readonly name: string;
  /** Points in the order of `x`. A null is a gap in the curve. */
  readonly points: readonly (readonly [x: number, y: number | null])[];
  /** Intervals drawn as a band, in the order of `x`. @default none */
  readonly band?: readonly (readonly [x: number, low: number, high: number])[] | undefined;
  /** CSS color of line and band. @default the next of seven distinct colors */
  readonly color?: string | undefined;
}

/** Labeled vertical line. */
export interface Mark {
  /** Position on the x axis. */
  readonly x: number;
  /** Text at the line. */
  readonly label: string;
}

/** Options of {@link lineChart}. */
export interface LineChartOptions {
  /** Curves, drawn over each other; at least one. */
  readonly series: readonly Series[];
  /** Title above the chart. @default none */
  readonly title?: string | undefined;
  /** Label of the horizontal axis. @default none */
  readonly xLabel?: string | undefined;
  /** Label of the value axis. @default none */
  readonly yLabel?: string | undefined;
  /** Range of the value axis. @default the range of all values and bands, padded by a tenth */
  readonly range?: readonly [low: number, high: number] | undefined;
  /** Labeled vertical lines, e.g. at the start of a stage. @default none */
  readonly marks?: readonly Mark[] | undefined;
}

/**
 * Draws curves over a common axis, each with an optional band of intervals.
 *
 * @param options - Curves, labels and range.
 * @returns Chart of 760 pixels width that scales with its container.
 * @throws ArgumentError `E_ARGUMENT` without a finite point, or for a range that is not ascending.
 * @example
 * ```ts
 * const chart = lineChart({
 *   title: "Reward",
 *   xLabel: "step",
 *   series: [{ name: "seed 0", points: [[0, 0.1], [1, 0.4], [2, 0.7]], band: [[0, 0, 0.2], [1, 0.3, 0.5], [2, 0.6, 0.8]] }],
 * });
 * await chart.write("reward.svg");
 * ```
 */
export function lineChart(options: LineChartOptions): Chart {
  const { series, title = "", xLabel = "", yLabel = "", marks = [] } = options;
  const points = series.flatMap((each) => each.points.filter(isFinitePoint));
  if (points.length === 0) throw new ArgumentError("Expected `series` to have a point with finite numbers, got none", { param: "series" });
  const bands = series.flatMap(({ band = [] }) => band);
  const xs = extent([...points.map(([x]) => x), ...bands.map(([x]) => x), ...marks.map(({ x }) => x)]);
  const range = options.range ?? valueRange(...extent([...points.map(([, y]) => y), ...bands.flatMap(([, low, high]) => [low, high])]));
  if (!(range[0] < range[1]))
    throw new ArgumentError(`Expected \`range\` to be ascending, got ${JSON.stringify(range)}`, { param: "range" });
  const colored = series.map((each, index) => ({ ...each, color: each.color ?? (COLORS[index % COLORS.length] as string) }));
  const plot = new Plot({ title, xLabel, yLabel, range, legend: colored });
  const [low, high] = xs[0] < xs[1] ? xs : [xs[0] - 0.5, xs[1] + 0.5];
  const x = (value: number) => plot.left + ((value - low) / (high - low)) * (plot.right - plot.left);
  const ticks = roundTicks([low, high], 8, points.every(([at]) => Number.isInteger(at)) ? 1 : 0);
  for (const tick of ticks.values) plot.text([x(tick), plot.bottom + 18], tickText(tick, ticks.step), 'text-anchor="middle"');
  for (const mark of marks) {
    plot.line([x(mark.x), plot.bottom], [x(mark.x), plot.top], 'stroke="#a1a1aa" stroke-dasharray="4 4"');
    plot.text([x(mark.x) + 5, plot.top + 12], mark.label, 'fill="#71717a"');
  }
  const at = (px: number, value: number) => `${rounded(x(px))},${rounded(plot.y(value))}`;
  for (const { band = [], color } of colored) {
    if (band.length === 0) continue;
    const outline = [...band.map(([px, , top]) => at(px, top)), ...band.toReversed().map(([px, bottom]) => at(px, bottom))];
    plot.add(`<polygon points="${outline.join(" ")}" fill="${color}" fill-opacity="0.15"/>`);
  }
  for (const { points: all, color } of colored) {
    for (const piece of pieces(all)) {
      const single = piece.length === 1 ? piece[0] : undefined;
      if (single !== undefined)
        plot.add(`<circle cx="${rounded(x(single[0]))}" cy="${rounded(plot.y(single[1]))}" r="2.5" fill="${color}"/>`);
      else
        plot.add(
          `<polyline points="${piece.map((point) => at(...point)).join(" ")}" fill="none" stroke="${color}" stroke-width="2" stroke-linejoin="round"/>`,
        );
    }
  }
  return new Chart(title, plot.toSvg(`${title || "Line chart"}: ${series.map(({ name }) => name).join(", ")}`));
}

function isFinitePoint(point: readonly [number, number | null]): point is readonly [number, number] {
  return Number.isFinite(point[0]) && Number.isFinite(point[1]);
}

/** Splits points at gaps. */
function pieces(points: readonly (readonly [number, number | null])[]): (readonly [number, number])[][] {
  const found: (readonly [number, number])[][] = [[]];
  for (const point of points) {
    if (isFinitePoint(point)) found.at(-1)?.push(point);
    else found.push([]);
  }
  return found.filter((piece) => piece.length > 0);
}

/** Returns the lowest and highest value. */
function extent(values: readonly number[]): [number, number] {
  return values.reduce<[number, number]>(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}
