/** Chart of one metric, drawn with uPlot: curves, bands, zoom, and a readout of the values at the pointer. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { logRange, tickText, valueRange } from "../../report/axis.ts";
import { number } from "./format.ts";
import { describe, type Line, smoothed, type Values } from "./series.ts";
import { color, useTheme } from "./theme.tsx";
import type { Axis } from "./x-axis.ts";

/** Number of values below which a line has a point at every value; a line of more values has points at isolated ones only. */
const MIN_DENSE_VALUES = 40;
/** Height of a plot, and its minimum width. */
const [HEIGHT_PX, MIN_WIDTH_PX] = [172, 160];

/** Range of the horizontal axis. */
export type Zoom = readonly [from: number, to: number];

/** Properties of {@link MetricChart}. */
export interface ChartProps {
  readonly metric: string;
  readonly title: ComponentChildren;
  /** Title as text, for screen readers. */
  readonly label: string;
  /** Text after the title, such as the unit. */
  readonly note: string | undefined;
  readonly isWide?: boolean;
  readonly axis: Axis;
  readonly lines: readonly Line[];
  /** Whether the value axis is logarithmic; a metric with a value that is not positive stays linear. */
  readonly isLog: boolean;
  /** Visible range of the horizontal axis; null for the whole axis. */
  readonly zoom: Zoom | null;
  /** Called with a range that was dragged, or with null after a double click. */
  readonly onZoom: (zoom: Zoom | null) => void;
  /** Weight of the exponential mean; 0 disables it. */
  readonly smoothing: number;
  /** Step with a hairline; null for none. */
  readonly mark: number | null;
  /** Called with the step that was clicked. */
  readonly onPick?: ((step: number) => void) | undefined;
}

/** Data and styles of a chart for uPlot. */
interface PlotData {
  /** The positions of the axis, then the values of each series. */
  readonly columns: [xs: readonly number[], ...ys: Values[]];
  /** Style of each column; empty for the positions. */
  readonly series: uPlot.Series[];
  /** Areas between two columns, by their indexes. */
  readonly bands: uPlot.Band[];
}

