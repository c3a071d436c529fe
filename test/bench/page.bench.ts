/**
 * First paint of the dashboard's page and its longest task while a list of 100,800 trajectories scrolls, from Chromium's trace:
 *
 *   npm run bench -- page [--steps 300] [--groups 21] [--size 16]
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { BrowserContext } from "playwright-core";
import { startTestService } from "../../src/testing/index.ts";
import { findChromium, launch } from "../report/browser.ts";
import { writeLargeRun } from "../support/large-run.ts";
import { whole } from "./support.ts";

const ROUNDS = 5;
const WHEEL_TURNS = 150;
const FRAME_MS = 16;
const TRACE = ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel", "__metadata"];

/** Event of a trace; times in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  /** CPU time, without the time in which another process had the core. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** Writes a large run, serves it, and prints the measurements in milliseconds. */
export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      steps: { type: "string", default: "300" },
      groups: { type: "string", default: "21" },
      size: { type: "string", default: "16" },
    },
  });
  const [steps, groups, size] = [whole("steps", values.steps), whole("groups", values.groups), whole("size", values.size)];
  const executable = findChromium();
  if (executable === null) throw new Error("Expected Chromium on PATH or in CHROMIUM_PATH, found none");
  const root = await mkdtemp(join(tmpdir(), "whetstone-page-"));
  await using service = await startTestService({ runs: [root] });
  const browser = await launch(executable);
  try {
    await writeLargeRun(join(root, "large"), { steps, groups, size, tokens: 8 });
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    const headers = { authorization: `Bearer ${service.apiKey}` };
    const link = (await (await fetch(`${service.url}/ui/api/links`, { method: "POST", headers })).json()) as { url: string };
    const [found] = (await (await fetch(`${service.url}/ui/api/runs`, { headers })).json()) as { id: string }[];
    const login = await context.newPage();
    await login.goto(link.url);
    await login.close();
    const address = `${service.url}/ui/#/runs/${found!.id}`;
    console.log(`First contentful paint and largest contentful paint, ${ROUNDS} rounds (ms)`);
    console.log("  curves       ", await paints(context, `${address}/curves`, "figure.card canvas"));
    console.log("  trajectories ", await paints(context, `${address}/trajectories`, "#row-0 .preview"));
    const page = await context.newPage();
    await page.goto(`${address}/trajectories`);
    const list = await page.waitForSelector(".virtual:has(#row-0 .preview)");
    const { x, y } = (await list.boundingBox())!;
    await page.mouse.move(x + 100, y + 200);
    await browser.startTracing(page, { categories: TRACE });
    // Every third turn jumps over many steps, as a dragged scroll bar does.
    for (let turn = 0; turn < WHEEL_TURNS; turn++) {
      await page.mouse.wheel(0, turn % 3 === 0 ? 30_000 : 400);
      await page.waitForTimeout(FRAME_MS);
    }
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: readonly TraceEvent[] };
    console.log("Longest tasks of the page while its list scrolls, wall clock / CPU (ms)");
    console.log("  ", longestTasks(traceEvents));
  } finally {
    await browser.close();
    await rm(root, { recursive: true, force: true });
  }
}

async function paints(context: BrowserContext, address: string, ready: string): Promise<string> {
  const found: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const page = await context.newPage();
    await page.goto(address);
    await page.waitForSelector(ready);
    const first = await page.evaluate<number>("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    const largest = await page.evaluate<number>(`new Promise((resolve) => {
      new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime)).observe({ type: "largest-contentful-paint", buffered: true });
    })`);
    found.push(`${first.toFixed(0)}/${largest.toFixed(0)}`);
    await page.close();
  }
  return found.join("  ");
}

function longestTasks(events: readonly TraceEvent[]): string {
  const threadOf = ({ pid, tid }: TraceEvent) => `${pid}/${tid}`;
  const main = new Set(events.filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain").map(threadOf));
  const tasks = events.filter((event) => event.name === "RunTask" && event.ph === "X" && main.has(threadOf(event)));
  const longest = tasks.toSorted((a, b) => (b.dur ?? 0) - (a.dur ?? 0)).slice(0, 5);
  return longest.map(({ dur = 0, tdur = 0 }) => `${(dur / 1000).toFixed(0)}/${(tdur / 1000).toFixed(0)}`).join("  ");
}
