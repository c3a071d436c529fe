import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { connect, type Service } from "../../src/index.ts";
import { startTestService, type TestService } from "../../src/testing/index.ts";
import { openRun } from "../../src/lab/experiment/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { environment, script, start } from "../train/support.ts";
import { runHere } from "./run-here.ts";

let running: TestService;
let service: Service;
beforeAll(async () => {
  running = await startTestService({ engine: { script } });
  service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
});
afterAll(async () => {
  await service.close();
  await running.close({ graceMs: 0 });
});
beforeEach(() => {
  vi.stubEnv("WHETSTONE_BASE_URL", running.url);
  vi.stubEnv("WHETSTONE_API_KEY", running.apiKey);
  return () => vi.unstubAllEnvs();
});

describe("whetstone sft and whetstone dataset upload", () => {
  it("train on a file, resume without a second upload, and reject other content in the same run directory", async () => {
    const folder = await temporaryDirectory();
    const file = join(folder, "examples.jsonl");
    const line = (text: string) =>
      `${JSON.stringify({
        messages: [
          { role: "user", content: text },
          { role: "assistant", content: text },
        ],
      })}\n`;
    await writeFile(file, ["ab", "bc", "cd", "de", "ef", "fg"].map(line).join(""));
    const base = (await service.models.list())[0]?.id ?? "";
    const settings = ["--model", "cli/copy", "--base", base, "--run-dir", join(folder, "run")];
    const options = [
      "--epochs",
      "2",
      "--batch-size",
      "2",
      "--learning-rate",
      "1e-3",
      "--schedule",
      "cosine",
      "--warmup-ratio",
      "0.1",
      "--validation",
      "0.4",
    ];
    const first = await runHere("sft", file, ...settings, ...options);
    expect(first).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /^completed after \d+ gradient steps; checkpoint 1 of cli\/copy, loss \d.*, validation loss \d/u,
      ) as string,
    });
    const { config, state } = await openRun(join(folder, "run"));
    expect(config).toMatchObject({
      kind: "sft",
      data: [expect.stringMatching(/^artifact:\/\/\/.*\/datasets\/sft-copy-[0-9a-f]{12}:v0$/u)],
      train: {
        epochs: 2,
        batch_size: 2,
        learning_rate: 0.001,
        learning_rate_schedule: "cosine",
        warmup_ratio: 0.1,
        validation_data_url: expect.stringContaining("sft-copy-validation-") as string,
      },
    });
    expect(state).toBe("completed");
    const again = await runHere("sft", file, ...settings, ...options, "--json");
    const events = again.stdout
      .trimEnd()
      .split("\n")
      .map((text) => JSON.parse(text) as { type: string });
    expect(events.filter(({ type }) => type === "run-end")).toHaveLength(2);
    expect(events.filter(({ type }) => type === "step-end")).toHaveLength(1);
    await writeFile(file, line("zz"));
    expect(await runHere("sft", file, ...settings)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("holds another run: `data` was") as string,
    });
    const uploaded = await runHere("dataset", "upload", file, "--name", "copies", "--project", "cli");
    expect(uploaded.stdout).toMatch(/^artifact:\/\/\/.*\/cli\/copies:v0\n$/u);
  });

  it.each([
    [["sft", "x.jsonl"], 2, "--model"],
    [["sft", "x.jsonl", "--model", "a", "--schedule", "step"], 2, "constant, linear, cosine"],
    [["sft", "x.jsonl", "--model", "a", "--validation", "1.5"], 2, "above 0 and below 1"],
    [["sft", "x.jsonl", "--model", "a"], 1, "no such file"],
  ] as const)("rejects %j", async (args, code, text) => {
    expect(await runHere(...args)).toMatchObject({ code, stderr: expect.stringContaining(text) as string });
  });
});

