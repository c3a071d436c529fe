/** Parts that all charts share: frame, value axis, legend and escaped text of an SVG document. */
import { roundTicks, tickText } from "../report/axis.ts";

/** Width of a chart in pixels. */
export const WIDTH = 760;
/** Height of a chart in pixels, without its legend. */
const HEIGHT = 380;
/** Space around the plot area in pixels, without the legend. */
const MARGIN = { left: 64, right: 20, top: 32, bottom: 48 };
/** Height of a row of the legend in pixels. */
const LEGEND_ROW = 20;
/** Length of the line of a legend entry in pixels. */
const LEGEND_LINE = 22;
/** Space before and after the name of a legend entry in pixels. */
const LEGEND_GAPS = 30;
/** Estimated width of a character in pixels at the font size of the chart, for the layout of the legend and for long names. */
export const CHARACTER = 6.6;

/** Distinct colors for series, also for most color-blind readers. @source Okabe, Ito, Color Universal Design (2008), without yellow. */
export const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#3f3f46"] as const;

/** Entry of a legend. */
export interface LegendEntry {
  readonly name: string;
  readonly color: string;
}

/** Texts and value range of a {@link Plot}. */
export interface PlotOptions {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly range: readonly [number, number];
  readonly legend: readonly LegendEntry[];
}

/** An SVG document in the making: a plot area with a value axis, to which charts add their own elements. */
export class Plot {
  /** Left edge of the plot area in pixels, as the other edges. */
  readonly left = MARGIN.left;
  readonly right = WIDTH - MARGIN.right;
  readonly top: number;
  readonly bottom: number;
  /** Height of the document in pixels. */
  readonly #height: number;
  /** Lowest and highest value of the axis. */
  readonly #range: readonly [number, number];
  readonly #parts: string[] = [];

  constructor({ title, xLabel, yLabel, range, legend }: PlotOptions) {
    const rows = legendRows(legend, this.right - this.left);
    this.#height = HEIGHT + rows.length * LEGEND_ROW;
    this.top = MARGIN.top + rows.length * LEGEND_ROW;
    this.bottom = this.#height - MARGIN.bottom;
    this.#range = range;
    this.text([this.left, 20], title, 'font-weight="600" font-size="14"');
    rows.forEach((row, index) => this.#legendRow(row, MARGIN.top + index * LEGEND_ROW + 4));
    const { values, step } = roundTicks(range, 8);
    for (const tick of values) {
      this.line([this.left, this.y(tick)], [this.right, this.y(tick)], 'stroke="#e4e4e7"');
      this.text([this.left - 8, this.y(tick) + 4], tickText(tick, step), 'text-anchor="end"');
    }
    this.text([(this.left + this.right) / 2, this.#height - 10], xLabel, 'text-anchor="middle"');
    const middle = (this.top + this.bottom) / 2;
    this.text([14, middle], yLabel, `text-anchor="middle" transform="rotate(-90 14 ${rounded(middle)})"`);
  }

  /** Returns the vertical position of a value in pixels. */
  y(value: number): number {
    const [low, high] = this.#range;
    return this.bottom - ((value - low) / (high - low)) * (this.bottom - this.top);
  }

  /** Adds an element as SVG text. */
  add(element: string): void {
    this.#parts.push(element);
  }

  /** Adds a text; an empty text adds nothing. */
  text([x, y]: readonly [number, number], words: string, attributes = ""): void {
    if (words !== "") this.add(`<text x="${rounded(x)}" y="${rounded(y)}" ${attributes}>${escaped(words)}</text>`);
  }

  /** Adds a line. */
  line([x1, y1]: readonly [number, number], [x2, y2]: readonly [number, number], attributes: string): void {
    this.add(`<line x1="${rounded(x1)}" y1="${rounded(y1)}" x2="${rounded(x2)}" y2="${rounded(y2)}" ${attributes}/>`);
  }

  /** Returns the document. @param label - Text for readers that cannot see the chart. */
  toSvg(label: string): string {
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${this.#height}" role="img" aria-label="${escaped(label)}" font-family="system-ui, sans-serif" font-size="12" fill="#27272a">`,
      `<rect width="${WIDTH}" height="${this.#height}" fill="#ffffff"/>`,
      ...this.#parts,
      "</svg>",
      "",
    ].join("\n");
  }

  /** Draws a row of the legend at the height `y` in pixels. */
  #legendRow(row: readonly (LegendEntry & { readonly offset: number })[], y: number): void {
    for (const { name, color, offset } of row) {
      this.line([this.left + offset, y], [this.left + offset + LEGEND_LINE, y], `stroke="${escaped(color)}" stroke-width="3"`);
      this.text([this.left + offset + LEGEND_LINE + 6, y + 4], name);
    }
  }
}

/** Places the entries of a legend in rows of at most `width` pixels. `offset` is the distance of an entry from the start of its row. */
function legendRows(legend: readonly LegendEntry[], width: number): (LegendEntry & { readonly offset: number })[][] {
  const rows: (LegendEntry & { readonly offset: number })[][] = [];
  // Larger than any width, so that the first entry starts the first row.
  let offset = Number.POSITIVE_INFINITY;
  for (const entry of legend) {
    const size = LEGEND_LINE + LEGEND_GAPS + entry.name.length * CHARACTER;
    if (offset + size > width) {
      rows.push([]);
      offset = 0;
    }
    rows.at(-1)?.push({ ...entry, offset });
    offset += size;
  }
  return rows;
}

/** Rounds a position to a tenth of a pixel. */
export function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

/** Escapes a text for SVG. Control characters, which XML does not allow, are replaced. */
export function escaped(words: string): string {
  return (
    words
      // oxlint-disable-next-line no-control-regex
      .replaceAll(/[\u0000-\u001f\ufffe\uffff]|\p{Surrogate}/gu, "\ufffd")
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll('"', "&quot;")
  );
}