/** Card with the curves of a metric and their values at the pointer. All charts of a page share the position of the pointer. */
export function MetricChart(props: ChartProps) {
  const { metric, title, label, note, isWide = false, axis, lines, smoothing, mark, zoom } = props;
  /** Index of the position under the pointer; null without a pointer. */
  const [index, setIndex] = useState<number | null>(null);
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // Listeners of a drawn chart read the latest properties.
  const latest = useRef(props);
  latest.current = props;
  const theme = useTheme();
  const isPositive = useMemo(() => lines.every(hasPositiveValues), [lines]);
  const isLog = props.isLog && isPositive;
  const data = useMemo(() => plotDataOf(lines, axis, { smoothing, isLog }), [lines, axis, smoothing, isLog, theme]);
  // A new shape draws the chart anew; new values of the same shape replace its data.
  const shape = `${theme} ${axis.kind} ${isLog} ${JSON.stringify([data.series, data.bands])}`;

  useLayoutEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const drawn = new uPlot(optionsOf(data, element.clientWidth, { latest, isLog, onIndex: setIndex }), columnsOf(data), element);
    plot.current = drawn;
    applyZoom(drawn, latest.current);
    const resize = new ResizeObserver(() => {
      const width = Math.max(MIN_WIDTH_PX, element.clientWidth);
      if (width !== drawn.width) drawn.setSize({ width, height: HEIGHT_PX });
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [shape]);
  // New values of a run replace the data only: the zoom and the pointer stay.
  const drawnShape = useRef(shape);
  useLayoutEffect(() => {
    if (drawnShape.current === shape && plot.current !== null) {
      plot.current.setData(columnsOf(data), false);
      applyZoom(plot.current, latest.current);
    }
    drawnShape.current = shape;
  }, [data]);
  useLayoutEffect(() => {
    if (plot.current !== null) applyZoom(plot.current, latest.current);
  }, [zoom]);
  useLayoutEffect(() => plot.current?.redraw(false), [mark]);

  return (
    <figure class={isWide ? "card wide" : "card"} data-metric={metric}>
      <figcaption>
        <span class="title">{title}</span>
        {note !== undefined && <span class="note">{note}</span>}
        {props.isLog && !isPositive && <span class="note">linear: not all values are positive</span>}
      </figcaption>
      <Readout lines={lines} axis={axis} index={index} />
      <div class="plot" ref={holder} role="img" aria-label={describe(label, lines, axis)} />
    </figure>
  );
}

/** Values of the lines at the pointer; the last values without a pointer. `index` is the index of a position on the axis. */
function Readout({ lines, axis, index }: { readonly lines: readonly Line[]; readonly axis: Axis; readonly index: number | null }) {
  const placeOf = (position: number) => axis.text(axis.xs[position] ?? 0);
  // With several runs, a line is named by its color alone: the names stand once above all charts.
  const isShort = lines.some(({ color: variable }) => variable.startsWith("run-"));
  return (
    <p class={isShort ? "readout short" : "readout"}>
      {lines.map(({ name, values, color: variable, split }) => {
        // The last value up to the step: evaluations are not made at every step.
        const lastIndex = values.findLastIndex((value, at) => typeof value === "number" && (index === null || at <= index));
        const place = lastIndex < 0 ? `before ${placeOf(index ?? 0)}` : placeOf(lastIndex);
        return (
          <span key={`${name} ${split}`}>
            {lines.length > 1 && (
              <>
                <i class={isShort && split === "eval" ? "swatch hollow" : "swatch"} style={{ color: `var(--${variable})` }} />
                <em class={isShort ? "hidden" : undefined}>{name}</em>{" "}
              </>
            )}
            <b>{lastIndex < 0 ? "–" : number(values[lastIndex])}</b>
            <small>{place}</small>
          </span>
        );
      })}
    </p>
  );
}

/** Whether all values of a line are above 0, as a logarithmic axis requires. */
function hasPositiveValues({ values }: Line): boolean {
  return values.every((value) => typeof value !== "number" || value > 0);
}

/** Returns the columns with the type of uPlot, which has no read-only arrays. */
function columnsOf({ columns }: PlotData): uPlot.AlignedData {
  return columns as unknown as uPlot.AlignedData;
}

/** Shows the range of the zoom; the whole axis without one. */
function applyZoom(plot: uPlot, { axis: { xs }, zoom }: ChartProps): void {
  plot.setScale("x", { min: zoom?.[0] ?? xs[0] ?? 0, max: zoom?.[1] ?? xs.at(-1) ?? 1 });
}

/** Context of {@link optionsOf}. */
interface ChartOptions {
  /** Properties of the newest rendering. */
  readonly latest: { readonly current: ChartProps };
  readonly isLog: boolean;
  readonly onIndex: (index: number | null) => void;
}

/** Returns the options of a uPlot chart. Its listeners read `latest`, because the chart outlives a rendering. */
function optionsOf({ series, bands }: PlotData, width: number, { latest, isLog, onIndex }: ChartOptions): uPlot.Options {
  const axis = { stroke: color("muted"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false } };
  const range: uPlot.Range.Function = (_, min, max) => (isLog ? logRange(min, max) : valueRange(min, max));
  return {
    width: Math.max(MIN_WIDTH_PX, width),
    height: HEIGHT_PX,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      sync: { key: "steps" },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          latest.current.onZoom(null);
          return null;
        },
      },
    },
    scales: { x: { time: false }, y: { distr: isLog ? 3 : 1, range } },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 26,
        values: (_, ticks, __, ___, distance) => ticks.map((tick) => latest.current.axis.tick(tick, distance)),
      },
      {
        ...axis,
        grid: { stroke: color("grid"), width: 1 },
        size: 46,
        // A logarithmic axis leaves out the labels that have no space.
        values: (_, ticks: (number | null)[], __, ___, distance) =>
          ticks.map((tick) => (tick === null ? "" : tickText(tick, isLog ? tick : distance))),
      },
    ],
    series,
    bands,
    hooks: {
      setCursor: [({ cursor }) => onIndex(cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width: selectedWidth } = plot.select;
          if (selectedWidth === 0) return;
          latest.current.onZoom([plot.posToVal(left, "x"), plot.posToVal(left + selectedWidth, "x")]);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      draw: [(plot) => drawMark(plot, latest.current)],
      ready: [
        (plot) =>
          plot.over.addEventListener("click", () => {
            const step = latest.current.axis.steps[plot.cursor.idx ?? -1];
            if (step !== undefined) latest.current.onPick?.(step);
          }),
      ],
    },
  };
}

