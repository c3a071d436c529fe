import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { barChart, compare, lineChart, metricChart, openRuns, Table } from "../../src/lab/experiment/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { writeRunFiles } from "./run-files.ts";

/** Attribute values of all elements of a name, in document order. */
function attributes(svg: string, element: string, name: string): string[] {
  return [...svg.matchAll(new RegExp(`<${element} [^>]*?\\b${name}="([^"]*)"`, "gu"))].map((match) => match[1] as string);
}
const texts = (svg: string) => [...svg.matchAll(/<text [^>]*>([^<]*)</gu)].map((match) => match[1] as string);

const two = {
  name: "a & b",
  points: [
    [0, 0.1],
    [1, 0.4],
    [2, null],
    [3, 0.9],
  ],
} as const;

describe("a line chart", () => {
  it("has a curve per series, gaps, a band, marks, a legend and ticks", () => {
    const band = [
      [0, 0, 0.2],
      [1, 0.3, 0.5],
    ] as const;
    const { svg } = lineChart({
      title: "Reward",
      xLabel: "step",
      series: [
        two,
        {
          name: "c",
          points: [
            [0, 0],
            [3, 1],
          ],
          band,
        },
      ],
      marks: [{ x: 2, label: "RL" }],
    });
    expect(attributes(svg, "polyline", "points").map((points) => points.split(" ").length)).toEqual([2, 2]);
    expect(attributes(svg, "circle", "r")).toHaveLength(1);
    expect(attributes(svg, "polygon", "points").map((points) => points.split(" ").length)).toEqual([4]);
    expect(new Set(attributes(svg, "polyline", "stroke")).size).toBe(2);
    expect(texts(svg)).toEqual(["Reward", "a &amp; b", "c", "0", "0.2", "0.4", "0.6", "0.8", "1", "step", "0", "1", "2", "3", "RL"]);
  });

  it("places values linearly between the ends of the range", () => {
    const { svg } = lineChart({
      range: [0, 2],
      series: [
        {
          name: "a",
          points: [
            [0, 0],
            [1, 1],
            [2, 2],
          ],
        },
      ],
    });
    const [first, middle, last] = (attributes(svg, "polyline", "points")[0] as string)
      .split(" ")
      .map((point) => point.split(",").map(Number));
    expect(middle).toEqual([0, 1].map((axis) => ((first?.[axis] ?? 0) + (last?.[axis] ?? 0)) / 2));
    expect(first?.[1]).toBeGreaterThan(last?.[1] as number);
  });

  it("escapes the colors of bands, lines and points", () => {
    const band = [
      [0, 0, 0.2],
      [1, 0.3, 0.5],
    ] as const;
    const { svg } = lineChart({ series: [{ ...two, band, color: 'red"/><script>' }] });
    expect(svg).not.toContain("<script>");
    expect(svg.match(/red&quot;\/&gt;&lt;script&gt;/gu)).toHaveLength(4);
  });

  it("wraps the legend, and escapes names", () => {
    const series = Array.from({ length: 12 }, (_, index) => ({ name: `<run "${index}"> with a long name`, points: [[0, index]] as const }));
    const { svg } = lineChart({ series });
    const rows = new Set(attributes(svg, "text", "y"));
    expect(rows.size).toBeGreaterThan(4);
    expect(svg).not.toContain("<run");
    expect(svg).toContain("&lt;run &quot;3&quot;&gt;");
  });

  it("rejects no points and a range that is not ascending", () => {
    expect(() => lineChart({ series: [{ name: "a", points: [[0, Number.NaN]] }] })).toThrow(/a point with finite numbers/);
    expect(() => lineChart({ series: [two], range: [1, 1] })).toThrow(/ascending, got \[1,1\]/);
  });

  it("shows itself in notebooks and writes itself as a file", async () => {
    const chart = lineChart({ title: "Reward", series: [two] });
    const display = Reflect.get(chart, Symbol.for("Jupyter.display")) as () => Record<string, string>;
    expect(display.call(chart)).toMatchObject({
      "image/svg+xml": chart.svg,
      "text/plain": expect.stringContaining('Chart "Reward"') as string,
    });
    expect(inspect(chart)).toMatch(/^Chart "Reward", \d+ characters of SVG$/u);
    const path = join(await temporaryDirectory(), "reward.svg");
    await chart.write(path);
    expect(await readFile(path, "utf8")).toBe(String(chart));
  });

  it("becomes an output in tslab's kernel instead of a text", () => {
    const shown: string[][] = [];
    const tslab = { display: { raw: (...output: string[]) => shown.push(output) } };
    Reflect.set(globalThis, "__tslab__", { require: (name: string) => (name === "tslab" ? tslab : null) });
    onTestFinished(() => void Reflect.deleteProperty(globalThis, "__tslab__"));
    const chart = lineChart({ series: [two] });
    const table = new Table([{ a: 1 }]);
    expect([inspect(chart), inspect(table)]).toEqual(["", ""]);
    expect(shown).toEqual([
      ["image/svg+xml", chart.svg],
      ["text/markdown", table.toMarkdown()],
    ]);
  });
});

