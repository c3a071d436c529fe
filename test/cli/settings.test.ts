/** Settings of runs from flags, `--set` and configuration files. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createProgram } from "../../src/cli/program.ts";
import { FLAGS, settingsOfCommand } from "../../src/cli/settings/options.ts";
import { parseSetting, readSettingsFile, withSettings } from "../../src/cli/settings/read.ts";
import { readSweep, sweepFile } from "../../src/cli/settings/sweep-file.ts";
import { editorSchema, SETTINGS, trainConfig, unknownSetting } from "../../src/cli/settings/schema.ts";
import { checkRlOptions, type TrainRlOptions } from "../../src/training/train/options.ts";
import { environment } from "../train/support.ts";
import { temporaryDirectory } from "../service/support.ts";

/** Settings that `whetstone train` reads from a command line. */
async function settings(...args: string[]): Promise<unknown> {
  let found: unknown;
  const program = createProgram("0");
  const train = program.commands.find((command) => command.name() === "train")!;
  train.exitOverride().configureOutput({ writeErr: () => undefined });
  train.action(async (_file, _options, command) => void (found = await settingsOfCommand(command)));
  await program.parseAsync(["train", "environment.ts", "--model", "demo/a", ...args], { from: "user" });
  return found;
}

async function file(contents: unknown): Promise<string> {
  const path = join(await temporaryDirectory(), "run.json");
  await writeFile(path, typeof contents === "string" ? contents : JSON.stringify(contents));
  return path;
}

describe("--set", () => {
  it.each([
    ["train.klPenaltyCoef=0.02", 0.02],
    ["train.learningRate=1e-4", 1e-4],
    ["train.lossFn=ppo", "ppo"],
    ['train.lossFn="ppo"', "ppo"],
    ["train.maskTruncated=true", true],
    ["train.epsilon=null", null],
    ["curriculum.metric=1", "1"],
    ["keepCheckpoints.pinned=[1,2]", [1, 2]],
    ['evaluation={"every":5}', { every: 5 }],
    ["curriculum={}", {}],
    ["chatTemplateKwargs.preserve_thinking=true", true],
    ["base=hf:owner/name@a=b", "hf:owner/name@a=b"],
  ])("parses %s by the type of the setting", (text, value) => {
    expect(parseSetting(text)).toEqual({ [text.slice(0, text.indexOf("="))]: value });
  });

  it.each([
    ["train.klPenaltyCoef=high", 'Expected `train.klPenaltyCoef` to be a number of at least 0, got "high"'],
    ["train.klPenaltyCoef=-1", "Expected `train.klPenaltyCoef` to be a number of at least 0, got -1"],
    ["train.adamBeta1=1", "Expected `train.adamBeta1` to be a number of at least 0 and below 1, got 1"],
    ["groupSize=2.5", "Expected `groupSize` to be an integer of at least 2, got 2.5"],
    ["seed=x", 'Expected `seed` to be an integer, got "x"'],
    ["train.lossFn=grpo", 'Expected `train.lossFn` to be "cispo" or "ppo", got "grpo"'],
    ["train.compat=trl", 'Expected `train.compat` to be "art", got "trl"'],
    ["report=yes", 'Expected `report` to be true or false, got "yes"'],
    ["steps=", 'Expected `steps` to be an integer of at least 1, got ""'],
    ["keepCheckpoints.pinned=[1.5]", "Expected `keepCheckpoints.pinned` to be a list, each an integer of at least 0, got [1.5]"],
    ['evaluation={"every":0}', "Expected `evaluation.every` to be an integer of at least 1, got 0"],
    ['evaluation={"evry":1}', "Unknown setting `evaluation.evry`; did you mean `evaluation.every`?"],
    ["train.klPenalyCoef=1", "Unknown setting `train.klPenalyCoef`; did you mean `train.klPenaltyCoef`?"],
    ["learning_rate=1", "Unknown setting `learning_rate`; did you mean `train.learningRate`?"],
    ["group-size=4", "Unknown setting `group-size`; did you mean `groupSize`?"],
    ["quantization=4", "Unknown setting `quantization`; docs/reference/configuration.md lists the settings"],
    ["train.learningRate", "Expected name=value, such as train.learningRate=1e-4"],
    ["train.packedSequenceLength=1", "Unknown setting `train.packedSequenceLength`"],
    ["chatTemplateKwargs.=1", "Unknown setting `chatTemplateKwargs.`"],
    ["__proto__.a=1", "Unknown setting `__proto__.a`"],
  ])("rejects %s with name, expectation and value", (text, message) => {
    expect(() => parseSetting(text)).toThrow(message);
  });

  it("suggests the settings of the same name in every object", () => {
    expect(unknownSetting("evry")).toBe("unknown setting `evry`; did you mean `evaluation.every` or `keepTrajectories.every`?");
  });
});

