import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
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
afterEach(() => void vi.unstubAllEnvs());

const ENVIRONMENT = "recipes/arithmetic/environment.ts";

describe("commands for an environment file", () => {
  it("validate reports whether correct answers are rewarded, also by its exit code", { timeout: 60_000 }, async () => {
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

  it("train runs steps and resumes, eval evaluates a checkpoint and creates no model", { timeout: 90_000 }, async () => {
    const settings = ["--model", "cli/sums", "--scenarios", "4", "--group-size", "4", "--run-dir", join(home, "run"), "--tracker", "csv"];
    const kwargs = ["--chat-template-kwargs", '{"keep_thinking":true}'];
    const first = await runHere("train", ENVIRONMENT, "--steps", "1", ...settings, ...kwargs);
    expect(first).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^completed after 1 steps; checkpoint 1; report in .*\n$/) as string,
    });
    expect(first.stderr).toMatch(/: 1 of 1 steps, reward \d/);
    expect(first.stderr).toMatch(/: completed after 1 of 1 steps in /);
    const second = await runHere("train", ENVIRONMENT, "--steps", "2", ...settings, ...kwargs);
    expect(await readFile(join(home, "run", "events.jsonl"), "utf8")).toContain("unused-template-kwargs");
    expect(second.stderr.match(/resumes after 1 of 2 steps, from checkpoint 1/g)).toHaveLength(1);
    expect(second.stdout).toMatch(/completed after 2 steps; checkpoint 2; report in .*report\.html/);
    expect((await readFile(join(home, "run", "metrics.csv"), "utf8")).trimEnd().split("\n")).toHaveLength(3);
    const measured = await runHere("eval", ENVIRONMENT, "--model", "cli/sums", "--step", "1", "--json", ...kwargs);
    expect(measured.stderr).toMatch(/^evaluation of local\/cli\/sums:step1 on arithmetic: (\d+)\/\1 rollouts, reward/m);
    expect(JSON.parse(measured.stdout)).toMatchObject({ environment: "arithmetic", policy: "local/cli/sums:step1", samples: 1 });
    const missing = await runHere("eval", ENVIRONMENT, "--model", "cli/none");
    expect(missing).toMatchObject({ code: 1, stderr: expect.stringContaining('The model "cli/none" does not exist') as string });
    expect(missing.stderr).toContain("which has cli/sums");
  });

  it("train replaces groups with equal rewards and samples by pass rate", { timeout: 90_000 }, async () => {
    const run = join(home, "selected");
    const settings = ["--model", "cli/selected", "--scenarios", "2", "--group-size", "2", "--steps", "2", "--run-dir", run, "--json"];
    const { code, stdout } = await runHere("train", ENVIRONMENT, ...settings, "--refill", "6", "--curriculum", "3", "--replacements", "1");
    expect(code).toBe(0);
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
    expect(config).toMatchObject({ refill: { max_groups: 6 }, curriculum: { pool: 3 }, replacements: 1 });
  });

  it.each([
    [["train", ENVIRONMENT], 2, "--model"],
    [["train", ENVIRONMENT, "--model", "a/b/c"], 2, "project/name"],
    [["train", ENVIRONMENT, "--model", "a", "--chat-template-kwargs", "[1]"], 2, "a JSON object, such as"],
    [["eval", ENVIRONMENT, "--model", "a", "--chat-template-kwargs", "{"], 2, "a JSON object, such as"],
    [["train", ENVIRONMENT, "--model", "a", "--group-size", "1"], 2, "a whole number from 2"],
    [["train", ENVIRONMENT, "--model", "a", "--tracker", "wandb"], 2, "one of csv, tensorboard, mlflow, trackio"],
    [["train", ENVIRONMENT, "--model", "a", "--tracker", "mlflow=nowhere"], 1, "an http or https address"],
    [["train", ENVIRONMENT, "--model", "a", "--refill", "4"], 1, "`refill.maxGroups` to be an integer of at least `scenariosPerStep` (16)"],
    [["train", ENVIRONMENT, "--model", "a", "--curriculum"], 1, "`curriculum.pool` to be an integer of at least 1"],
    [["eval", "nothing.ts", "--model", "a"], 1, "found no such file"],
    [["eval", ENVIRONMENT], 2, "expected --model <project/name>, or --base <model>"],
    [["eval", ENVIRONMENT, "--model", "a", "--base", "whetstone-tiny"], 2, "cannot be used with"],
    [["validate", "recipes/arithmetic/config.ts"], 1, "export default defineEnvironment"],
  ] as const)("rejects %j", { timeout: 30_000 }, async (args, code, text) => {
    expect(await runHere(...args)).toMatchObject({ code, stderr: expect.stringContaining(text) as string });
  });

  it("eval of a single scenario prints the mean without an interval", { timeout: 60_000 }, async () => {
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
      "single by whetstone-tiny: 1 scenarios, 1 rollouts each",
      "reward    0.5000",
      "pass@1    0.0000",
    ]);
    expect(stdout).toContain("half      0.5000\n");
  });
});