/** Draws a hairline at the step `mark`; nothing if the axis lacks the step. */
function drawMark(plot: uPlot, { mark, axis }: ChartProps): void {
  const place = mark === null ? undefined : axis.xs[axis.steps.indexOf(mark)];
  if (place === undefined) return;
  const x = Math.round(plot.valToPos(place, "x", true));
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.fillStyle = color("mark");
  plot.ctx.fillRect(x, top, devicePixelRatio, height);
  plot.ctx.restore();
}

/** Settings that all lines of a chart share. */
interface LineOptions {
  /** Weight of the exponential mean; 0 disables it. */
  readonly smoothing: number;
  readonly isLog: boolean;
}

/** Returns the data and styles of all lines. */
function plotDataOf(lines: readonly Line[], { xs }: Axis, options: LineOptions): PlotData {
  const data: PlotData = { columns: [xs], series: [{}], bands: [] };
  // A single run has at most two lines, one per split, which differ in color.
  const isSingle = lines.length <= 2;
  for (const line of lines) {
    if (line.band !== null) addBand(line, line.band, data, options);
    addLine(line, data, { ...options, isDashed: !isSingle && line.split === "eval" });
  }
  return data;
}

/** Adds the band of a line: two invisible series, its edges, and the area between them. */
function addBand(
  { values, color: variable }: Line,
  deviations: Values,
  { columns, series, bands }: PlotData,
  { isLog }: LineOptions,
): void {
  const upper = columns.push(bandEdge(values, deviations, { sign: 1, isLog })) - 1;
  const lower = columns.push(bandEdge(values, deviations, { sign: -1, isLog })) - 1;
  series.push({ width: 0, points: { show: false } }, { width: 0, points: { show: false } });
  bands.push({ series: [upper, lower], fill: color(`${variable}-band`) });
}

/** Adds the values of a line, and with smoothing its smoothed values in front of the faint original ones. */
function addLine(
  { values, split, color: variable }: Line,
  { columns, series }: PlotData,
  { smoothing, isDashed }: LineOptions & { readonly isDashed: boolean },
): void {
  const stroke = color(variable);
  const isSparse = values.filter((value) => typeof value === "number").length < MIN_DENSE_VALUES;
  const points = isSparse
    ? { show: true, size: 5, fill: stroke }
    : { show: true, size: 3, fill: stroke, filter: (plot: uPlot, at: number) => isolated(plot.data[at] ?? []) };
  // Evaluations are not made at every step, so a line connects them; a skipped training step leaves a gap.
  const plain = { spanGaps: split === "eval", stroke, width: 1.75, points, ...(isDashed ? { dash: [5, 4] } : {}) };
  const isSmoothed = smoothing > 0 && !(isSparse && split === "eval");
  if (!isSmoothed) {
    columns.push(values);
    series.push(plain);
    return;
  }
  columns.push(values, smoothed(values, smoothing));
  const faint = color(`${variable}-faint`);
  series.push({ ...plain, stroke: faint, width: 1, points: { show: false } }, { ...plain, points: { show: false } });
}

/** Returns the upper (`sign` 1) or lower (−1) edge of a band: the values plus or minus the deviations. */
function bandEdge(values: Values, deviations: Values, { sign, isLog }: { readonly sign: 1 | -1; readonly isLog: boolean }): Values {
  // A logarithmic axis has no place for an edge at or below zero: the band ends at the smallest value.
  const floor = isLog ? values.reduce<number>((min, value) => Math.min(min, value ?? Infinity), Infinity) : -Infinity;
  return values.map((value, index) => {
    const deviation = deviations[index];
    return typeof value === "number" && typeof deviation === "number" ? Math.max(floor, value + sign * deviation) : value;
  });
}

/** Returns the indexes of values without neighbors, which a line cannot show. */
function isolated(values: ArrayLike<number | null | undefined>): number[] {
  const isKnown = Array.from(values, (value) => typeof value === "number");
  const isIsolated = (index: number) => isKnown[index] === true && isKnown[index - 1] !== true && isKnown[index + 1] !== true;
  return [...isKnown.keys()].filter(isIsolated);
}
