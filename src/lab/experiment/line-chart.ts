/** Line charts: curves over a common axis, with bands and marks. */
import { ArgumentError } from "../../base/errors.ts";
import { roundTicks, tickText, valueRange } from "../report/axis.ts";
import { Chart } from "./chart.ts";
import { COLORS, escaped, Plot, rounded } from "./plot.ts";

/** Curve of a line chart. */
export interface Series {
  /** Name in the legend. */
  readonly name: string;
  /** Points in the order of `x`. A null is a gap in the curve. */
  readonly points: readonly (readonly [x: number, y: number | null])[];
  /** Intervals drawn as a band, in the order of `x`. @default none */
  readonly band?: readonly (readonly [x: number, low: number, high: number])[] | undefined;
  /** CSS color of line and band. @default one of seven distinct colors, chosen by the index of the series */
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

/** Max number of intervals between the ticks of the horizontal axis. */
const MAX_X_INTERVALS = 8;

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
  const yExtent = extent([...points.map(([, y]) => y), ...bands.flatMap(([, low, high]) => [low, high])]);
  const range = options.range ?? valueRange(...yExtent);
  if (!(range[0] < range[1]))
    throw new ArgumentError(`Expected \`range\` to be ascending, got ${JSON.stringify(range)}`, { param: "range" });
  const xExtent = extent([...points.map(([x]) => x), ...bands.map(([x]) => x), ...marks.map(({ x }) => x)]);
  // A single position is drawn in the middle of the axis.
  const xRange = xExtent[0] < xExtent[1] ? xExtent : ([xExtent[0] - 0.5, xExtent[1] + 0.5] as const);
  const colored = series.map((each, index) => ({ ...each, color: each.color ?? (COLORS[index % COLORS.length] as string) }));
  const plot = new Plot({ title, xLabel, yLabel, range, legend: colored });
  /** Returns the horizontal position of a value in pixels. */
  const x = (value: number) => plot.left + ((value - xRange[0]) / (xRange[1] - xRange[0])) * (plot.right - plot.left);
  // If all positions are integers, they are steps: no tick lies between two steps.
  const minStep = points.every(([position]) => Number.isInteger(position)) ? 1 : 0;
  const ticks = roundTicks(xRange, MAX_X_INTERVALS, minStep);
  for (const tick of ticks.values) plot.text([x(tick), plot.bottom + 18], tickText(tick, ticks.step), 'text-anchor="middle"');
  for (const mark of marks) {
    plot.line([x(mark.x), plot.bottom], [x(mark.x), plot.top], 'stroke="#a1a1aa" stroke-dasharray="4 4"');
    plot.text([x(mark.x) + 5, plot.top + 12], mark.label, 'fill="#71717a"');
  }
  // All bands are below all curves.
  for (const { band = [], color } of colored) drawBand(plot, x, band, color);
  for (const curve of colored) drawCurve(plot, x, curve.points, curve.color);
  return new Chart(title, plot.toSvg(`${title || "Line chart"}: ${series.map(({ name }) => name).join(", ")}`));
}

/** Draws intervals as a filled area. @param x - Returns the horizontal position of a value in pixels. */
function drawBand(plot: Plot, x: (value: number) => number, band: NonNullable<Series["band"]>, color: string): void {
  if (band.length === 0) return;
  const outline = [
    ...band.map(([position, , top]) => svgPoint(x(position), plot.y(top))),
    ...band.toReversed().map(([position, bottom]) => svgPoint(x(position), plot.y(bottom))),
  ];
  plot.add(`<polygon points="${outline.join(" ")}" fill="${escaped(color)}" fill-opacity="0.15"/>`);
}

/** Draws points as lines that end at gaps. @param x - Returns the horizontal position of a value in pixels. */
function drawCurve(plot: Plot, x: (value: number) => number, points: Series["points"], color: string): void {
  for (const piece of pieces(points)) {
    const [point] = piece;
    if (piece.length === 1 && point !== undefined) {
      // A line of one point would be invisible.
      plot.add(`<circle cx="${rounded(x(point[0]))}" cy="${rounded(plot.y(point[1]))}" r="2.5" fill="${escaped(color)}"/>`);
      continue;
    }
    const svgPoints = piece.map(([position, value]) => svgPoint(x(position), plot.y(value)));
    plot.add(`<polyline points="${svgPoints.join(" ")}" fill="none" stroke="${escaped(color)}" stroke-width="2" stroke-linejoin="round"/>`);
  }
}

/** Returns a position in pixels as SVG coordinates `x,y`. */
function svgPoint(x: number, y: number): string {
  return `${rounded(x)},${rounded(y)}`;
}

/** Whether a point has a finite value; any other point is a gap. */
function isFinitePoint(point: readonly [number, number | null]): point is readonly [number, number] {
  return Number.isFinite(point[0]) && Number.isFinite(point[1]);
}

/** Splits points at gaps into pieces of at least one point. */
function pieces(points: readonly (readonly [number, number | null])[]): (readonly [number, number])[][] {
  const allPieces: (readonly [number, number])[][] = [[]];
  for (const point of points) {
    if (isFinitePoint(point)) allPieces.at(-1)?.push(point);
    else allPieces.push([]);
  }
  return allPieces.filter((piece) => piece.length > 0);
}

/** Returns the lowest and highest value. */
function extent(values: readonly number[]): [number, number] {
  return values.reduce<[number, number]>(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}
