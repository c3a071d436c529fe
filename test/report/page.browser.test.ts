import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeReport } from "../../src/lab/report/index.ts";
import { findChromium, launch, openReport, type Watched } from "./browser.ts";
import { writeRun } from "./run-fixture.ts";

const executable = findChromium();
if (executable === null)
  process.stderr.write("The report is not looked at: no Chromium was found on PATH. Install one, or set CHROMIUM_PATH.\n");

/** Expression with browser globals; a string, because the project is compiled without the browser's types. */
const PAPER = "getComputedStyle(document.body).backgroundColor";

/** Returns the number of pixels of a canvas that are not transparent. */
const inkOf = (page: Page, selector: string) =>
  page.$eval(selector, (canvas) => {
    const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    let ink = 0;
    for (let at = 3; at < data.length; at += 4) ink += Number(data[at] > 0);
    return ink;
  });
const backgrounds = (page: Page, selector: string) =>
  page.$$eval(selector, (all) => all.map((each) => String(each.computedStyleMap().get("background-color"))));

describe.skipIf(executable === null)("the report page in a browser", () => {
  let browser: Browser;
  let path: string;
  let watched: Watched;
  let page: Page;

  beforeAll(async () => {
    browser = await launch(executable!);
    path = (await writeReport(await writeRun())).path;
    watched = await openReport(browser, path);
    page = watched.page;
  });
  afterAll(() => browser?.close());

  it("draws every standard curve of the run, and any other selected metric", async () => {
    expect(await page.$$eval("figure.card", (all) => all.map((each) => each.dataset["metric"]))).toEqual([
      "reward/mean",
      "loss",
      "custom/number",
    ]);
    const label = await page.getAttribute('[data-metric="reward/mean"] .plot', "aria-label");
    expect(label).toBe(
      "Reward. train: 0.500 at step 0, 0.500 at step 2, from 0.500 to 0.900; eval: 0.750 at step 2, 0.750 at step 2, from 0.750 to 0.750",
    );
    expect(await inkOf(page, '[data-metric="reward/mean"] canvas')).toBeGreaterThan(1000);
    expect(await page.$$eval("#metric option", (all) => all.map((each) => each.textContent))).toEqual([
      "custom/number",
      "loss",
      "reward/mean",
      "reward/std",
      "reward/mean",
    ]);
    await page.selectOption("#metric", "train reward/std");
    expect(await page.textContent('[data-metric="reward/std"] .readout')).toContain("0.100");
    expect(await inkOf(page, '[data-metric="reward/std"] canvas')).toBeGreaterThan(100);
    await page.click("#curves summary");
    await page.waitForSelector("#curves tbody tr");
    expect(await page.$$eval("#curves tbody tr", (all) => all.length)).toBe(4);
  });

  it("shows checkpoints, settings and warnings", async () => {
    expect(await page.$$eval("#facts tbody tr.deleted", (all) => all.map((each) => each.textContent))).toEqual(["1c1deleted0.500"]);
    expect(await page.textContent("#facts")).toContain("groups.size3");
    expect(await page.textContent(".notices")).toContain("warning step 1  careful </script>");
  });

  it("draws the curve after smoothing", async () => {
    await page.$eval("#smooth", (input) => {
      input.value = "0.8";
      input.dispatchEvent(new Event("input"));
    });
    expect(await page.textContent(".control output")).toBe("0.80");
    expect(await inkOf(page, '[data-metric="loss"] canvas')).toBeGreaterThan(500);
  });

  it("shows groups side by side with rewards and advantages, and failed rollouts", async () => {
    expect(await page.$$eval(".group h3", (all) => all.map((each) => each.textContent))).toEqual(["item-0", "item-1"]);
    const tops = await page.$$eval(".group", (all) => all.map((each) => each.getBoundingClientRect().top));
    expect(tops[0]).toBe(tops[1]);
    const rows = await page.$$eval("button.row", (all) => all.map((each) => each.textContent));
    expect(rows[0]).toBe("item-0, trajectory 0: reward 1.000, advantage +1.41");
    expect(rows[1]).toBe("item-0, trajectory 1: reward 0.000, advantage −0.71");
    expect(rows).toHaveLength(5);
    expect(await page.textContent(".failure summary")).toContain("TimeoutError");
    expect(await page.textContent(".group:nth-child(2) .hint")).toBe("All rewards equal: nothing to learn from.");
  });

  it("labels the groups that were discarded before training", async () => {
    const { page: step1 } = await openReport(browser, path, { hash: "#train/1/0/0" });
    const labels = await step1.$$eval(".group:nth-child(2) .hint", (all) => all.map((each) => each.textContent));
    expect(labels).toEqual(["All rewards equal: nothing to learn from.", "Discarded before training."]);
    expect(await step1.$$eval(".group:nth-child(1) .hint", (all) => all.length)).toBe(0);
    expect(await step1.textContent("#groups .about")).toContain("1 group discarded before training");
    await step1.close();
  });

  it("shows a trajectory: roles in order, tool call and result, timing, metadata, logs, additional history", async () => {
    const roles = await page.$$eval(".conversation > .turns .turn", (all) => all.map((each) => each.dataset["role"]));
    expect(roles).toEqual(["system", "user", "assistant", "tool", "assistant"]);
    expect(await page.textContent(".call")).toContain('"item": "pen"');
    expect(await page.textContent('[data-role="tool"] .who')).toContain("lookup");
    expect(await page.textContent('[data-role="tool"] .text')).toContain('"price": 3');
    expect(await page.textContent('[data-role="user"] .text')).toBe("What does the pen cost?\n[image_url]");
    expect(await page.textContent(".timing")).toBe("whole rollout2.00 ssample1.50 s");
    expect(await page.textContent(".log")).toContain("log ");
    expect(await page.textContent(".history")).toContain("sub-agent question");
    await page.click('button.row[data-group="1"][data-trajectory="1"]');
    expect(await page.textContent(".which")).toBe("item-1 · 1");
    expect(page.url()).toMatch(/#train\/2\/1\/1$/);
    await page.goBack();
    expect(await page.textContent(".which")).toBe("item-0 · 0");
  });

  it("shows ids and log-probabilities of tokens, by pointer and by keyboard", async () => {
    const turn = ".conversation > .turns .turn:nth-child(5)";
    expect(await page.$$eval(`${turn} .token`, (all) => all.map((each) => each.textContent))).toEqual(["cost ", "‹e2 82›", "€", "↵\n"]);
    await page.hover(`${turn} .token:nth-child(3)`);
    const facts = await page.textContent(`${turn} .token-readout`);
    expect(facts).toBe('token 3 of 4 "€"id 102sampled −0.3000 (74.1 %)trained −0.2700difference +0.0300ratio 1.0305advantage +0.50');
    await page.focus(`${turn} .tokens`);
    await page.keyboard.press("End");
    expect(await page.textContent(`${turn} .token-readout`)).toContain("token 4 of 4");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    expect(await page.textContent(`${turn} .token-readout`)).toContain("id 101");
    expect(await page.textContent(`${turn} .token.picked`)).toBe("‹e2 82›");
  });

  it("colors tokens by log-probability, advantage or difference", async () => {
    const tokens = ".conversation > .turns .turn:nth-child(5) .token";
    const kinds = () => page.$$eval(tokens, (all) => all.map((each) => each.dataset["kind"]));
    const byLogprob = await backgrounds(page, tokens);
    expect(new Set(byLogprob).size).toBe(4);
    expect(await kinds()).toEqual(["warm", "warm", "warm", "warm"]);
    await page.check('input[name="color"][value="advantage"]', { force: true });
    expect(await kinds()).toEqual(["up", "up", "up", "up"]);
    expect(new Set(await backgrounds(page, tokens)).size).toBe(1);
    await page.check('input[name="color"][value="difference"]', { force: true });
    expect(await kinds()).toEqual(["up", "up", "up", "up"]);
    await page.check('input[name="color"][value="plain"]', { force: true });
    expect(new Set(await backgrounds(page, tokens))).toEqual(new Set(["rgba(0, 0, 0, 0)"]));
    await page.check('input[name="color"][value="logprob"]', { force: true });
    expect(await backgrounds(page, tokens)).toEqual(byLogprob);
  });

  it("reports missing trainer log-probabilities, and disables the comparison", async () => {
    await page.selectOption("[aria-label=Step]", "0");
    expect(await page.textContent(".trained-absent")).toContain("were not kept");
    expect(await page.isDisabled('input[name="color"][value="difference"]')).toBe(true);
    await page.click('button[aria-label="Later step"]');
    expect(page.url()).toContain("#train/1/");
    await page.focus('input[name="split"][value="train"]');
    await page.keyboard.press("ArrowRight");
    await page.waitForSelector(".single");
    expect(await page.evaluate<string>("document.activeElement.value")).toBe("eval");
    expect(await page.textContent(".about")).toContain("trajectories/eval/000002.jsonl");
    expect(await page.textContent(".single .row")).toContain("item-0");
  });

  it("reports omitted trajectories and their location", async () => {
    const small = await writeReport(await writeRun({ steps: 9 }), { steps: 3, trajectoryBytes: 6000 });
    const opened = await openReport(browser, small.path);
    expect(await opened.page.textContent(".left-out")).toContain("2 of 9 training steps and 1 of 1 evaluation");
    await opened.page.click("button.row.bare");
    expect(await opened.page.textContent(".conversation .empty")).toMatch(
      /It is in trajectories\/train\/000008\.jsonl, line \d, trajectory \d\./,
    );
    expect(opened.errors).toEqual([]);
    await opened.page.close();
  });

  it("follows the theme preference and the theme setting", async () => {
    const dark = await openReport(browser, path, { colorScheme: "dark" });
    const paper = () => dark.page.evaluate<string>(PAPER);
    const night = await paper();
    await dark.page.selectOption("#theme", "light");
    expect(await paper()).not.toBe(night);
    expect(await paper()).toBe(await page.evaluate<string>(PAPER));
    expect(dark.errors).toEqual([]);
    await dark.page.close();
  });

  it("fits a narrow window, and opens the trajectory in the URL fragment", async () => {
    const narrow = await openReport(browser, path, { hash: "#train/0/1/1", viewport: { width: 390, height: 800 } });
    expect(await narrow.page.textContent(".which")).toBe("item-1 · 1");
    expect(await narrow.page.evaluate<number>("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
    expect(narrow.errors).toEqual([]);
    await narrow.page.close();
  });

  it("gives every control an accessible name and a sufficient size", async () => {
    const small = await page.$$eval("button, select", (all) =>
      all
        .filter((each) => each.getBoundingClientRect().height > 0 && each.getBoundingClientRect().height < 24)
        .map((each) => each.outerHTML),
    );
    expect(small).toEqual([]);
    for (const role of ["button", "combobox", "radio", "slider"] as const) {
      const all = page.getByRole(role);
      const named = page.getByRole(role, { name: /\S/ });
      expect(await all.count(), role).toBeGreaterThan(0);
      expect(await named.count(), role).toBe(await all.count());
    }
  });

  it("opens for a run without steps", async () => {
    const runDir = await mkdtemp(join(tmpdir(), "whetstone-report-"));
    await writeFile(join(runDir, "config.json"), "{}");
    const opened = await openReport(browser, (await writeReport(runDir)).path);
    expect(await opened.page.textContent("#curves")).toContain("No step has been written yet.");
    expect(opened.errors).toEqual([]);
    await opened.page.close();
  });

  it("executed no hostile text, sent no request and logged no error in all tests above", async () => {
    expect(await page.evaluate(() => Reflect.get(globalThis, "hacked") as unknown)).toBeUndefined();
    expect(await page.locator("#page img, #page script, #page iframe").count()).toBe(0);
    expect(await page.title()).toContain("</script>");
    expect(watched.requests).toEqual([]);
    expect(watched.errors).toEqual([]);
  });

  it("blocks inserted scripts and images by its content security policy", async () => {
    const opened = await openReport(browser, path);
    await opened.page.evaluate(`
      document.body.insertAdjacentHTML("beforeend", '<img src="https://evil.example/x.png" onerror="window.hacked = 3">');
      document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hacked = 4" }));
    `);
    await expect.poll(() => opened.errors.length).toBeGreaterThanOrEqual(3);
    expect(await opened.page.evaluate(() => Reflect.get(globalThis, "hacked") as unknown)).toBeUndefined();
    expect(opened.errors.join("\n")).toMatch(/Content Security Policy/);
    // Blocked requests are reported too.
    expect(opened.loaded).toEqual([]);
    await opened.page.close();
  });
});