describe("settings of a run", () => {
  it("are read from the file, overridden by flags and --set, and merged by member", async () => {
    const config = await file({
      $schema: "./schemas/train.json",
      steps: 5,
      groupSize: 4,
      loraRank: 8,
      train: { learningRate: 1e-4, entropyCoef: 0.01 },
      evaluation: { every: 2 },
    });
    const flags = ["--learning-rate", "3e-4", "--group-size", "6", "--set", "evaluation.samples=4", "--set", "temperature=0.9"];
    expect(await settings("--config", config, ...flags)).toEqual({
      steps: 5,
      groupSize: 6,
      loraRank: 8,
      train: { learningRate: 3e-4, entropyCoef: 0.01 },
      evaluation: { every: 2, samples: 4 },
      temperature: 0.9,
    });
  });

  it("are only the number of steps without any option: defaults of flags do not override a file", async () => {
    expect(await settings()).toEqual({ steps: 20 });
    expect(await settings("--config", await file({ scenariosPerStep: 3, replacements: 2 }))).toEqual({
      steps: 20,
      scenariosPerStep: 3,
      replacements: 2,
    });
  });

  it("have a flag or --set for each, not both", async () => {
    for (const name of Object.values(FLAGS)) expect(SETTINGS.has(name), name).toBe(true);
    await expect(settings("--learning-rate", "1e-4", "--set", "train.learningRate=1e-3")).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: "`--learning-rate` and `--set train.learningRate=…` give the same setting; expected one of them",
    });
  });

  it("start a curriculum with or without a number", async () => {
    expect(await settings("--curriculum")).toEqual({ steps: 20, curriculum: {} });
    expect(await settings("--curriculum", "3", "--set", "curriculum.target=0.4")).toEqual({
      steps: 20,
      curriculum: { pool: 3, target: 0.4 },
    });
  });

  it.each([
    [{ stepz: 3 }, "unknown setting `stepz`; did you mean `steps`?"],
    [{ train: { learning_rate: 1 } }, "unknown setting `train.learning_rate`; did you mean `train.learningRate`?"],
    [{ train: { klPenaltyCoef: "a" } }, 'expected `train.klPenaltyCoef` to be a number of at least 0, got "a"'],
    [{ train: [] }, "expected `train` to be an object, got []"],
    [{ keepCheckpoints: { best: {} } }, "expected `keepCheckpoints.recent` to be an integer of at least 1, got nothing"],
    ['{"__proto__": {"steps": 3}}', "unknown setting `__proto__`"],
  ])("reject the file %j", async (contents, message) => {
    const path = await file(contents);
    await expect(readSettingsFile(path)).rejects.toMatchObject({
      code: "E_CONFIG",
      param: "--config",
      message: expect.stringContaining(`${path}: ${message}`) as string,
    });
    expect(({} as Record<string, unknown>)["steps"]).toBeUndefined();
  });

  it("reject a file that is missing, no JSON or no object", async () => {
    await expect(readSettingsFile("/nowhere/run.json")).rejects.toThrow("Expected /nowhere/run.json to be a JSON file: ENOENT");
    await expect(readSettingsFile(await file("{steps: 1}"))).rejects.toThrow(/to be a JSON file: .*JSON/u);
    await expect(readSettingsFile(await file([1]))).rejects.toThrow("to contain a JSON object");
  });

  it("have the bounds of `trainRl`: the smallest valid number passes its checks, a smaller one does not", () => {
    const options = { model: {}, environment, runDir: "run", steps: 1, scenariosPerStep: 1 } as unknown as TrainRlOptions<unknown>;
    // Settings of jobs and of models are checked by the service, lists and nested objects by other functions.
    const checked = [...SETTINGS].filter(
      ([name, { schema }]) => schema.type === "integer" && !/^(train\.|loraRank|keepCheckpoints\.(pinned|best))/u.test(name),
    );
    expect(checked.length).toBeGreaterThan(15);
    for (const [name, { schema }] of checked) {
      const withValue = (value: number) => {
        const [head = "", member] = name.split(".");
        return { ...options, [head]: member === undefined ? value : { pool: 1, recent: 1, [member]: value } };
      };
      const least = schema.minimum as number;
      expect(() => checkRlOptions(withValue(least) as TrainRlOptions<unknown>), name).not.toThrow();
      expect(() => checkRlOptions(withValue(least - 1) as TrainRlOptions<unknown>), name).toThrow();
    }
  });
});

