/** A small line chart as SVG text, without library or script. */

/** A curve of points `[x, y]`. */
export interface Curve {
  readonly name: string;
  readonly color: string;
  readonly points: readonly (readonly [number, number])[];
}

/** A labeled vertical line, e.g. at the start of a stage. */
export interface Mark {
  readonly x: number;
  readonly label: string;
}

const WIDTH = 760;
const HEIGHT = 380;
const MARGIN = { left: 56, right: 20, top: 44, bottom: 48 };

/** Draws curves with values in [0, 1] over an integer axis. */
export function lineChart(options: { title: string; xLabel: string; curves: readonly Curve[]; marks?: readonly Mark[] }): string {
  const { title, xLabel, curves, marks = [] } = options;
  const xs = [...curves.flatMap((curve) => curve.points.map(([x]) => x)), ...marks.map((mark) => mark.x)];
  const [low, high] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1)];
  const x = (value: number) => round(MARGIN.left + ((value - low) / (high - low)) * (WIDTH - MARGIN.left - MARGIN.right));
  const y = (value: number) => round(HEIGHT - MARGIN.bottom - value * (HEIGHT - MARGIN.top - MARGIN.bottom));
  const text = (at: [number, number], words: string, extra = "") => `<text x="${at[0]}" y="${at[1]}" ${extra}>${escape(words)}</text>`;
  const parts: string[] = [];
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(`<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${y(tick)}" y2="${y(tick)}" stroke="#e4e4e7"/>`);
    parts.push(text([MARGIN.left - 8, y(tick) + 4], tick.toFixed(2), 'text-anchor="end"'));
  }
  for (const tick of ticks(low, high)) parts.push(text([x(tick), HEIGHT - MARGIN.bottom + 18], String(tick), 'text-anchor="middle"'));
  for (const mark of marks) {
    parts.push(`<line x1="${x(mark.x)}" x2="${x(mark.x)}" y1="${y(0)}" y2="${y(1)}" stroke="#a1a1aa" stroke-dasharray="4 4"/>`);
    parts.push(text([x(mark.x) + 5, y(1) + 12], mark.label, 'fill="#71717a"'));
  }
  curves.forEach((curve, index) => {
    const line = curve.points.map((point) => `${x(point[0])},${y(point[1])}`).join(" ");
    parts.push(`<polyline points="${line}" fill="none" stroke="${curve.color}" stroke-width="2" stroke-linejoin="round"/>`);
    const left = MARGIN.left + index * 190;
    parts.push(
      `<line x1="${left}" x2="${left + 22}" y1="32" y2="32" stroke="${curve.color}" stroke-width="3"/>`,
      text([left + 28, 36], curve.name),
    );
  });
  parts.push(text([MARGIN.left, 18], title, 'font-weight="600" font-size="14"'));
  parts.push(text([(WIDTH + MARGIN.left - MARGIN.right) / 2, HEIGHT - 10], xLabel, 'text-anchor="middle"'));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12" fill="#27272a">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>`,
    ...parts,
    "</svg>",
    "",
  ].join("\n");
}

/** Returns about six round tick values between `low` and `high`. */
function ticks(low: number, high: number): number[] {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? 10 * power);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => (Math.ceil(low / step) + i) * step);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(words: string): string {
  return words.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
