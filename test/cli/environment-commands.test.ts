import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { startService } from "../../src/service/index.ts";
import { runHere } from "./run-here.ts";

const ROOT = resolve(import.meta.dirname, "../..");
let home: string;
// The commands find the service by its data directory. Without one, each would start an engine of its own.
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "whetstone-cli-"));
  const service = await startService({ dataDir: home });
  return async () => {
    await service.close();
    await rm(home, { recursive: true, force: true });
  };
});
beforeEach(() => {
  vi.stubEnv("WHETSTONE_HOME", home);
  vi.stubEnv("WHETSTONE_PROGRESS", "1");
});

const ENVIRONMENT = "recipes/arithmetic/environment.ts";

describe("commands for an environment file", () => {
  it("validate reports whether correct answers are rewarded, also by its exit code", async () => {
    expect(await runHere("validate", ENVIRONMENT)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("arithmetic: valid") as string,
    });
    const broken = join(ROOT, "runs", `broken-${process.pid}.ts`);
    onTestFinished(() => rm(broken, { force: true }));
    await mkdir(join(ROOT, "runs"), { recursive: true });
    await writeFile(
      broken,
      `import { defineEnvironment } from "whetstone";
export default defineEnvironment({ name: "broken", scenarios: { train: [{ id: "a" }], eval: [] }, rollout: () => Promise.reject(new Error("none")),
  rewards: [{ name: "wrong", score: ({ text }) => (text === "right" ? 0 : 1) }], gold: () => "right" });
`,
    );
    const found = await runHere("validate", broken);
    expect(found).toMatchObject({ code: 1, stdout: expect.stringContaining("broken: not valid") as string });
    expect(found.stdout).toContain("fatal:");
  });

  it("train runs steps and resumes, eval evaluates a checkpoint and creates no model", async () => {
    const settings = ["--model", "cli/sums", "--scenarios", "4", "--group-size", "4", "--run-dir", join(home, "run"), "--tracker", "csv"];
    const kwargs = ["--chat-template-kwargs", '{"keep_thinking":true}'];
    const first = await runHere("train", ENVIRONMENT, "--steps", "1", ...settings, ...kwargs);
    expect(first).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^completed after 1 step; checkpoint 1 of cli\/sums; report in .*\n$/) as string,
    });
    expect(first.stderr).toMatch(/: 1 of 1 steps, reward \d/);
    expect(first.stderr).toContain(": learning rate 0.0003, default for reinforcement learning of all 0.8 M parameters\n");
    expect(first.stderr).toMatch(/: completed after 1 of 1 steps in /);
    const second = await runHere("train", ENVIRONMENT, "--steps", "2", ...settings, ...kwargs);
    expect(await readFile(join(home, "run", "events.jsonl"), "utf8")).toContain("unused-template-kwargs");
    expect(second.stderr.match(/resumes after 1 of 2 steps, from checkpoint 1/g)).toHaveLength(1);
    expect(second.stdout).toMatch(/completed after 2 steps; checkpoint 2 of cli\/sums; report in .*report\.html/);
    expect((await readFile(join(home, "run", "metrics.csv"), "utf8")).trimEnd().split("\n")).toHaveLength(3);
    const measured = await runHere("eval", ENVIRONMENT, "--model", "cli/sums:1", "--json", ...kwargs);
    expect(measured.stderr).toMatch(/^evaluation of local\/cli\/sums:step1 on arithmetic: (\d+)\/\1 rollouts, reward/m);
    expect(JSON.parse(measured.stdout)).toMatchObject({ environment: "arithmetic", policy: "local/cli/sums:step1", samples: 1 });
    const missing = await runHere("eval", ENVIRONMENT, "--model", "cli/none");
    expect(missing).toMatchObject({ code: 1, stderr: expect.stringContaining('The model "cli/none" does not exist') as string });
    expect(missing.stderr).toContain("which has cli/sums");
  });

  it("train replaces groups with equal rewards and samples by pass rate", async () => {
    const run = join(home, "selected");
    const settings = ["--model", "cli/selected", "--scenarios", "2", "--group-size", "2", "--steps", "2", "--run-dir", run, "--json"];
    const file = join(home, "run.json");
    await writeFile(file, JSON.stringify({ loraRank: 4, train: { entropyCoef: 0.01 }, temperature: 0.9 }));
    settings.push("--config", file, "--set", "train.klPenaltyCoef=0.02", "--set", "temperature=0.8");
    const { code, stdout, stderr } = await runHere(
      "train",
      ENVIRONMENT,
      ...settings,
      "--refill",
      "6",
      "--curriculum",
      "3",
      "--replacements",
      "1",
    );
    expect(code, stderr).toBe(0);
    expect(stderr).toContain(`trains cli/selected in ${run}\n`);
    const events = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const batches = events.filter(({ type }) => type === "batch-end");
    expect(batches).toHaveLength(2);
    for (const batch of batches) {
      expect(batch["sampled"]).toBeLessThanOrEqual(6);
      expect(batch["pass_rates"]).toHaveLength(batch["sampled"] as number);
    }
    // Every group with equal rewards is discarded; without `refill`, none is.
    const discarded = batches.map((batch) => (batch["discarded"] as { constant?: number }).constant ?? 0);
    expect(batches.map((batch, step) => Number(batch["kept"]) + Number(discarded[step]))).toEqual(batches.map(({ sampled }) => sampled));
    const config: unknown = JSON.parse(await readFile(join(run, "config.json"), "utf8"));
    expect(config).toMatchObject({ refill: { max_groups: 6 }, curriculum: { pool: 3 }, replacements: 1, temperature: 0.8 });
    expect(config).toMatchObject({ train: { entropy_coef: 0.01, kl_penalty_coef: 0.02 } });
    const step = events.find(({ type }) => type === "gradient-step");
    expect(step?.["metrics"]).toHaveProperty("kl_policy_ref");
    expect(JSON.parse((await runHere("models", "show", "cli/selected", "--json")).stdout)).toMatchObject({ lora: { rank: 4 } });
  });

  it("sweep trains a model per combination and seed, compares them, resumes, and reports failed runs", async () => {
    const [dir, file] = [join(home, "sweep"), join(home, "sweep.json")];
    await writeFile(file, JSON.stringify({ grid: { "train.learningRate": [1e-4, 1e-3] }, seeds: [3] }));
    const size = ["--steps", "1", "--scenarios", "2", "--group-size", "2", "--set", "report=false"];
    const sweep = (...args: string[]) => runHere("sweep", ENVIRONMENT, "--model", "cli/rates", "--dir", dir, ...size, ...args);
    const first = await sweep("--sweep", file);
    expect(first.code, first.stderr).toBe(0);
    const [heading, ...rows] = first.stdout.split("\n");
    expect(heading).toMatch(/^train\.learningRate +seed +state +seconds +steps +checkpoint +reward\/mean$/u);
    expect(rows[0]).toMatch(/^ +0\.0001 +3 +completed +\S+ +1 +1 +\S+$/u);
    expect(first.stdout).toMatch(/^run +reward\/mean +difference to train\.learningRate=0\.0001 +seeds\ntrain\.learningRate=0\.0001 /mu);
    const cells = ["train.learningRate-0.0001_seed-3", "train.learningRate-0.001_seed-3"];
    const config = JSON.parse(await readFile(join(dir, cells[1]!, "config.json"), "utf8")) as Record<string, unknown>;
    expect(config).toMatchObject({ seed: 3, group_size: 2, train: { learning_rate: 1e-3 }, model: `local/cli/rates-${cells[1]}` });
    // Again, with a third value: only its run is new.
    await writeFile(file, JSON.stringify({ grid: { "train.learningRate": [1e-4, 1e-3, 1e-2] }, seeds: [3] }));
    const again = await sweep("--sweep", file, "--json");
    const found = JSON.parse(again.stdout) as { cells: { name: string; attempts: number }[]; comparison: { runs: object[] } };
    expect(found.cells.map(({ name, attempts }) => [name, attempts])).toEqual(
      [...cells, "train.learningRate-0.01_seed-3"].map((name) => [name, 1]),
    );
    expect(again.stderr.match(/: running$/gmu)).toHaveLength(1);
    expect(found.comparison.runs).toHaveLength(3);
    const other = await sweep("--sweep", file, "--set", "temperature=0.5");
    expect([other.code, other.stderr]).toEqual([
      1,
      `error: ${dir} holds a sweep with other settings: settings.temperature none → 0.5. Use the same settings, or another --dir (E_CONFIG)\n`,
    ]);
    await writeFile(file, JSON.stringify({ list: [{ "evaluation.samples": 1 }, { "refill.maxGroups": 1 }] }));
    const failing = await runHere("sweep", ENVIRONMENT, "--model", "cli/list", "--dir", join(home, "list"), ...size, "--sweep", file);
    expect(failing.code).toBe(1);
    expect(failing.stdout).toMatch(/completed .*\n.*failed .*`refill\.maxGroups` to be an integer of at least `scenariosPerStep` \(2\)/u);
    expect(failing.stdout).toMatch(/^1 run failed; start the same command again to repeat them$/mu);
  });

  it.each([
    [["train", ENVIRONMENT], 2, "--model"],
    [["train", ENVIRONMENT, "--model", "a/b/c"], 2, "project/name"],
    [["train", ENVIRONMENT, "--model", "a", "--chat-template-kwargs", "[1]"], 2, "a JSON object, such as"],
    [["eval", ENVIRONMENT, "--model", "a", "--chat-template-kwargs", "{"], 2, "a JSON object, such as"],
    [["train", ENVIRONMENT, "--model", "a", "--group-size", "1"], 2, "a whole number from 2"],
    [["train", ENVIRONMENT, "--model", "a", "--tracker", "wandb"], 2, "one of csv, tensorboard, mlflow, trackio"],
    [["train", ENVIRONMENT, "--model", "a", "--tracker", "mlflow=nowhere"], 1, "an http or https address"],
    [["train", ENVIRONMENT, "--model", "a", "--set", "train.klPenalyCoef=1"], 2, "did you mean `train.klPenaltyCoef`?"],
    [["train", ENVIRONMENT, "--model", "a", "--config", "nothing.json"], 1, "Expected nothing.json to be a JSON file"],
    [["sweep", ENVIRONMENT, "--model", "a"], 2, "--sweep <file>"],
    [["sweep", ENVIRONMENT, "--model", "a", "--sweep", "nothing.json"], 1, "Expected nothing.json to be a JSON file"],
    [
      ["sweep", ENVIRONMENT, "--model", "a", "--sweep", "nothing.json", "--set", "seed=1"],
      1,
      "the seeds of a sweep in `seeds` of its file",
    ],
    [["train", ENVIRONMENT, "--model", "a", "--refill", "4"], 1, "`refill.maxGroups` to be an integer of at least `scenariosPerStep` (16)"],
    [["train", ENVIRONMENT, "--model", "a", "--curriculum"], 1, "trains default/a in runs/arithmetic-a\n"],
    [["train", ENVIRONMENT, "--model", "a", "--curriculum"], 1, "`curriculum.pool` to be an integer of at least 1"],
    [["eval", "nothing.ts", "--model", "a"], 1, "found no such file"],
    [["eval", ENVIRONMENT], 2, "expected --model <model[:step]>, or --base <model>"],
    [["eval", ENVIRONMENT, "--model", "a", "--base", "whetstone-tiny"], 2, "cannot be used with"],
    [["validate", "recipes/arithmetic/config.ts"], 1, "export default defineEnvironment"],
  ] as const)("rejects %j", async (args, code, text) => {
    expect(await runHere(...args)).toMatchObject({ code, stderr: expect.stringContaining(text) as string });
  });

  it("report a tool that fails every time: validate by playing the right answer, eval with its most frequent error", async () => {
    const file = join(ROOT, "runs", `tools-${process.pid}.ts`);
    onTestFinished(() => rm(file, { force: true }));
    await mkdir(join(ROOT, "runs"), { recursive: true });
    await writeFile(
      file,
      `import { defineEnvironment, trajectory } from "whetstone";
import { defineTool, runAgent } from "whetstone/agent";
import { createScriptedPolicy } from "whetstone/testing";
import { z } from "zod";
const lookup = defineTool({ name: "lookup", schema: z.object({}), run: () => { throw new Error("no such table: words"); } });
const call = { role: "assistant", content: "", tool_calls: [{ id: "a", type: "function", function: { name: "lookup", arguments: "{}" } }] };
export default defineEnvironment({ name: "tools", scenarios: { train: [{ id: "t" }], eval: [{ id: "a" }, { id: "b" }, { id: "c" }, { id: "d" }] },
  async rollout(_, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: "a" }], tools: [lookup] });
    const isModel = policy.id === "whetstone-tiny";
    await runAgent(t, isModel ? createScriptedPolicy([{ calls: [["lookup", "{}"]] }, { text: "done" }]) : policy, sampling);
    return t;
  },
  rewards: [{ name: "said", score: ({ text }) => Number(text === "done") }], gold: () => [call, { role: "assistant", content: "done" }] });
`,
    );
    const validated = await runHere("validate", file);
    expect([validated.code, validated.stdout]).toEqual([
      1,
      expect.stringMatching(
        /fatal: A tool fails on a call of the right answer: `lookup`: no such table: words.*\(5; t, a, b, c, d\)\n.*said: 1\.0000 for right answers\ntools: not valid/su,
      ),
    ]);
    const { stdout, stderr } = await runHere("eval", file, "--base", "whetstone-tiny");
    expect(stdout, stderr).toMatch(/^ {2}tool_calls +1\.0000$/mu);
    expect(stdout).toContain("warning tool-errors: 4 of 4 calls of the tool `lookup` failed, most often with: no such table: words.");
    expect(stdout).toMatch(
      /sample of a: reward 1\.0000 \(said 1\.0000\)\n {2}user +a\n {2}assistant +lookup\(\{\}\)\n {2}tool +Error: no such table: words\n {2}assistant +done\nsample of b/u,
    );
  });

  it("name file and line of an error in the environment, without frames of loaders", async () => {
    await mkdir(join(ROOT, "runs"), { recursive: true });
    const write = async (name: string, text: string) => {
      const file = join(ROOT, "runs", `${name}-${process.pid}.ts`);
      onTestFinished(() => rm(file, { force: true }));
      await writeFile(file, text);
      return file;
    };
    const throws = await write("throws", `const table: string[] = [];\n\nexport default table[0]!.length;\n`);
    const thrown = await runHere("validate", throws);
    expect([thrown.code, thrown.stderr]).toEqual([
      1,
      `error: Expected ${throws} to load, got TypeError at runs/throws-${process.pid}.ts:3: Cannot read properties of undefined (reading 'length'). Correct the file (E_CONFIG)\n`,
    ]);
    const syntax = await write("syntax", "export default {\n  a: 1\n  b: 2\n};\n");
    expect((await runHere("validate", syntax)).stderr).toMatch(
      /^error: Expected .* to load, got [^]*syntax-\d+\.ts:3:\d[^]*Correct the file \(E_CONFIG\)\n$/u,
    );
    const fails = await write(
      "fails",
      `import { defineEnvironment } from "whetstone";
export default defineEnvironment({ name: "fails", scenarios: { train: ["a"], eval: ["a"] },
  rollout: () => {
    throw new RangeError("no such table");
  }, rewards: [] });
`,
    );
    const failed = await runHere("eval", fails, "--base", "whetstone-tiny");
    expect([failed.code, failed.stderr]).toEqual([
      1,
      expect.stringContaining(`RangeError: no such table (runs/fails-${process.pid}.ts:4)`),
    ]);
  });

  it("eval of a single scenario prints the mean without an interval", async () => {
    const single = join(ROOT, "runs", `single-${process.pid}.ts`);
    onTestFinished(() => rm(single, { force: true }));
    await mkdir(join(ROOT, "runs"), { recursive: true });
    await writeFile(
      single,
      `import { defineEnvironment, trajectory } from "whetstone";
export default defineEnvironment({ name: "single", scenarios: { train: ["a"], eval: ["a"] },
  rollout: () => trajectory({ messages: [{ role: "user", content: "a" }] }), rewards: [{ name: "half", score: () => 0.5 }] });
`,
    );
    const { stdout, stderr } = await runHere("eval", single, "--base", "whetstone-tiny");
    expect(stdout.split("\n").slice(0, 3), stderr).toEqual([
      "single by whetstone-tiny: 1 scenario, 1 rollout each",
      "reward    0.5000",
      "pass@1    0.0000",
    ]);
    expect(stdout).toContain("half      0.5000\n");
  });
});