describe("the file of a sweep", () => {
  it("has a grid or a list of settings by name, and seeds", async () => {
    const grid = { "train.learningRate": [1e-4, 3e-4], loraRank: [4] };
    expect(await readSweep(await file({ $schema: "sweep.json", grid, seeds: [1, 2] }))).toEqual({ grid, isList: false, seeds: [1, 2] });
    const list = [{ groupSize: 4 }, { groupSize: 8, "train.lossFn": "ppo" }];
    expect(await readSweep(await file({ list }))).toEqual({ grid: { settings: list }, isList: true, seeds: [0] });
  });

  it.each([
    [{}, "expected either `grid` or `list`"],
    [{ grid: {}, list: [] }, "expected either `grid` or `list`"],
    [{ grid: { "train.learnRate": [1] } }, "unknown setting `train.learnRate`; did you mean `train.learningRate`?"],
    [{ grid: { groupSize: [4, 1] } }, "expected `groupSize` to be an integer of at least 2, got 1"],
    [{ list: [{ groupSize: "a" }] }, 'expected `groupSize` to be an integer of at least 2, got "a"'],
    [{ grid: { seed: [1] } }, "expected the seeds in `seeds`, got the setting `seed`"],
    [{ grid: { groupSize: 4 } }, "`grid.groupSize`: Invalid input: expected array, received number"],
    [{ grid: { groupSize: [4] }, seeds: [0.5] }, "`seeds.0`: Invalid input: expected int, received number"],
    [{ grid: { groupSize: [4] }, steps: 3 }, "expected only `grid` or `list`, and `seeds`; got `steps`"],
  ])("rejects %j", async (contents, message) => {
    const path = await file(contents);
    await expect(readSweep(path)).rejects.toMatchObject({ code: "E_CONFIG", message: `${path}: ${message}` });
  });

  it("is combined with the settings of the command line by member", () => {
    const settings = { steps: 2, train: { learningRate: 1e-4, entropyCoef: 0.01 } };
    expect(withSettings(settings, { "train.learningRate": 3e-4, "evaluation.every": 1 })).toEqual({
      steps: 2,
      train: { learningRate: 3e-4, entropyCoef: 0.01 },
      evaluation: { every: 1 },
    });
    expect(settings.train.learningRate).toBe(1e-4);
    expect(() => withSettings(settings, { "keepCheckpoints.best.metric": "reward/mean" })).toThrow(
      "Expected `keepCheckpoints.recent` to be an integer of at least 1, got nothing",
    );
  });
});

describe("the JSON schema for editors", () => {
  it("has every setting with a description", () => {
    for (const [name, { description }] of SETTINGS) expect(description, name).not.toBe("");
  });

  it.each([
    ["train", trainConfig],
    ["sweep", sweepFile],
  ])("is the file schemas/%s.json of the package", async (name, schema) => {
    await expect(`${JSON.stringify(editorSchema(schema), null, 2)}\n`).toMatchFileSnapshot(`../../schemas/${name}.json`);
  });
});
