/** Every example is short, runs against the embedded service, and prints the expected output. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../project/files.ts";
import { runProgram } from "../support/run-program.ts";

const RUN_TIMEOUT_MS = 180_000;
const MAX_LINES = 60;
/** Maximum number of changed lines in a captured agent. */
const MAX_CHANGED_LINES = 3;

interface Expectation {
  /** Command-line arguments of the example; it runs in a temporary directory. */
  readonly args?: (directory: string) => readonly string[];
  /** Expected patterns on standard output. */
  readonly prints: readonly RegExp[];
}

const EXAMPLES: Readonly<Record<string, Expectation>> = {
  "agent-with-tools": { prints: [/tool +7 *\nassistant 7 *\nanswer \{/, /tool +Error: nothing is called xyz/, /tool_errors: [1-9]/] },
  "capture-ai-sdk": { prints: [/turns: 1/, /pieces: \d/] },
  "capture-langchain": {
    prints: [/main history\n {2}context user cat\n {2}sampled/, /additional history 1\n {2}context user sub-agent: dog\n {2}sampled/],
  },
  "capture-openai": { prints: [/turns: 2/, /goesOn: true/] },
  "capture-openai-agents": { prints: [/(sampled: \[ \d+ \].*\n.*){4}/, /completionTokens: \d+/] },
  "dataset-pipeline": { prints: [/all 400\n/, /artifact:\/\/\/[\w-]+\/datasets\/distilled:v0\n/, /checkpoint 1, loss \d+\.\d{3}\n/] },
  "environment-evaluate": {
    prints: [/isValid: true/, /95 % interval/, /pass@1 0\.\d{3}\npass@4 [01]\.\d{3}\nexact 0\.\d{3}/, /scored again \[/],
  },
  "mcp-tools": { prints: [/\[ 'find', 'open' \]/, /tool +12 *\nassistant 12/, /stopReason: 'answer'/] },
  "rl-in-twenty-lines": { args: () => ["2"], prints: [/^0 0\.\d+ \{[^}]*learning_rate: 0\.0003[^}]*\}\n1 0\.\d+ \{/] },
  "train-rl": {
    args: (directory) => ["2", join(directory, "run")],
    prints: [
      /^after 0 steps: [01]\.\d{3} held out\nstep 0: reward 0\.\d{3}\nstep 1: reward 0\.\d{3}\nafter 2 steps: .*\ncompleted after 2 steps/,
    ],
  },
};

const pathOf = (name: string) => join(ROOT, "examples", `${name}.ts`);
const linesOf = async (name: string) => (await readFile(pathOf(name), "utf8")).trimEnd().split("\n");

describe("the examples", () => {
  it("are all tested", async () => {
    const names = await readdir(join(ROOT, "examples"));
    expect(names.map((name) => name.replace(/\.ts$/u, "")).toSorted()).toEqual(Object.keys(EXAMPLES).toSorted());
  });

  it.each(Object.keys(EXAMPLES))("%s has at most 60 lines and states its command", async (name) => {
    const lines = await linesOf(name);
    expect(lines.length).toBeLessThanOrEqual(MAX_LINES);
    expect(lines.join("\n")).toContain(`node --conditions=whetstone/source --import tsx examples/${name}.ts`);
  });

  it.each(Object.keys(EXAMPLES).filter((name) => name.startsWith("capture-")))(
    "%s changes at most three lines of the agent",
    async (name) => {
      const changed = (await linesOf(name)).filter((line) => /\bcapture\b/.test(line) && !/^\s*(\*|\/\/|\/\*)/.test(line));
      expect(changed.length).toBeGreaterThan(0);
      expect(changed.length).toBeLessThanOrEqual(MAX_CHANGED_LINES);
    },
  );

  it.each(Object.entries(EXAMPLES))(
    "%s runs and prints the expected output",
    async (name, { args, prints }) => {
      const stdout = await runProgram(pathOf(name), { args, cwd: ROOT, timeoutMs: RUN_TIMEOUT_MS });
      for (const pattern of prints) expect(stdout).toMatch(pattern);
    },
    RUN_TIMEOUT_MS,
  );
});