describe("whetstone prefer", () => {
  const pair = (text: string) =>
    `${JSON.stringify({
      prompt: [{ role: "user", content: text }],
      chosen: [{ role: "assistant", content: text }],
      rejected: [{ role: "assistant", content: `${text}${text}` }],
    })}\n`;

  it("trains on pairs, shows the kind of the job, resumes without a second upload, and rejects other content", async () => {
    const folder = await temporaryDirectory();
    const [file, held] = [join(folder, "pairs.jsonl"), join(folder, "held.jsonl")];
    await writeFile(file, ["ab", "bc", "cd", "de"].map(pair).join(""));
    await writeFile(held, ["ef", "fg"].map(pair).join(""));
    const base = (await service.models.list())[0]?.id ?? "";
    const settings = ["--model", "cli/chooser", "--base", base, "--run-dir", join(folder, "run")];
    const options = ["--epochs", "2", "--batch-size", "2", "--beta", "0.3", "--label-smoothing", "0.1", "--length-normalization"];
    const first = await runHere("prefer", file, ...settings, ...options, "--reference", "start", "--validation", held);
    expect(first).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /^completed after 4 gradient steps; checkpoint 1 of cli\/chooser, loss \d.*, accuracy [01].*, margin .*, validation loss \d.*, validation accuracy \d/u,
      ) as string,
    });
    const { config } = await openRun(join(folder, "run"));
    expect(config).toMatchObject({
      kind: "preference",
      data: [expect.stringMatching(/\/datasets\/prefer-chooser-[0-9a-f]{12}:v0$/u)],
      train: {
        epochs: 2,
        batch_size: 2,
        beta: 0.3,
        label_smoothing: 0.1,
        length_normalization: true,
        reference_step: "start",
        learning_rate: 1e-5,
        validation_data_url: expect.stringContaining("prefer-chooser-validation-") as string,
      },
    });
    const again = await runHere("prefer", file, ...settings, ...options, "--reference", "start", "--validation", held, "--json");
    expect(again.stdout.split("\n").filter((line) => line.includes('"type":"step-end"'))).toHaveLength(1);
    expect((await runHere("jobs", "list", "--model", "cli/chooser")).stdout).toMatch(/preference +cli\/chooser +succeeded/u);
    await writeFile(file, pair("zz"));
    expect(await runHere("prefer", file, ...settings)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("holds another run: `data` was") as string,
    });
  });

  it("holds out a fraction, and compares with a checkpoint by its step", async () => {
    const folder = await temporaryDirectory();
    const file = join(folder, "pairs.jsonl");
    await writeFile(file, ["ab", "bc", "cd", "de"].map(pair).join(""));
    const base = (await service.models.list())[0]?.id ?? "";
    const args = [
      file,
      "--model",
      "cli/split",
      "--base",
      base,
      "--reference",
      "0",
      "--validation",
      "0.5",
      "--run-dir",
      join(folder, "run"),
    ];
    expect((await runHere("prefer", ...args)).stdout).toContain("validation accuracy");
    expect((await openRun(join(folder, "run"))).config).toMatchObject({ train: { validation_split: 0.5, reference_step: 0 } });
  });

  it.each([
    [["prefer", "x.jsonl"], 2, "--model"],
    [["prefer", "x.jsonl", "--model", "a", "--reference", "end"], 2, "base, start or the step of a checkpoint"],
    [["prefer", "x.jsonl", "--model", "a", "--beta", "-1"], 2, "at least 0"],
    [["prefer", "x.jsonl", "--model", "a"], 1, "no such file"],
  ] as const)("rejects %j", async (args, code, text) => {
    expect(await runHere(...args)).toMatchObject({ code, stderr: expect.stringContaining(text) as string });
  });
});