describe("a bar chart", () => {
  it("has bars from zero, intervals and names", () => {
    const { svg } = barChart({
      title: "D",
      bars: [
        { name: "up", value: 2, low: 1, high: 3 },
        { name: "down", value: -1 },
      ],
    });
    const [, up, down] = attributes(svg, "rect", "height").map(Number);
    expect(up).toBeCloseTo(2 * (down as number), 0);
    const [, upY, downY] = [0, ...attributes(svg, "rect", "y").map(Number)];
    expect((upY as number) + (up as number)).toBeCloseTo(downY as number, 0);
    expect(attributes(svg, "line", "stroke-width")).toHaveLength(3);
    expect(texts(svg)).toEqual(expect.arrayContaining(["D", "up", "down", "0", "2"]));
    expect(svg).toContain("<title>down: -1</title>");
  });

  it("starts at zero if no bar is negative, and rejects no bars", () => {
    expect(texts(barChart({ bars: [{ name: "a", value: 5 }] }).svg)).not.toContain("-1");
    expect(texts(barChart({ bars: [{ name: "a", value: 0 }] }).svg)).toContain("0");
    expect(() => barChart({ bars: [] })).toThrow(/at least one bar with a finite value, got none/);
    expect(() => barChart({ bars: [{ name: "a", value: Infinity }] })).toThrow(/got Infinity for `a`/);
  });
});

describe("charts of runs", () => {
  it("overlay a metric, with a band over runs of one group, and show differences as bars", async () => {
    const parent = await temporaryDirectory();
    for (const [name, add] of [
      ["x_seed-0", 0],
      ["x_seed-1", 1],
      ["y_seed-0", 2],
    ] as const) {
      const rows = [0, 1, 3].map((step) => ({ step, "reward/mean": step + add }));
      await writeRunFiles(name, { metrics: rows, evaluations: { 1: { s: [add], t: [add + 1] } } }, parent);
    }
    const runs = await openRuns(join(parent, "*"));
    const single = metricChart(runs).svg;
    expect(attributes(single, "polyline", "points").map((points) => points.split(" ").length)).toEqual([2, 2, 2]);
    expect(attributes(single, "circle", "r")).toHaveLength(3);
    const grouped = metricChart(runs, { groupBy: ({ name }) => name.replace(/_seed-\d+$/u, ""), title: "by setting" }).svg;
    expect(attributes(grouped, "polygon", "points").map((points) => points.split(" ").length)).toEqual([6]);
    expect(texts(grouped)).toEqual(expect.arrayContaining(["by setting", "x", "y"]));
    const bars = (await compare(runs)).chart();
    expect(bars.title).toBe("reward: difference to x_seed-0, paired by scenario");
    expect(texts(bars.svg)).toEqual(expect.arrayContaining(["x_seed-1", "y_seed-0"]));
    expect(() => metricChart([])).toThrow(/at least one run/);
  });
});
