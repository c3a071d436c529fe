/** Builds a site of two pages and one entry, and opens it from its folder. `npm run docs` builds the whole site and checks its links. */
import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { brokenLinks } from "../../scripts/check-site.js";
import { findChromium, launch } from "../report/browser.ts";
import { projectFiles, read, ROOT } from "./files.ts";

const BUILD_TIMEOUT_MS = 120_000;
/** Pages that link to each other, one of them with code in its headings. */
const PAGES = ["docs/how-to/resume-a-training-run.md", "docs/reference/files.md"];

describe("the documentation site", () => {
  let site = "";
  beforeAll(async () => {
    site = await mkdtemp(join(tmpdir(), "whetstone-site-"));
    const tsconfig = join(site, "tsconfig.json");
    const files = [join(ROOT, "src/base/errors.ts")];
    await writeFile(
      tsconfig,
      JSON.stringify({ extends: join(ROOT, "tsconfig.build.json"), include: [], files, compilerOptions: { types: [] } }),
    );
    const { plugin, groupOrder, navigation, searchInDocuments } = JSON.parse(read("typedoc.json")) as Record<string, string[]>;
    const options = {
      groupOrder,
      navigation,
      searchInDocuments,
      plugin: plugin?.map((path) => join(ROOT, path)),
      entryPoints: files,
      tsconfig,
      projectDocuments: PAGES.map((path) => join(ROOT, path)),
      basePath: ROOT,
      readme: "none",
      out: join(site, "out"),
      disableSources: true,
    };
    await writeFile(join(site, "typedoc.json"), JSON.stringify(options));
    const args = [join(ROOT, "node_modules/typedoc/bin/typedoc"), "--options", join(site, "typedoc.json")];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: BUILD_TIMEOUT_MS });
    expect(stdout + stderr).toContain("html generated at");
  }, BUILD_TIMEOUT_MS);
  afterAll(() => rm(site, { recursive: true, force: true }));

  it("has no broken links between its pages, anchors of headings with code included", () => {
    expect(brokenLinks(join(site, "out"))).toEqual([]);
  });

  it("opens from its folder in a browser, with guides in the navigation and a search that finds them", async ({ skip }) => {
    const path = findChromium();
    if (path === null) return skip("no Chromium on this machine: set CHROMIUM_PATH");
    const browser: Browser = await launch(path);
    onTestFinished(() => browser.close());
    const page = await browser.newPage();
    const errors: Error[] = [];
    page.on("pageerror", (error) => errors.push(error));
    await page.goto(pathToFileURL(join(site, "out/documents/Files.html")).href);
    page.setDefaultTimeout(20_000);
    await page.locator(".tsd-navigation a", { hasText: "Resume a training run" }).first().waitFor({ state: "attached" });
    await page.locator("#tsd-search-trigger").click();
    await page.locator("#tsd-search-input").fill("resume");
    await page.locator("#tsd-search-results a", { hasText: "Resume a training run" }).first().click();
    await page.waitForURL(/Resume_a_training_run\.html/u);
    expect(errors).toEqual([]);
  }, 120_000);
});

describe("typedoc.json", () => {
  it("lists the language of every code block, which the build otherwise rejects", () => {
    const { highlightLanguages = [] } = JSON.parse(read("typedoc.json")) as Record<string, string[]>;
    const known = new Set([...highlightLanguages, "sh", "text", "ts"]);
    const unknown = projectFiles()
      .filter((path) => path.endsWith(".md") && !path.startsWith("template/"))
      .flatMap((path) => [...read(path).matchAll(/^ *```(\w+)/gmu)].map(([, language = ""]) => ({ path, language })))
      .filter(({ language }) => !known.has(language));
    expect(unknown).toEqual([]);
  });
});

describe("the link check", () => {
  it("reports missing files and anchors, links out of the site, and parts from other hosts", async () => {
    const site = await mkdtemp(join(tmpdir(), "whetstone-links-"));
    onTestFinished(() => rm(site, { recursive: true, force: true }));
    await mkdir(join(site, "pages"));
    await writeFile(join(site, "index.html"), '<h1 id="top"><a href="pages/a.html#here">a</a><a href="https://example.com">b</a></h1>');
    await writeFile(
      join(site, "pages/a.html"),
      '<a href="../index.html#top">up</a><a href="#here">h</a><a href="b.html">b</a><a href="../../x">x</a><script src="https://example.com/x.js"></script>',
    );
    expect(brokenLinks(site)).toEqual([
      "index.html: pages/a.html#here has no such anchor",
      "pages/a.html: #here has no such anchor",
      "pages/a.html: b.html is not a file of the site",
      "pages/a.html: ../../x leaves the site",
      "pages/a.html: https://example.com/x.js needs a network",
    ]);
  });
});
