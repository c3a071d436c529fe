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

/** Ten places, each with all rules: seconds on an idle machine. */
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
    await generateRun(test.root, { name: "arithmetic/new", seed: 5, steps: 3, evaluateEvery: 0, hasTool: true });
    await page.waitForSelector("text=arithmetic/new");
    await page.fill("input[type=search]", "full interrupted");
    expect(await texts("tbody th a")).toEqual(["arithmetic/full-parameters"]);
    await page.fill("input[type=search]", "");
  });

  it("sorts the runs by any column, and shows settings as columns", async () => {
    await open("/runs");
    const names = () => texts("tbody th a");
    await page.click(".menu summary");
    expect((await texts(".menu-list fieldset:first-child label")).slice(0, 2)).toEqual(["model", "steps"]);
    await page.check(".menu-list label:text-is('seed') input");
    await page.keyboard.press("Escape");
    expect(await page.$(".menu[open]")).toBeNull();
    await page.click("thead button:text-is('seed')");
    expect(await names()).toEqual(["arithmetic/rank-8", "arithmetic/rank-16", "arithmetic/full-parameters", "arithmetic/new"]);
    await page.click("thead button:has-text('seed')");
    expect(await names()).toEqual(["arithmetic/new", "arithmetic/full-parameters", "arithmetic/rank-16", "arithmetic/rank-8"]);
    expect(await page.getAttribute("thead th:has-text('seed')", "aria-sort")).toBe("descending");
    expect(await texts("td.setting")).toEqual(["5", "3", "2", "1"]);
    await page.click("thead button:text-is('Steps')");
    await page.reload();
    await page.waitForSelector("td.setting");
    expect((await names()).slice(2)).toEqual(["arithmetic/full-parameters", "arithmetic/new"]);
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

  it("tags a run and keeps a note, and finds the run by them", async () => {
    await open(await run("arithmetic/rank-16"));
    await page.fill("[aria-label='Add a tag']", "keep");
    await page.keyboard.press("Enter");
    await page.waitForSelector("[aria-label='Remove the tag keep']");
    await page.click("text=Add a note");
    await page.fill("[aria-label=Note] textarea", "Twice the rank, same reward");
    await page.click("text=Save note");
    await page.waitForSelector(".note-text");
    await open("/runs");
    await page.fill("input[type=search]", "keep twice");
    expect(await texts("tbody th")).toEqual([expect.stringMatching(/^arithmetic\/rank-16arithmetickeepTwice the rank, same reward$/u)]);
    await page.fill("input[type=search]", "");
  });

  it("compares selected runs: paired rewards with intervals, and the settings that differ", async () => {
    await open("/runs");
    for (const name of ["rank-8", "rank-16"]) await page.check(`[aria-label='Select arithmetic/${name}']`);
    await page.click("a:text-is('Compare')");
    await page.waitForSelector(".compared:not(.texts) tbody tr:nth-child(2)");
    const row = await texts(".compared:not(.texts) tbody tr:nth-child(2) > *");
    expect(row[0]).toBe("arithmetic/rank-16 after 59 steps");
    expect(row[4]).toMatch(/^[−+]?\d\.\d{3} to [−+]?\d\.\d{3}$/u);
    expect(row[5]).toBe("8");
    expect(await texts(".texts tbody th")).toEqual(["model", "groups.count", "seed"]);
    expect(await texts(".texts tbody tr:last-child td")).toEqual(["1", "2"]);
    await page.check("input[value=step]", { force: true });
    await page.waitForSelector(".compared td:text-is('60')");
  });

  it("continues a curve while the run writes", async () => {
    await open(await run("arithmetic/full-parameters"));
    await page.waitForSelector('[data-metric="reward/mean"] .readout b');
    const row = { step: 40, split: "train", time: "2026-01-05T09:09:20.000Z", "reward/mean": 0.123, "reward/std": 0.1 };
    await appendFile(join(test.root, "arithmetic/full-parameters/metrics.jsonl"), `${JSON.stringify(row)}\n`);
    await when(page, `document.querySelector('[data-metric="reward/mean"] .readout').textContent.includes("0.123")`);
    expect(await page.textContent('[data-metric="reward/mean"] .readout')).toContain("step 40");
  });

  it("zooms all charts into a dragged range, and opens no step by that", async () => {
    await open(await run("arithmetic/rank-8"));
    const chart = await page.waitForSelector('[data-metric="reward/mean"] .u-over');
    const { x, y, width } = (await chart.boundingBox())!;
    const imageOf = (metric: string) => page.$eval(`[data-metric="${metric}"] canvas`, (canvas: any) => canvas.toDataURL() as string);
    const whole = await imageOf("loss");
    await page.mouse.move(x + width * 0.4, y + 20);
    await page.mouse.down();
    await page.mouse.move(x + width * 0.6, y + 20, { steps: 4 });
    await page.mouse.up();
    await page.waitForSelector(".reset");
    expect(page.url()).not.toContain("groups");
    await expect.poll(() => imageOf("loss")).not.toBe(whole);
    await page.click(".reset");
    await expect.poll(() => imageOf("loss")).toBe(whole);
  });

  it("draws tokens or time as the horizontal axis, and logarithmic values where all are positive", async () => {
    await open(await run("arithmetic/rank-8"));
    await page.waitForSelector('[data-metric="reward/mean"] canvas');
    expect(await page.$eval("[aria-label='Horizontal axis'] option[value=tokens]", (option: any) => option.disabled as boolean)).toBe(true);
    const last = () => page.textContent('[data-metric="reward/mean"] .readout span:first-child small');
    expect(await last()).toBe("step 59");
    await page.selectOption("[aria-label='Horizontal axis']", "time");
    expect(await last()).toMatch(/^\d+\.\d+ min$/u);
    await page.check("label:has-text('Logarithmic') input");
    expect(await page.textContent('[data-metric="loss"] figcaption')).toContain("linear: not all values are positive");
    expect(await page.textContent('[data-metric="grad_norm"] figcaption')).not.toContain("linear");
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
    expect(await page.textContent(".turn:has(.tokens) .who")).toContain(" · checkpoint 59");
    expect(await texts("aside tr:has(th:text-is('Checkpoint')) td")).toEqual(["59"]);
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

  it("finds trajectories by a text", async () => {
    await open(await run("arithmetic/rank-8", "/trajectories"));
    await page.fill("[aria-label='Search texts']", "the SUM is 107");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#row-0 .preview:has-text('The sum is 107')");
    expect(await page.textContent(".about")).toMatch(/^\d+ trajectories with this text$/u);
    await page.click("#row-0");
    await page.waitForSelector(".tokens");
    expect(await page.textContent(".tokens")).toContain("The sum is 107");
  });

  it("marks the difference of two steps' answers to a scenario", async () => {
    await open(await run("arithmetic/rank-8", "/answers?a=9&b=59&split=eval&scenario=sum-001"));
    await page.waitForSelector(".pair-turn");
    const sides = await texts(".side .text");
    expect(sides[1]).toContain("The sum is 107.");
    expect(sides[0]).not.toBe(sides[1]);
    expect((await texts("del")).length + (await texts("ins")).length).toBeGreaterThan(0);
    expect(await texts(".about")).toEqual([expect.stringMatching(/^Mean difference .*, 95 % interval .* paired over 8 scenarios\.$/u)]);
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

  it("lists keys with their limits and use, and revokes one after a second press", async () => {
    await open("/keys");
    await page.waitForSelector(".empty code");
    const limits = { requests_per_minute: 600, running_choices: 8 };
    const { key } = (await test.call("/v1/preview/keys", { name: "agents", entity: "acme", limits })) as { key: string };
    const answer = await fetch(`${test.service.url}/v1/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "whetstone-tiny", prompt: "12 + 7", max_tokens: 3 }),
    });
    expect(answer.status).toBe(200);
    await page.reload();
    await page.waitForSelector("table.keys");
    expect(await texts("table.keys td")).toEqual([
      "active",
      "acme",
      "train, sample, read",
      "600 requests/min, 8 running choices",
      expect.anything(),
      "Revoke",
    ]);
    expect(await texts("table.entities tbody th")).toEqual(["acme", "local"]);
    await page.click("table.keys .button");
    await page.keyboard.press("Enter");
    await page.waitForSelector('table.keys [data-state="revoked"]');
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
    await page.fill("label:has-text('Checkpoint') input", "99");
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
    { colorScheme: "light", rules: "undefined", width: 360 },
    { colorScheme: "dark", rules: '["color-contrast"]', width: 360 },
    { colorScheme: "light", rules: '["color-contrast"]', width: 1280 },
    { colorScheme: "dark", rules: '["color-contrast"]', width: 1280 },
  ] as const)(
    "breaks no accessibility rule and fits a screen of $width pixels in $colorScheme colors",
    async ({ colorScheme, rules, width }) => {
      const phone = await test.browser.newContext({
        ...{ viewport: { width, height: 740 }, colorScheme, bypassCSP: true },
        storageState: await context.storageState(),
      });
      const narrow = await phone.newPage();
      const compared = `/compare?with=${await test.idOf("arithmetic/rank-16")}`;
      const views = ["", "/groups/train/59/2/2", "/trajectories/train/59/2/2", "/answers?scenario=sum-001", compared, "/details"];
      const places = [
        "/runs",
        ...(await Promise.all(views.map((view) => run("arithmetic/rank-8", view)))),
        // Marked differences in the result of a tool, whose text is muted.
        await run("arithmetic/new", "/answers?scenario=sum-000"),
        "/jobs",
        "/models",
        "/playground",
        "/keys",
      ];
      await openPlace(narrow, test.service, "/runs");
      await narrow.evaluate(axe.source);
      for (const place of places) {
        await openPlace(narrow, test.service, place);
        if (place.includes("/answers")) await narrow.waitForSelector("ins");
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

  it("says that an address or a run does not exist, once and with links", async () => {
    await open("/nonsense");
    expect(await texts("main h1")).toEqual(["Unknown address"]);
    expect(await texts("main a")).toEqual(["runs", "jobs", "models", "playground", "keys"]);
    await open("/runs/nope");
    expect(await texts("[role=alert]")).toEqual([expect.stringContaining("There is no run nope")]);
    expect(await texts("main nav")).toEqual([]);
    // The browser logs the rejected requests.
    expect(errors.splice(0).filter((error) => !error.includes("404"))).toEqual([]);
  });

  it("asks for a login instead of loading without one", async () => {
    const stranger = await test.browser.newContext();
    const stranded = await stranger.newPage();
    await openPlace(stranded, test.service, "/runs");
    expect(await stranded.textContent("main h1")).toBe("Login");
    expect(await stranded.textContent("[role=alert]")).toContain("whetstone ui");
    expect(await stranded.textContent("main")).not.toContain("Loading");
    await stranger.close();
  });

  it("names the best evaluation, not the training step with the largest reward", async () => {
    await open(await run("arithmetic/rank-8"));
    const [best] = await texts(".numbers div:has(dt:text-is('Best evaluation')) dd");
    const { steps, columns } = (
      await page.evaluate<{ eval: { steps: number[]; columns: Record<string, number[]> } }>(
        `fetch("/ui/api/metrics?run=" + location.hash.split("/")[2]).then((answer) => answer.json()).then(([{ metrics }]) => metrics)`,
      )
    ).eval;
    const rewards = columns["reward/mean"]!;
    expect(best).toContain(`after ${steps[rewards.indexOf(Math.max(...rewards))]} steps`);
  });

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
