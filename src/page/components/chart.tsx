import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { tickText, valueRange } from "../../report/axis.ts";
import { number } from "./format.ts";
import { describe, type Line, smoothed, type Values } from "./series.ts";
import { color, useTheme } from "./theme.tsx";

const HEIGHT_PX = 172;
const MIN_WIDTH_PX = 160;

/** Properties of {@link Chart}. */
export interface ChartProps {
  readonly metric: string;
  readonly title: ComponentChildren;
  /** Name for screen readers. */
  readonly label: string;
  readonly note: string | undefined;
  readonly isWide?: boolean;
  readonly steps: readonly number[];
  readonly lines: readonly Line[];
  /** Weight of the exponential mean; 0 disables it. */
  readonly smoothing: number;
  /** Step with a hairline; null for none. */
  readonly mark: number | null;
  /** Called with the step that was clicked. */
  readonly onPick?: ((step: number) => void) | undefined;
}

/** Data, series and bands of a chart for uPlot. */
interface Parts {
  readonly columns: [xs: readonly number[], ...ys: Values[]];
  readonly series: uPlot.Series[];
  readonly bands: uPlot.Band[];
}

/** Card with the curves of a metric and their values at the pointer. All charts of a page share the position of the pointer. */
export function Chart(props: ChartProps) {
  const { metric, title, label, note, isWide = false, steps, lines, smoothing, mark } = props;
  const [index, setIndex] = useState<number | null>(null);
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // Listeners of a drawn chart read the latest properties.
  const latest = useRef(props);
  latest.current = props;
  const theme = useTheme();
  const parts = useMemo(() => partsOf(lines, steps, smoothing), [lines, steps, smoothing, theme]);
  const shape = `${theme} ${JSON.stringify([parts.series, parts.bands])}`;

  useLayoutEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const drawn = new uPlot(optionsOf(parts, element.clientWidth, latest, setIndex), columnsOf(parts), element);
    plot.current = drawn;
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
  const isFirst = useRef(shape);
  useLayoutEffect(() => {
    if (isFirst.current === shape) plot.current?.setData(columnsOf(parts));
    isFirst.current = shape;
  }, [parts]);
  useLayoutEffect(() => plot.current?.redraw(false), [mark]);

  return (
    <figure class={isWide ? "card wide" : "card"} data-metric={metric}>
      <figcaption>
        <span class="title">{title}</span>
        {note !== undefined && <span class="note">{note}</span>}
      </figcaption>
      <Readout lines={lines} steps={steps} index={index} />
      <div class="plot" ref={holder} role="img" aria-label={describe(label, lines, steps)} />
    </figure>
  );
}

/** Values of the lines at the pointer, or the last values. */
function Readout({
  lines,
  steps,
  index,
}: {
  readonly lines: readonly Line[];
  readonly steps: readonly number[];
  readonly index: number | null;
}) {
  // Of several runs, the names stand once above all charts.
  const isShort = lines.some(({ color: variable }) => variable.startsWith("run-"));
  return (
    <p class={isShort ? "readout short" : "readout"}>
      {lines.map(({ name, values, color: variable, split }) => {
        // The last value up to the step: evaluations are not made at every step.
        const at = values.findLastIndex((value, each) => value !== null && (index === null || each <= index));
        const place = at < 0 ? `before step ${steps[index ?? 0]}` : `step ${steps[at]}`;
        return (
          <span key={`${name} ${split}`}>
            {lines.length > 1 && (
              <>
                <i class={isShort && split === "eval" ? "swatch hollow" : "swatch"} style={{ color: `var(--${variable})` }} />
                <em class={isShort ? "hidden" : undefined}>{name}</em>{" "}
              </>
            )}
            <b>{at < 0 ? "–" : number(values[at])}</b>
            <small>{place}</small>
          </span>
        );
      })}
    </p>
  );
}

function columnsOf({ columns }: Parts): uPlot.AlignedData {
  return columns as unknown as uPlot.AlignedData;
}

function optionsOf(
  { series, bands }: Parts,
  width: number,
  latest: { readonly current: ChartProps },
  onIndex: (index: number | null) => void,
): uPlot.Options {
  const axis = { stroke: color("muted"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false } };
  return {
    width: Math.max(MIN_WIDTH_PX, width),
    height: HEIGHT_PX,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (_, min, max) => valueRange(min, max) } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : "")) },
      {
        ...axis,
        grid: { stroke: color("grid"), width: 1 },
        size: 46,
        values: (_, ticks, __, ___, step) => ticks.map((tick) => tickText(tick, step)),
      },
    ],
    series,
    bands,
    hooks: {
      setCursor: [({ cursor }) => onIndex(cursor.idx ?? null)],
      draw: [(plot) => drawMark(plot, latest.current.mark)],
      ready: [
        (plot) =>
          plot.over.addEventListener("click", () => {
            const step = latest.current.steps[plot.cursor.idx ?? -1];
            if (step !== undefined) latest.current.onPick?.(step);
          }),
      ],
    },
  };
}

/** Draws a hairline at a step. */
function drawMark(plot: uPlot, step: number | null): void {
  if (step === null) return;
  const x = Math.round(plot.valToPos(step, "x", true));
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.fillStyle = color("mark");
  plot.ctx.fillRect(x, top, devicePixelRatio, height);
  plot.ctx.restore();
}

function partsOf(lines: readonly Line[], steps: readonly number[], smoothing: number): Parts {
  const parts: Parts = { columns: [steps], series: [{}], bands: [] };
  const isSingle = lines.length <= 2;
  for (const line of lines) addLine(line, parts, { smoothing, isDashed: !isSingle && line.split === "eval" });
  return parts;
}

function addLine(
  { values, band, split, color: variable }: Line,
  { columns, series, bands }: Parts,
  { smoothing, isDashed }: { readonly smoothing: number; readonly isDashed: boolean },
): void {
  const stroke = color(variable);
  if (band !== null) {
    const edge = (sign: number) =>
      values.map((value, at) => {
        const deviation = band[at] ?? null;
        return value === null || deviation === null ? null : value + sign * deviation;
      });
    columns.push(edge(1), edge(-1));
    series.push({ width: 0, points: { show: false } }, { width: 0, points: { show: false } });
    bands.push({ series: [columns.length - 2, columns.length - 1], fill: color(`${variable}-band`) });
  }
  // Evaluations are few: each is drawn unsmoothed, and a line connects them. A skipped training step leaves a gap.
  const isSparse = values.filter((value) => value !== null).length < 40;
  const points = isSparse
    ? { show: true, size: 5, fill: stroke }
    : { show: true, size: 3, fill: stroke, filter: (plot: uPlot, series: number) => alone(plot.data[series] ?? []) };
  const plain = { spanGaps: split === "eval", stroke, width: 1.75, points, ...(isDashed ? { dash: [5, 4] } : {}) };
  if (smoothing === 0 || (isSparse && split === "eval")) {
    columns.push(values);
    series.push(plain);
    return;
  }
  columns.push(values, smoothed(values, smoothing));
  const faint = color(`${variable}-faint`);
  series.push({ ...plain, stroke: faint, width: 1, points: { show: false } }, { ...plain, points: { show: false } });
}

/** Returns the indexes of values without neighbors, which a line cannot show. */
function alone(values: ArrayLike<number | null | undefined>): number[] {
  const isKnown = Array.from(values, (value) => typeof value === "number");
  return isKnown.flatMap((known, at) => (known && isKnown[at - 1] !== true && isKnown[at + 1] !== true ? [at] : []));
}
