import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import axe from "axe-core";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findChromium } from "../report/browser.ts";
import { type DashboardTest, openPlace, startDashboard, when } from "./dashboard-browser.ts";
import { generateRun } from "./generated-runs.ts";

const executable = findChromium();
if (executable === null)
  process.stderr.write("The dashboard is not looked at: no Chromium was found on PATH. Install one, or set CHROMIUM_PATH.\n");

/** Nine places, each with all rules: seconds on an idle machine. */
const AXE_TIMEOUT_MS = 90_000;
const CALL = '<tool_call>{"name": "lookup", "arguments": {"item": "pen"}}</tool_call>';
const TOOLS = '[{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]';

describe.skipIf(executable === null)("the dashboard in a browser", () => {
  let test: DashboardTest;
  let context: BrowserContext;
  let page: Page;
  const errors: string[] = [];
  /** Released jobs; the engine holds every gradient until then. */
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));

  const open = (place: string) => openPlace(page, test.service, place);
  const run = async (name: string, view = "") => `/runs/${await test.idOf(name)}${view}`;
  const texts = (selector: string) => page.$$eval(selector, (all) => all.map((each) => each.textContent));

  beforeAll(async () => {
    test = await startDashboard(executable!, {
      answer: ({ prompt }) => (prompt.includes("lookup") && !prompt.includes("costs 3") ? CALL : "The sum is 19."),
      engine: { before: ({ verb }) => (verb === "forwardBackward" ? held : undefined) },
    });
    context = await test.login();
    page = await context.newPage();
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error") errors.push(message.text());
    });
  });
  afterAll(async () => {
    release();
    await test?.close();
  });

  it("lists the runs, and a new run as soon as it is written", async () => {
    await open("/runs");
    expect(await texts("tbody th a")).toEqual(["arithmetic/rank-8", "arithmetic/rank-16", "arithmetic/full-parameters"]);
    expect(await page.textContent(".connection")).toBe("Live");
    await generateRun(test.root, { name: "arithmetic/new", seed: 5, steps: 3, evaluateEvery: 0 });
    await page.waitForSelector("text=arithmetic/new");
    await page.fill("input[type=search]", "full interrupted");
    expect(await texts("tbody th a")).toEqual(["arithmetic/full-parameters"]);
    await page.fill("input[type=search]", "");
  });

  it("lays the curves of selected runs over each other", async () => {
    await open("/runs");
    await page.check("[aria-label='Select arithmetic/rank-8']");
    await page.check("[aria-label='Select arithmetic/rank-16']");
    await page.click("text=Overlay 2 runs");
    await page.waitForSelector("figure.card canvas");
    expect(await texts(".chip")).toEqual(["arithmetic/rank-8", "arithmetic/rank-16×"]);
    const label = (await page.getAttribute('[data-metric="reward/mean"] .plot', "aria-label"))!;
    for (const name of ["arithmetic/rank-8: ", "arithmetic/rank-8 (eval): ", "arithmetic/rank-16: "]) expect(label).toContain(name);
    await page.click("[aria-label='Remove arithmetic/rank-16']");
    await when(page, "document.querySelectorAll('.chip').length === 0");
    await page.selectOption("[aria-label='Overlay another run']", await test.idOf("arithmetic/full-parameters"));
    await when(page, "document.querySelectorAll('.chip').length === 2");
  });

  it("continues a curve while the run writes", async () => {
    await open(await run("arithmetic/full-parameters"));
    await page.waitForSelector('[data-metric="reward/mean"] .readout b');
    const row = { step: 40, split: "train", time: "2026-01-05T09:09:20.000Z", "reward/mean": 0.123, "reward/std": 0.1 };
    await appendFile(join(test.root, "arithmetic/full-parameters/metrics.jsonl"), `${JSON.stringify(row)}\n`);
    await when(page, `document.querySelector('[data-metric="reward/mean"] .readout').textContent.includes("0.123")`);
    expect(await page.textContent('[data-metric="reward/mean"] .readout')).toContain("step 40");
  });

  it("shows groups side by side, and opens a trajectory token by token", async () => {
    await open(await run("arithmetic/rank-8", "/groups/train/59"));
    await page.waitForSelector(".group");
    expect(await texts(".group h3")).toEqual(["sum-000", "sum-001", "sum-002", "sum-003", "sum-004", "sum-005"]);
    await page.click('button.row[data-group="1"][data-trajectory="2"]');
    await page.waitForSelector(".tokens");
    expect(page.url()).toMatch(/\/groups\/train\/59\/2\/2$/u);
    await when(page, "document.activeElement.id === 'trajectory-title'");
    await page.focus(".tokens");
    await page.keyboard.press("ArrowRight");
    expect(await page.textContent(".token-readout")).toMatch(/token 1 of \d+.*id 200.*sampled.*trained.*difference.*ratio \d.*advantage/u);
    await page.keyboard.press("Escape");
    expect(await page.$(".token.picked")).toBeNull();
    await page.check('input[name="color"][value="difference"]', { force: true });
    const kinds = await page.$$eval(".token", (all) => all.map((each) => each.dataset["kind"]));
    expect(new Set(kinds)).toEqual(new Set(["up", "down"]));
  });

  it("renders only the visible part of the list of trajectories, and moves through it by keyboard", async () => {
    await open(await run("arithmetic/rank-8", "/trajectories"));
    await page.waitForSelector("#row-0 .preview");
    expect(await page.getAttribute(".virtual", "aria-rowcount")).toBe(String(60 * 6 * 4 + 1));
    expect((await page.$$(".virtual-body .virtual-row")).length).toBeLessThan(60);
    await page.focus(".virtual");
    await page.keyboard.press("End");
    await page.waitForSelector("#row-1439 .preview");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".tokens");
    expect(await page.textContent(".which")).toBe("sum-005 · train step 59 · 3");
    await page.focus(".virtual");
    await page.keyboard.press("PageUp");
    await page.keyboard.press("Home");
    await page.waitForSelector('#row-0[aria-selected="true"] .preview');
  });

  it("filters and sorts the trajectories of one step", async () => {
    await open(await run("arithmetic/rank-8", "/trajectories?step=3&sort=reward+descending&max=0.5"));
    await when(page, "document.querySelector('#row-0 > span').textContent === '3'");
    const rewards = (await texts(".virtual-body .virtual-row > span:nth-child(3)")).map(Number);
    expect(rewards).toEqual(rewards.toSorted((a, b) => b - a));
    expect(Math.max(...rewards)).toBeLessThanOrEqual(0.5);
  });

  it("marks the difference of two steps' answers to a scenario", async () => {
    await open(await run("arithmetic/rank-8", "/answers?a=9&b=59&split=eval&scenario=sum-001"));
    await page.waitForSelector(".pair-turn");
    const sides = await texts(".side .text");
    expect(sides[1]).toContain("The sum is 107.");
    expect(sides[0]).not.toBe(sides[1]);
    expect((await texts("del")).length + (await texts("ins")).length).toBeGreaterThan(0);
    expect((await texts(".side:first-child .text > *")).every((text) => sides[0]!.includes(text!))).toBe(true);
  });

  it("shows jobs in the order of the queue, and cancels one after a second press", async () => {
    const model = (await test.call("/v1/preview/models", { project: "demo", name: "arithmetic", base_model: "whetstone-tiny" })) as {
      id: string;
    };
    const group = (await import("../report/run-fixture.ts")).groupLine(0, 0, []);
    const choice = { role: "assistant", content: "3" };
    const trajectories = [0, 1].map((reward) => ({
      messages_and_choices: [
        { role: "user", content: "1 + 2" },
        {
          index: 0,
          message: choice,
          finish_reason: "stop",
          token_ids: [5],
          prompt_token_ids: [4],
          logprobs: { content: [{ token: "3", logprob: -1, bytes: [51], top_logprobs: [] }] },
        },
      ],
      reward,
    }));
    for (let job = 0; job < 2; job++)
      await test.call("/v1/preview/training-jobs", { model_id: model.id, trajectory_groups: [{ ...group, trajectories, exceptions: [] }] });
    await open("/jobs");
    await when(page, "document.querySelectorAll('tbody tr').length === 2");
    await page.waitForSelector('[data-state="queued"]');
    expect(await page.textContent("tbody tr:last-child td")).toContain("1 of 1 in the queue");
    await page.click("tbody tr:last-child .button");
    await page.keyboard.press("Escape");
    await page.click("tbody tr:last-child .button");
    await page.keyboard.press("Enter");
    await page.waitForSelector('[data-state="cancelled"]');
  });

  it("lists models with checkpoints and the use of the disk", async () => {
    await open("/models");
    await page.waitForSelector(".models tbody tr");
    expect(await page.textContent(".models tbody th b")).toBe("local/demo/arithmetic");
    await page.click(".models summary");
    await page.waitForSelector(".models .grid tbody tr");
    expect(await page.textContent("#disk-title ~ .about")).toMatch(/free of .* · models .* · runs /u);
  });

  it("streams an answer with alternatives per token, and sends the result of a tool call", async () => {
    await open("/playground?model=whetstone-tiny");
    await page.fill("[aria-label=Message]", "What is 12 + 7?");
    await page.keyboard.press("Enter");
    await when(page, "document.querySelector('.turn.choice')?.getAttribute('aria-busy') === 'false'");
    expect(await page.textContent(".tokens")).toContain("The sum is 19.");
    await page.focus(".tokens");
    await page.keyboard.press("End");
    expect(await page.$$eval(".alternatives tr", (all) => all.length)).toBeGreaterThan(0);
    expect(await page.textContent(".alternatives .chosen")).toContain("sampled");
    await page.click("text=Clear");
    await page.click(".settings summary");
    await page.fill(".settings details textarea", TOOLS);
    await page.fill("[aria-label=Message]", "Use lookup");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".call");
    expect(await page.textContent(".call")).toContain('"item": "pen"');
    await page.fill("[aria-label='Result of lookup']", "costs 3");
    await page.click("text=Send");
    await when(page, "document.querySelectorAll('.turn.choice').length === 2 && !document.querySelector('[aria-busy=true]')");
    expect(await page.textContent(".turn.choice:last-child .tokens")).toContain("The sum is 19.");
  });

  it("reports the service's message when a request is not valid", async () => {
    await open("/playground?model=whetstone-tiny");
    await page.fill("label:has-text('Checkpoint step') input", "99");
    await page.fill("[aria-label=Message]", "Hello");
    const before = errors.length;
    await page.keyboard.press("Enter");
    expect(await page.textContent("[role=alert]")).toContain("99");
    // The browser logs the failed request.
    errors.splice(before);
  });

  it("reaches every control by keyboard with a visible focus", async () => {
    const fresh = await context.newPage();
    await openPlace(fresh, test.service, await run("arithmetic/rank-8", "/groups/train/59/2/2"));
    await fresh.waitForSelector(".tokens");
    const reached = new Set<string>();
    const unmarked: string[] = [];
    for (let press = 0; press < 80; press++) {
      await fresh.keyboard.press("Tab");
      const found = (await fresh.evaluate(`(() => {
        const at = document.activeElement;
        const shown = at.matches(".segmented input") ? at.nextElementSibling : at;
        const style = getComputedStyle(shown);
        const name = at.tagName + " " + (at.getAttribute("aria-label") || at.value || at.textContent).slice(0, 40);
        return { name, isMarked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 };
      })()`)) as { name: string; isMarked: boolean };
      if (found.name.startsWith("BODY")) break;
      if (!found.isMarked) unmarked.push(found.name);
      reached.add(found.name);
    }
    await fresh.close();
    expect(unmarked).toEqual([]);
    for (const name of ["A Runs", "A Playground", "A Trajectories", "BUTTON Earlier step", "SELECT Step", "INPUT logprob"]) {
      expect(
        [...reached].some((each) => each.startsWith(name)),
        name,
      ).toBe(true);
    }
    expect([...reached].filter((name) => /trajectory \d: reward/u.test(name)).length).toBe(24);
  });

  it.each([
    { colorScheme: "light", rules: "undefined", max: 9 },
    { colorScheme: "dark", rules: '["color-contrast"]', max: 4 },
  ] as const)(
    "breaks no accessibility rule and fits a phone in $colorScheme colors",
    async ({ colorScheme, rules, max }) => {
      const phone = await test.browser.newContext({
        ...{ viewport: { width: 360, height: 740 }, colorScheme, bypassCSP: true },
        storageState: await context.storageState(),
      });
      const narrow = await phone.newPage();
      const views = ["", "/groups/train/59/2/2", "/trajectories/train/59/2/2", "/answers", "/details"];
      const places = [
        "/runs",
        ...(await Promise.all(views.map((view) => run("arithmetic/rank-8", view)))),
        "/jobs",
        "/models",
        "/playground",
      ];
      await openPlace(narrow, test.service, "/runs");
      await narrow.evaluate(axe.source);
      for (const place of places.slice(0, max)) {
        await openPlace(narrow, test.service, place);
        expect(await narrow.evaluate<number>("document.documentElement.scrollWidth - innerWidth"), place).toBeLessThanOrEqual(0);
        const violations = await narrow.evaluate<unknown[]>(
          `axe.run({ runOnly: ${rules} }).then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html.slice(0, 160))]))`,
        );
        expect(violations, place).toEqual([]);
      }
      await phone.close();
    },
    AXE_TIMEOUT_MS,
  );

  it("reports the end of the session", async () => {
    const other = await test.login();
    const stranger = await other.newPage();
    await openPlace(stranger, test.service, "/runs");
    await other.clearCookies();
    await stranger.goto(`${test.service.url}/ui/#/models`);
    expect(await stranger.textContent("[role=alert]:has(code)")).toContain("whetstone ui");
    await other.close();
  });

  it("logged no error in all tests above", () => {
    expect(errors).toEqual([]);
  });
});
