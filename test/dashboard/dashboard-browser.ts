/** Dashboard of a service with a scripted engine, in a real browser. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { expect } from "vitest";
import { startTestService, type TestService, type TestServiceOptions } from "../../src/testing/index.ts";
import { ROOT } from "../project/files.ts";
import { launch } from "../report/browser.ts";
import { generateRun } from "./generated-runs.ts";

const STEP_TIMEOUT_MS = 20_000;

/** Browser and service of a test file. */
export interface DashboardTest {
  readonly browser: Browser;
  readonly service: TestService;
  /** Directory with the runs. */
  readonly root: string;
  /** Returns the id of a run by its name. */
  readonly idOf: (name: string) => Promise<string>;
  /** Returns JSON of a route of the service, called with the API key. */
  readonly call: (path: string, body?: object) => Promise<unknown>;
  /** Opens a logged-in browser context. */
  readonly login: (options?: BrowserContextOptions) => Promise<BrowserContext>;
  readonly close: () => Promise<void>;
}

/** Starts a service with three generated runs and a browser. */
export async function startDashboard(executable: string, options: TestServiceOptions = {}): Promise<DashboardTest> {
  const root = await mkdtemp(join(tmpdir(), "whetstone-dashboard-"));
  await generateRun(root, { name: "arithmetic/rank-8", seed: 1, steps: 60, groups: 6 });
  await generateRun(root, { name: "arithmetic/rank-16", seed: 2, steps: 60 });
  await generateRun(root, { name: "arithmetic/full-parameters", seed: 3, steps: 40, hasEnded: false });
  const service = await startTestService({ ...options, runs: [root] });
  const headers = { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" };
  const call = async (path: string, body?: object): Promise<unknown> => {
    const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const response = await fetch(`${service.url}${path}`, { headers, ...init });
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
    return response.json();
  };
  const browser = await launch(executable);
  const login: DashboardTest["login"] = async (contextOptions = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...contextOptions });
    context.setDefaultTimeout(STEP_TIMEOUT_MS);
    const { url } = (await call("/ui/api/links", {})) as { url: string };
    const page = await context.newPage();
    await page.goto(url);
    await page.close();
    return context;
  };
  const idOf = async (name: string) => {
    const runs = (await call("/ui/api/runs")) as { id: string; name: string }[];
    const found = runs.find((run) => run.name === name);
    if (found === undefined) throw new Error(`The service has no run ${name}`);
    return found.id;
  };
  const close = async () => {
    await browser.close();
    await service.close({ graceMs: 0 });
    await rm(root, { recursive: true, force: true });
  };
  return { browser, service, root, idOf, call, login, close };
}

/** Waits until an expression is true in the page, whose policy does not allow `page.waitForFunction`. */
export async function when(page: Page, expression: string): Promise<void> {
  await expect.poll(() => page.evaluate<unknown>(expression), { message: expression, timeout: STEP_TIMEOUT_MS }).toBe(true);
}

/** Opens a place of the dashboard and waits until nothing loads. */
export async function openPlace(page: Page, service: TestService, place: string): Promise<void> {
  await page.goto(`${service.url}/ui/#${place}`);
  await page.waitForSelector("html[data-ready]", { state: "attached" });
  await page.waitForSelector("main h1");
  await when(page, "document.querySelector('.loading') === null");
}

/**
 * Adds the fonts of a package to the style sheet of the dashboard, so that texts have equal sizes on every machine. The context needs
 * `bypassCSP`: the policy of the dashboard allows no fonts.
 */
export async function fixFonts(context: BrowserContext): Promise<void> {
  const face = async (name: string, weight: number) => {
    const file = await readFile(join(ROOT, `node_modules/@fontsource/${name}/files/${name}-latin-${weight}-normal.woff2`));
    return `@font-face { font-family: "${name}"; font-weight: ${weight}; src: url(data:font/woff2;base64,${file.toString("base64")}) }`;
  };
  const faces = await Promise.all([face("dejavu-sans", 400), face("dejavu-sans", 700), face("dejavu-mono", 400), face("dejavu-mono", 700)]);
  const families = ':root { --sans: "dejavu-sans", sans-serif; --mono: "dejavu-mono", monospace; }';
  await context.route("**/ui/page.css", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: [await response.text(), ...faces, families].join("\n") });
  });
}