describe("whetstone eval with several checkpoints", () => {
  it("saves the rollouts, resumes, and compares with the first checkpoint", async () => {
    const folder = await temporaryDirectory();
    const base = (await service.models.list())[0]?.id ?? "";
    const model = await service.models.create({ project: "cli", name: "tokens", baseModel: base });
    await start({ model, runDir: join(folder, "run") }, { steps: 2 }).done;
    Reflect.set(globalThis, "evaluatedEnvironment", environment);
    const file = join(folder, "environment.mjs");
    await writeFile(file, "export default globalThis.evaluatedEnvironment;\n");
    const evaluated = (name: string) => ["eval", file, "--model", name, "--out", join(folder, "eval")];
    const args = evaluated("cli/tokens");
    const one = await runHere(...evaluated("cli/tokens:1"));
    expect(one.stdout).toMatch(
      /^tokens by .*\/cli\/tokens: 2 scenarios, 1 rollout each; saved in .*\ncheckpoint 1 {2}reward \d.* {2}pass@1 \d\.\d{4}\n$/u,
    );
    const all = await runHere(...args, "--checkpoints", "all");
    expect(all.stdout).toMatch(
      /checkpoint 0 .*\ncheckpoint 1 .*\ncheckpoint 2 .*\nrun +reward +difference to eval@0 +scenarios\neval@0 .*\neval@1 .*\neval@2 /u,
    );
    const json = JSON.parse((await runHere(...args, "--checkpoints", "2,0", "--json")).stdout) as object;
    expect(json).toMatchObject({
      environment: "tokens",
      samples: 1,
      checkpoints: [{ step: 2, scenarios: 2, exceptions: 0 }, { step: 0 }],
      comparison: { by: "scenario", baseline: "eval@2", differences: [{ name: "eval@0", count: 2 }] },
    });
    const run = await openRun(join(folder, "eval"));
    expect(run.series("rollout/trajectories", "eval")).toEqual([0, 1, 2].map((step) => [step, 2]));
    expect(await runHere(...args, "--checkpoints", "0,7")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("has no checkpoint 7; it has 0, 1, 2") as string,
    });
    expect(await runHere(...args, "--samples", "2", "--checkpoints", "0")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("`group_size` was 1 and is now 2") as string,
    });
    expect(await runHere(...args, "--checkpoints", "0,x")).toMatchObject({ code: 2 });
    expect(await runHere(...evaluated("cli/tokens:1"), "--checkpoints", "0")).toMatchObject({ code: 2 });
  });

  it("evaluates the model of the named entity, of several with the same project and name", async () => {
    const folder = await temporaryDirectory();
    const base = (await service.models.list())[0]?.id ?? "";
    for (const entity of ["first", "second"]) await service.models.create({ entity, project: "cli", name: "shared", baseModel: base });
    Reflect.set(globalThis, "evaluatedEnvironment", environment);
    const file = join(folder, "environment.mjs");
    await writeFile(file, "export default globalThis.evaluatedEnvironment;\n");
    const before = await service.models.listTrainable();
    for (const entity of ["first", "second"]) {
      const { code, stdout } = await runHere("eval", file, "--model", `${entity}/cli/shared:0`, "--json");
      expect([code, (JSON.parse(stdout) as { policy: string }).policy]).toEqual([0, `${entity}/cli/shared:step0`]);
    }
    const { stdout } = await runHere("eval", file, "--model", "cli/shared", "--json");
    expect((JSON.parse(stdout) as { policy: string }).policy).toMatch(/^(?:first|second)\/cli\/shared:step0$/u);
    expect(await service.models.listTrainable()).toEqual(before);
  });

  it("creates no model for the name of a base model", async () => {
    const bases = [{ id: "owner/tiny", directory: "", vocabularySize: 64, contextLength: 256, parameters: 1 }];
    const other = await startTestService({ engine: { bases } });
    try {
      vi.stubEnv("WHETSTONE_BASE_URL", other.url);
      vi.stubEnv("WHETSTONE_API_KEY", other.apiKey);
      const file = join(await temporaryDirectory(), "environment.mjs");
      Reflect.set(globalThis, "evaluatedEnvironment", environment);
      await writeFile(file, "export default globalThis.evaluatedEnvironment;\n");
      const { code, stderr } = await runHere("eval", file, "--model", "owner/tiny");
      expect([code, stderr]).toEqual([1, expect.stringContaining('The model "owner/tiny" does not exist')]);
      await using client = await connect({ baseUrl: other.url, apiKey: other.apiKey });
      expect(await client.models.listTrainable()).toEqual([]);
    } finally {
      await other.close({ graceMs: 0 });
    }
  });
});
