/** Each example runs by itself, and shows how little a captured agent has to change. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const RUN_TIMEOUT_MS = 120_000;
/** Lines to change in an agent that is to be captured. */
const MAX_CHANGED_LINES = 3;
const MAX_LINES = 60;

describe.each([
  ["openai", [/turns: 2/, /goesOn: true/]],
  ["ai-sdk", [/turns: 1/, /pieces: \d/]],
  ["langchain", [/main history\n {2}context user cat\n {2}sampled/, /additional history 1\n {2}context user sub-agent: dog\n {2}sampled/]],
  ["openai-agents", [/(sampled: \[ \d+ \].*\n.*){4}/, /completionTokens: \d+/]],
] as const)("examples/capture-%s.ts", (name, expected) => {
  const path = join(root, "examples", `capture-${name}.ts`);

  it("changes at most three lines of an agent, in at most 60 lines", async () => {
    const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
    expect(lines.length).toBeLessThanOrEqual(MAX_LINES);
    const changed = lines.filter((line) => /\bcapture\b/.test(line) && !/^\s*(\*|\/\/|\/\*)/.test(line));
    expect(changed.length).toBeGreaterThan(0);
    expect(changed.length).toBeLessThanOrEqual(MAX_CHANGED_LINES);
  });

  it(
    "runs against the embedded service and prints what was captured",
    async () => {
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
});
