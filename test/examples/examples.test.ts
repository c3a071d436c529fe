/** Every example is short, runs against the embedded service, and prints the expected output. */
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { ROOT } from "../project/files.ts";
import { builtProgram } from "../support/built-program.ts";
import { readNotebook, runNotebook, type Output } from "../support/notebook.ts";
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

/** Working directory of the notebook, with the runs of the example `sweep`. */
const NOTEBOOK_DIRECTORY = mkdtempSync(join(tmpdir(), "whetstone-notebook-"));
const SWEEP = join(NOTEBOOK_DIRECTORY, "runs/sweep");
/** Tasks that one example writes and another trains on. */
const SCENARIOS = join(NOTEBOOK_DIRECTORY, "scenarios");
afterAll(() => rm(NOTEBOOK_DIRECTORY, { recursive: true, force: true }));

const EXAMPLES: Readonly<Record<string, Expectation>> = {
  "agent-with-tools": { prints: [/tool +7 *\nassistant 7 *\nanswer \{/, /tool +Error: nothing is called xyz/, /tool_errors: [1-9]/] },
  "capture-ai-sdk": { prints: [/turns: 1/, /pieces: \d/] },
  "capture-langchain": {
    prints: [/main history\n {2}context user cat\n {2}sampled/, /additional history 1\n {2}context user sub-agent: dog\n {2}sampled/],
  },
  "capture-openai": { prints: [/turns: 2/, /goesOn: true/] },
  "capture-openai-agents": { prints: [/(sampled: \[ \d+ \].*\n.*){4}/, /completionTokens: \d+/] },
  "compare-checkpoints": {
    args: (directory) => ["1", directory],
    prints: [/^eval@0 \d\.\d{3}\neval@1 \d\.\d{3}\neval@1: -?\d\.\d{3} \(-?\d\.\d{3} to -?\d\.\d{3}\) better.*\ngained most: [a-h]{4}, /],
  },
  "dataset-pipeline": { prints: [/all 400\n/, /artifact:\/\/\/[\w-]+\/datasets\/distilled:v0\n/, /checkpoint 1, loss \d+\.\d{3}\n/] },
  "environment-evaluate": {
    prints: [/isValid: true/, /95 % interval/, /pass@1 0\.\d{3}\npass@4 [01]\.\d{3}\nexact 0\.\d{3}/, /scored again \[/],
  },
  "external-agent": {
    args: () => ["2", "2"],
    prints: [/^step 0: reward 0\.\d{3} of 16 sessions\nstep 1: reward 0\.\d{3} of 16 sessions\n$/],
  },
  "generate-scenarios": {
    args: () => [SCENARIOS],
    prints: [
      /request 1: duplicate: .*\nrequest 1: tool: .*"burn"\n24 scenarios after 4 requests: 20 train, 4 eval\n.*Use find with name [a-z]{6}/s,
    ],
  },
  "mcp-tools": { prints: [/\[ 'find', 'open' \]/, /tool +12 *\nassistant 12/, /stopReason: 'answer'/] },
  "rl-in-twenty-lines": { args: () => ["2"], prints: [/^0 0\.\d+ \{[^}]*learning_rate: 0\.0003[^}]*\}\n1 0\.\d+ \{/] },
  "train-with-a-judge": { args: () => ["2", SCENARIOS], prints: [/^mean score [01]\.\d{3}\nmean score [01]\.\d{3}\n$/] },
  sweep: {
    args: () => ["1", SWEEP],
    prints: [
      /^learningRate-0\.0001_seed-0 running\nlearningRate-0\.0001_seed-0 completed\n/,
      /\| learningRate=0\.0005 (\| -?[\d.]+ ){6}\| 2 \|\n/,
    ],
  },
  "train-rl": {
    args: (directory) => ["1", join(directory, "run")],
    prints: [/^after 0 steps: [01]\.\d{3} held out\nstep 0: reward 0\.\d{3}\nafter 1 steps: .*\ncompleted after 1 steps/],
  },
};

/** Examples with arguments, and invalid arguments. */
const INVALID: readonly (readonly [name: string, ...args: readonly string[]])[] = [
  ["compare-checkpoints", "--help"],
  ["external-agent", "2", "0"],
  ["generate-scenarios", "--help"],
  ["rl-in-twenty-lines", "abc"],
  ["sweep", "1.5"],
  ["train-rl", "--help"],
  ["train-with-a-judge", "-1"],
];

const pathOf = (name: string) => join(ROOT, "examples", `${name}.ts`);
const linesOf = async (name: string) => (await readFile(pathOf(name), "utf8")).trimEnd().split("\n");

describe("the examples", () => {
  it("are all tested", async () => {
    const names = (await readdir(join(ROOT, "examples"))).filter((name) => name.endsWith(".ts"));
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

  // Each trains for a quarter of a minute; their parts have tests of their own.
  const SLOW: ReadonlySet<string> = new Set(["external-agent", "train-with-a-judge"]);
  // test/capture/clients.test.ts covers the clients of the other capture examples; `EXAMPLES=all` runs these, too.
  const isRun = (name: string) => {
    if (name === "external-agent" && spawnSync("python3", ["--version"]).status !== 0) return false;
    return process.env["EXAMPLES"] === "all" || name === "capture-openai" || !(name.startsWith("capture-") || SLOW.has(name));
  };
  it.each(Object.entries(EXAMPLES).filter(([name]) => isRun(name)))(
    "%s runs and prints the expected output",
    async (name, { args, prints }) => {
      const stdout = await runProgram(pathOf(name), { args, cwd: ROOT, timeoutMs: RUN_TIMEOUT_MS });
      for (const pattern of prints) expect(stdout).toMatch(pattern);
    },
    RUN_TIMEOUT_MS,
  );

  it(
    "print their usage for invalid arguments, and do nothing else",
    async () => {
      const cwd = mkdtempSync(join(tmpdir(), "whetstone-usage-"));
      onTestFinished(() => rm(cwd, { recursive: true }));
      for (const [name, ...args] of INVALID) {
        const program = await builtProgram(pathToFileURL(pathOf(name)));
        const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], {
          cwd,
          encoding: "utf8",
          timeout: RUN_TIMEOUT_MS,
        });
        expect({ status, stdout, stderr }).toEqual({
          status: 2,
          stdout: "",
          stderr: expect.stringMatching(`^Usage: ${name}\\.ts \\[.*\n$`),
        });
      }
      expect(await readdir(cwd)).toEqual([]);
    },
    RUN_TIMEOUT_MS,
  );

  it.skipIf(process.env["EXAMPLES"] !== "all" || !isRun("external-agent"))(
    "external-agent raises the mean reward of 64 sessions over ten steps",
    async () => {
      const stdout = await runProgram(pathOf("external-agent"), { cwd: ROOT, timeoutMs: RUN_TIMEOUT_MS });
      const rewards = [...stdout.matchAll(/reward (0\.\d+) of 64 sessions/gu)].map(([, reward]) => Number(reward));
      expect(rewards).toHaveLength(10);
      const mean = (part: readonly number[]) => part.reduce((sum, reward) => sum + reward, 0) / part.length;
      expect(mean(rewards.slice(-3)) - mean(rewards.slice(0, 3))).toBeGreaterThan(0.1);
    },
    RUN_TIMEOUT_MS,
  );

  it(
    "read-a-sweep.ipynb has the outputs of its cells, up to the numbers of the training",
    async () => {
      const path = join(ROOT, "examples/read-a-sweep.ipynb");
      const cells = (await readNotebook(path)).cells.filter((cell) => cell.cell_type === "code");
      const outputs = await runNotebook(path, { cwd: NOTEBOOK_DIRECTORY, timeoutMs: RUN_TIMEOUT_MS });
      expect(outputs.map((found) => found.map(withoutNumbers))).toEqual(cells.map((cell) => cell.outputs?.map(withoutNumbers)));
      expect(cells.map((cell) => cell.execution_count)).toEqual(cells.map((_, index) => index + 1));
    },
    RUN_TIMEOUT_MS,
  );
});

/** Reduces an output to its texts without numbers; of an SVG, to its labels. */
function withoutNumbers(output: Output): unknown {
  const masked = (text: string) => text.replaceAll(/-?\d[\d.e+-]*/gu, "#").replaceAll(/[ -]+/gu, " ");
  if (output.output_type === "stream") return masked(output.text.join(""));
  return Object.entries(output.data).map(([type, content]) => {
    const text = [content].flat().join("");
    const labels = type === "image/svg+xml" ? [...text.matchAll(/<text [^>]*>([^<]*)</gu)].map((match) => match[1] ?? "") : [text];
    return [type, labels.map(masked).filter((label) => label !== "#")];
  });
}
