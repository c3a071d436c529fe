/** Bar charts, such as the differences of a comparison. */
import { ArgumentError } from "../../base/errors.ts";
import { valueRange } from "../report/axis.ts";
import { Chart } from "./chart.ts";
import { CHARACTER, COLORS, escaped, Plot, rounded } from "./plot.ts";

/** Bar of a bar chart. */
export interface Bar {
  /** Name below the bar. */
  readonly name: string;
  /** Height of the bar, finite. */
  readonly value: number;
  /** Lower end of the interval. @default no interval */
  readonly low?: number | undefined;
  /** Upper end of the interval. @default no interval */
  readonly high?: number | undefined;
  /** CSS color that fills the bar. @default one of seven distinct colors, chosen by the index of the bar */
  readonly color?: string | undefined;
}

/** Options of {@link barChart}. */
export interface BarChartOptions {
  /** Bars from left to right; at least one. */
  readonly bars: readonly Bar[];
  /** Title above the chart. @default none */
  readonly title?: string | undefined;
  /** Label of the value axis. @default none */
  readonly yLabel?: string | undefined;
}

/** Max share of its slot that a bar fills. */
const FILLED_SHARE = 0.6;
/** Max width of a bar in pixels. */
const MAX_BAR_WIDTH = 90;

/**
 * Draws bars from zero, each with an optional interval.
 *
 * @param options - Bars and labels.
 * @returns Chart of 760 pixels width that scales with its container.
 * @throws ArgumentError `E_ARGUMENT` without bars, or for a value that is not finite.
 * @example
 * ```ts
 * const chart = barChart({ title: "Difference", bars: [{ name: "learning rate 3e-4", value: 0.12, low: 0.04, high: 0.19 }] });
 * await chart.write("difference.svg");
 * ```
 */
export function barChart({ bars, title = "", yLabel = "" }: BarChartOptions): Chart {
  const invalid = bars.find(({ value }) => !Number.isFinite(value));
  if (bars.length === 0 || invalid !== undefined) {
    const got = invalid === undefined ? "none" : `${invalid.value} for \`${invalid.name}\``;
    throw new ArgumentError(`Expected \`bars\` to be at least one bar with a finite value, got ${got}`, { param: "bars" });
  }
  const plot = new Plot({ title, xLabel: "", yLabel, range: rangeOf(bars), legend: [] });
  const slot = (plot.right - plot.left) / bars.length;
  const width = Math.min(slot * FILLED_SHARE, MAX_BAR_WIDTH);
  bars.forEach((bar, index) => {
    const middle = plot.left + (index + 0.5) * slot;
    const color = escaped(bar.color ?? (COLORS[index % COLORS.length] as string));
    const [top, bottom] = [plot.y(Math.max(bar.value, 0)), plot.y(Math.min(bar.value, 0))];
    plot.add(
      `<rect x="${rounded(middle - width / 2)}" y="${rounded(top)}" width="${rounded(width)}" height="${rounded(bottom - top)}" fill="${color}" fill-opacity="0.75"><title>${escaped(`${bar.name}: ${bar.value}`)}</title></rect>`,
    );
    if (Number.isFinite(bar.low) && Number.isFinite(bar.high)) drawInterval(plot, middle, [bar.low as number, bar.high as number]);
    plot.text([middle, plot.bottom + 18], shortened(bar.name, slot), 'text-anchor="middle"');
  });
  plot.line([plot.left, plot.y(0)], [plot.right, plot.y(0)], 'stroke="#71717a"');
  const label = bars.map(({ name, value }) => `${name} ${Number(value.toPrecision(3))}`).join(", ");
  return new Chart(title, plot.toSvg(`${title || "Bar chart"}: ${label}`));
}

/** Returns the range of the value axis, which includes zero. The axis ends at zero unless a bar or an interval crosses it. */
function rangeOf(bars: readonly Bar[]): readonly [number, number] {
  const ends = bars.flatMap(({ value, low = value, high = value }) => [value, low, high]);
  const values = [0, ...ends].filter(Number.isFinite);
  const [min, max] = [Math.min(...values), Math.max(...values)];
  const [low, high] = valueRange(min, max);
  const range = [min < 0 ? low : 0, max > 0 ? high : 0] as const;
  return range[0] < range[1] ? range : [0, 1];
}

/** Draws an interval as a vertical line with a short horizontal line at each end. */
function drawInterval(plot: Plot, x: number, [low, high]: readonly [number, number]): void {
  const style = 'stroke="#27272a" stroke-width="1.5"';
  plot.line([x, plot.y(low)], [x, plot.y(high)], style);
  for (const end of [low, high]) plot.line([x - 6, plot.y(end)], [x + 6, plot.y(end)], style);
}

/** Shortens a name to a width in pixels, at least to three characters. */
function shortened(name: string, width: number): string {
  const max = Math.max(3, Math.floor(width / CHARACTER));
  return name.length <= max ? name : `${name.slice(0, max - 1)}…`;
}
