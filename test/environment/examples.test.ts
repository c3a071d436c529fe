/** The examples of environments and agents run by themselves and print what they promise. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it, onTestFinished } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const RUN_TIMEOUT_MS = 120_000;
const MAX_LINES = 60;

it.each([
  ["agent-with-tools", [/tool +7 *\nassistant 7 *\nanswer \{/, /tool +Error: nothing is called xyz/, /tool_errors: [1-9]/]],
  ["mcp-tools", [/\[ 'find', 'open' \]/, /tool +12 *\nassistant 12/, /stopReason: 'answer'/]],
  ["environment-evaluate", [/isValid: true/, /95 % interval/, /pass@1 0\.\d{3}\npass@4 [01]\.\d{3}\nexact 0\.\d{3}/, /scored again \[/]],
] as const)(
  "examples/%s.ts",
  async (name, expected) => {
    const path = join(root, "examples", `${name}.ts`);
    expect((await readFile(path, "utf8")).trimEnd().split("\n").length).toBeLessThanOrEqual(MAX_LINES);
    const home = await mkdtemp(join(tmpdir(), "whetstone-example-"));
    onTestFinished(() => rm(home, { recursive: true, force: true }));
    const { WHETSTONE_BASE_URL: _, WHETSTONE_API_KEY: __, ...inherited } = process.env;
    const { stdout } = await promisify(execFile)(process.execPath, ["--conditions=whetstone/source", "--import", "tsx", path], {
      cwd: root,
      env: { ...inherited, WHETSTONE_HOME: home },
      timeout: RUN_TIMEOUT_MS,
    });
    for (const pattern of expected) expect(stdout).toMatch(pattern);
  },
  RUN_TIMEOUT_MS,
);
