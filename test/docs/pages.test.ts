/** Runs the programs of README, tutorials and how-to guides in a reader's project and compares their output with the page. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { projectFiles, read, ROOT } from "../project/files.ts";
import { buildPackage, createProject, isShown, pageBlocks, type PageBlock, type Project } from "../support/page.ts";

const BLOCK_TIMEOUT_MS = 300_000;
const PAGES = ["README.md", ...projectFiles("docs/tutorials"), ...projectFiles("docs/how-to")].filter((page) => page.endsWith(".md"));
/** `DOCS_RUN=all` runs the programs of all pages, `DOCS_RUN=evaluate` of pages with this name; `DOCS_UPDATE=1` writes their output into the page. */
const { DOCS_RUN: selected = "README", DOCS_UPDATE: update } = process.env;
const isSelected = (page: string): boolean => selected === "all" || new RegExp(selected, "u").test(page);

let built: Awaited<ReturnType<typeof buildPackage>>;
beforeAll(async () => {
  built = await buildPackage();
}, BLOCK_TIMEOUT_MS);
afterAll(() => built.remove());

describe.each(PAGES)("%s", (page) => {
  let project: Project;
  beforeAll(async () => {
    project = await createProject(built.directory);
  });
  afterAll(() => project.remove());

  const found = pageBlocks(read(page)).filter(({ file, commands, excluded }) => file !== null || commands.length > 0 || excluded !== null);
  const title = ({ line, file, commands, excluded }: PageBlock) =>
    `line ${line}: ${commands.join("; ") || file || "program"}${excluded === null ? "" : ` (not run: ${excluded})`}`;
  for (const block of found) {
    it.skipIf(block.excluded !== null || !isSelected(page))(
      `${title(block)} prints what the page shows`,
      async () => {
        const printed = await project.run(block);
        if (update !== undefined && !isShown(printed, block.shown)) return show(page, block, printed);
        if (!isShown(printed, block.shown)) expect(printed.trim()).toBe(block.shown.trim());
      },
      BLOCK_TIMEOUT_MS,
    );
  }
});

/** Writes an output into a page, after its block. */
function show(page: string, { code, shown }: PageBlock, printed: string): void {
  const text = read(page);
  const end = text.indexOf(`${code}\`\`\`\n`) + code.length + "```\n".length;
  const after = text.slice(end);
  const output = `\`\`\`text\n${printed.trim()}\n\`\`\`\n`;
  const rest = shown === "" ? `\n${output}${after}` : after.replace(`\`\`\`text\n${shown}\`\`\`\n`, () => output);
  writeFileSync(join(ROOT, page), text.slice(0, end) + rest);
}

describe("the comparison", () => {
  it("takes … for any text and everything else literally", () => {
    expect(isShown("a 12 b\nc\n", "a … b\nc")).toBe(true);
    expect(isShown("a.c", "abc")).toBe(false);
    expect(isShown("one\ntwo", "one")).toBe(false);
  });

  it("finds blocks that are excluded and blocks that keep running", () => {
    const text = "<!-- keeps running -->\n```sh\nserve\n```\n```text\nready\n```\n<!-- not run: no GPU -->\n```sh\ntrain\n```\n";
    expect(pageBlocks(text)).toMatchObject([
      { line: 2, commands: ["serve"], shown: "ready\n", keepsRunning: true, excluded: null },
      { line: 9, commands: ["train"], keepsRunning: false, excluded: "no GPU" },
    ]);
  });

  it("reports a block without a file name", () => {
    expect(() => pageBlocks("text\n```ts\nconsole.log(1);\n```\n")).toThrow(/name\.mts/u);
  });
});
