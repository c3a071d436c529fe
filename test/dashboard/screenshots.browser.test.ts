/** Screenshots compared with the committed ones; `UPDATE_SCREENSHOTS=1 npx vitest run test/dashboard/screenshots` writes them anew. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import pixelmatch from "pixelmatch";
import type { BrowserContext, Page } from "playwright-core";
import { PNG } from "pngjs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ROOT } from "../project/files.ts";
import { findChromium } from "../report/browser.ts";
import { type DashboardTest, fixFonts, openPlace, startDashboard } from "./dashboard-browser.ts";

const executable = findChromium();
if (executable === null)
  process.stderr.write("No screenshots are compared: no Chromium was found on PATH. Install one, or set CHROMIUM_PATH.\n");

const COMMITTED = join(ROOT, "test/dashboard/screenshots");
const ACTUAL = join(ROOT, "runs/screenshots");
/** Several places per test, which a busy machine draws slowly. */
const TIMEOUT_MS = 90_000;
/** Share of the pixels that may differ: controls of the browser differ a little between its versions. */
const MAX_SHARE = 0.01;
/** Difference of a pixel's color, 0 to 1, up to which it counts as equal. */
const COLOR_TOLERANCE = 0.15;

/** Compares a page with the committed image of the same name. */
async function compare(page: Page, name: string): Promise<void> {
  await page.evaluate("document.activeElement?.blur()");
  const taken = await page.screenshot({ animations: "disabled", caret: "hide" });
  const path = join(COMMITTED, `${name}.png`);
  if (process.env["UPDATE_SCREENSHOTS"] === "1") {
    await mkdir(COMMITTED, { recursive: true });
    await writeFile(path, taken);
    return;
  }
  const [actual, expected] = [PNG.sync.read(taken), PNG.sync.read(await readFile(path))];
  const { width, height } = expected;
  expect([actual.width, actual.height], name).toEqual([width, height]);
  const difference = new PNG({ width, height });
  const count = pixelmatch(actual.data, expected.data, difference.data, width, height, { threshold: COLOR_TOLERANCE });
  if (count / (width * height) > MAX_SHARE) {
    await mkdir(ACTUAL, { recursive: true });
    await writeFile(join(ACTUAL, `${name}.png`), taken);
    await writeFile(join(ACTUAL, `${name}-difference.png`), PNG.sync.write(difference));
  }
  expect(count / (width * height), `${name} differs, see runs/screenshots`).toBeLessThanOrEqual(MAX_SHARE);
}

const DESKTOP = { width: 1200, height: 760 };
const PHONE = { width: 360, height: 740 };

/** Places by name; `@name@` stands for the id of a run. */
const PLACES = {
  runs: "/runs",
  curves: "/runs/@arithmetic/rank-8@/curves?with=@arithmetic/rank-16@",
  groups: "/runs/@arithmetic/rank-8@/groups/train/20",
  trajectory: "/runs/@arithmetic/rank-8@/trajectories/train/20/2/2",
  answers: "/runs/@arithmetic/rank-8@/answers?scenario=sum-001",
  playground: "/playground?model=whetstone-tiny",
} as const;

const SHOTS = [
  { name: "desktop-light", viewport: DESKTOP, colorScheme: "light", places: ["runs", "curves", "trajectory", "answers"] },
  { name: "desktop-dark", viewport: DESKTOP, colorScheme: "dark", places: ["groups", "playground"] },
  { name: "phone-light", viewport: PHONE, colorScheme: "light", places: ["runs", "trajectory"] },
  { name: "phone-dark", viewport: PHONE, colorScheme: "dark", places: ["curves", "answers"] },
] as const;

describe.skipIf(executable === null)("screenshots of the dashboard", () => {
  let test: DashboardTest;
  let session: Awaited<ReturnType<BrowserContext["storageState"]>>;

  beforeAll(async () => {
    test = await startDashboard(executable!);
    const context = await test.login();
    session = await context.storageState();
    await context.close();
  });
  afterAll(() => test?.close());

  it.each(SHOTS)(
    "equal the committed ones: $name",
    async ({ name, viewport, colorScheme, places }) => {
      const context = await test.browser.newContext({
        ...{ viewport, colorScheme, storageState: session, bypassCSP: true },
        ...{ reducedMotion: "reduce", locale: "en-US", timezoneId: "UTC" },
      });
      await fixFonts(context);
      const page = await context.newPage();
      // Charts draw texts once: the fonts must be there before.
      await openPlace(page, test.service, "/models");
      await page.evaluate(
        "Promise.all(['400 12px dejavu-sans', '700 12px dejavu-sans', '400 12px dejavu-mono'].map((font) => document.fonts.load(font)))",
      );
      for (const place of places) {
        let address: string = PLACES[place];
        for (const [mark, run] of address.matchAll(/@([^@]+)@/gu)) address = address.replace(mark, await test.idOf(run!));
        await openPlace(page, test.service, address);
        if (place === "trajectory") await page.waitForSelector('[aria-selected="true"] > :nth-child(2)');
        if (place === "answers") await page.waitForSelector(".pair-turn");
        if (place === "curves") await page.waitForSelector(".chip");
        await compare(page, `${name}-${place}`);
      }
      await context.close();
    },
    TIMEOUT_MS,
  );
});
