import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { readExamples } from "../../src/library/dataset/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { writeRunFiles } from "../experiment/run-files.ts";
import { runHere } from "./run-here.ts";

const rows = (...rewards: readonly number[]) =>
  rewards.map((reward, step) => ({ step, "reward/mean": reward, time: new Date(Date.UTC(2026, 0, 1, 0, step)).toISOString() }));
const ended = [{ type: "run-start" }, { type: "run-end", reason: "completed" }];

describe("whetstone runs", () => {
  it("lists the runs below a folder, newest first, also damaged ones", async () => {
    const folder = await temporaryDirectory();
    await writeRunFiles("old", { metrics: rows(0.25, 0.5), events: ended }, folder);
    await writeRunFiles("sweep/new", { metrics: rows(0.1, 0.2, 0.75), events: [{ type: "run-start" }] }, folder);
    const damaged = await writeRunFiles("damaged", {}, folder);
    await writeFile(join(damaged, "metrics.jsonl"), "{}\n");
    const { code, stdout } = await runHere("runs", folder);
    expect(code).toBe(0);
    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^run +kind +state +steps +reward +eval +age +size$/u);
    expect(lines[1]).toMatch(/^sweep\/new +rl +interrupted +3 +0\.7500 +\d+ d \d+ h +\d+ bytes$/u);
    expect(lines[2]).toMatch(/^old +rl +completed +2 +0\.5000 /u);
    expect(lines[3]).toMatch(/^damaged +unreadable /u);
    expect(lines[4]).toMatch(/^damaged: .*metrics\.jsonl:1: at `step`/u);
    const json = JSON.parse((await runHere("runs", folder, "--json")).stdout) as { runs: object[] };
    expect(json.runs[1]).toMatchObject({ run: "old", state: "completed", steps: 2, reward: 0.5, evaluationReward: null, error: null });
    const empty = join(folder, "empty");
    await mkdir(empty);
    expect((await runHere("runs", empty)).stdout).toBe(`no run below ${empty}\n`);
    const cwd = vi.spyOn(process, "cwd").mockReturnValue(empty);
    expect(await runHere("runs")).toEqual({ code: 0, stdout: `no run below ${empty}/runs\n`, stderr: "" });
    cwd.mockRestore();
    const missing = await runHere("runs", join(folder, "none"));
    expect([missing.code, missing.stderr]).toEqual([
      1,
      `error: Expected a folder with run directories at ${folder}/none, found none (E_NOT_FOUND)\n`,
    ]);
  });
});

describe("whetstone compare", () => {
  it("prints means and paired differences of runs and of evaluations of one run", async () => {
    const folder = await temporaryDirectory();
    const a = await writeRunFiles("a", { evaluations: { 0: { x: [0], y: [0], z: [1] }, 5: { x: [1], y: [0.5], z: [1] } } }, folder);
    const b = await writeRunFiles("b", { evaluations: { 5: { x: [1], y: [1], z: [1] } } }, folder);
    const svg = join(folder, "c.svg");
    const { code, stdout } = await runHere("compare", a, b, "--svg", svg);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^run +reward +difference to a +scenarios\na +0\.8333 \(0\.5000 to 1\.0000\) +3\nb +1\.0000 .* 0\.1667 \(0\.0000 to 0\.5000\) +3\n$/u,
    );
    expect(await readFile(svg, "utf8")).toContain("difference to a, paired by scenario");
    const same = JSON.parse((await runHere("compare", `${a}@0`, `${a}@5`, "--json", "--draws", "100", "--level", "0.9")).stdout) as object;
    expect(same).toMatchObject({
      metric: "reward",
      by: "scenario",
      differences: [{ name: "a@5", baseline: "a@0", mean: 0.5, level: 0.9, count: 3 }],
    });
    const all = await runHere("compare", join(folder, "*"), "--metric", "exact");
    expect(all.stdout.split("\n")[0]).toMatch(/^run +exact +difference to a +scenarios$/u);
  });

  it("names the options that select the common steps of runs of different length", async () => {
    const folder = await temporaryDirectory();
    const a = await writeRunFiles("a", { metrics: rows(0.5, 0.5, 0.5) }, folder);
    const b = await writeRunFiles("b", { metrics: rows(0.25, 0.75) }, folder);
    const { code, stderr } = await runHere("compare", a, b);
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining("`b` lacks 1 of them (2). Compare the common steps: `--from 0`, `--to 1` (E_CONFIG)"),
    ]);
    expect((await runHere("compare", a, b, "--from", "0", "--to", "1")).code).toBe(0);
    const c = await writeRunFiles("c", { evaluations: { 1: { x: [0] } } }, folder);
    const d = await writeRunFiles("d", { evaluations: { 1: { y: [0] } } }, folder);
    expect((await runHere("compare", c, d)).stderr).toContain("or compare `--by step`");
  });

  it("names the scenarios that a run lacks, and rejects one run and invalid options", async () => {
    const folder = await temporaryDirectory();
    const a = await writeRunFiles("a", { evaluations: { 1: { x: [0] } } }, folder);
    const b = await writeRunFiles("b", { evaluations: { 1: { y: [0] } } }, folder);
    expect(await runHere("compare", a, b)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/`b` lacks 1 of them \(x\)/u) as string,
    });
    expect(await runHere("compare", a)).toMatchObject({ code: 1, stderr: expect.stringContaining("at least two runs") as string });
    expect(await runHere("compare", `${a}@9`, b)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("none after 9 steps") as string,
    });
    expect(await runHere("compare", a, b, "--level", "1")).toMatchObject({ code: 2 });
    expect(await runHere("compare", join(folder, "c*"), b)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("E_NOT_FOUND") as string,
    });
  });
});

describe("whetstone report", () => {
  it("writes the page of a run again", async () => {
    const run = await writeRunFiles("a", { metrics: rows(0.5), events: ended });
    const { code, stdout } = await runHere("report", run);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/report\.html \(\d.*, trajectories of 0 steps\)\n$/u)]);
    await access(join(run, "report.html"));
    const out = join(run, "other.html");
    expect(JSON.parse((await runHere("report", run, "--out", out, "--json")).stdout)).toMatchObject({ path: out, steps: [] });
    expect(await runHere("report", join(run, "none"))).toMatchObject({ code: 1, stderr: expect.stringContaining("E_NOT_FOUND") as string });
  });
});

const chat = (text: string, more: object = {}) =>
  JSON.stringify({
    messages: [
      { role: "user", content: `Reverse: ${text}` },
      { role: "assistant", content: [...text].toReversed().join("") },
    ],
    ...more,
  });

describe("lines of other programs", () => {
  it("are recognized, converted and counted by format; a line of a known format with a wrong member is named", async () => {
    const path = join(await temporaryDirectory(), "mixed.jsonl");
    const lines = [
      { prompt: "Reverse: ab", completion: "ba" },
      {
        prompt: [
          { role: "assistant", content: "Hi" },
          { role: "user", content: "Reverse: cd" },
        ],
        completion: [{ role: "assistant", content: "dc" }],
      },
      {
        system: "Be brief.",
        conversations: [
          { from: "human", value: "Reverse: ef" },
          { from: "gpt", value: "fe" },
        ],
      },
      { instruction: "Reverse", input: "gh", output: "hg" },
      { conversations: [{ from: "robot", value: "x" }] },
      { prompt: 3, completion: "x" },
    ];
    await writeFile(path, lines.map((line) => JSON.stringify(line)).join("\n"));
    const { code, stdout } = await runHere("dataset", "validate", path);
    expect([code, stdout]).toEqual([
      1,
      [
        `${path}:5: expected \`from\` to be one of system, human, user, gpt, assistant, got "robot"`,
        `${path}:6: expected a line of the format prompt-completion, at \`prompt\`: Invalid input`,
        "prompt-completion: 2 lines",
        "sharegpt: 1 line",
        "alpaca: 1 line",
        "6 lines, 4 examples, 2 invalid lines",
        "",
      ].join("\n"),
    ]);
    const read = [];
    await writeFile(
      path,
      lines
        .slice(0, 4)
        .map((line) => JSON.stringify(line))
        .join("\n"),
    );
    for await (const { messagesAndChoices } of readExamples(path)) read.push(messagesAndChoices);
    expect(read).toMatchObject([
      [
        { role: "user", content: "Reverse: ab" },
        { role: "assistant", content: "ba" },
      ],
      [{ role: "assistant", content: "Hi", weight: 0 }, { role: "user" }, { role: "assistant", content: "dc" }],
      [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Reverse: ef" },
        { role: "assistant", content: "fe" },
      ],
      [
        { role: "user", content: "Reverse\n\ngh" },
        { role: "assistant", content: "hg" },
      ],
    ]);
  });

  it("a split that leaves a part without examples names the remedy", async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, "three.jsonl");
    await writeFile(path, ["a", "b", "c"].map((text) => JSON.stringify({ prompt: text, completion: text })).join("\n"));
    const { code, stderr } = await runHere("dataset", "split", path, "--out", join(directory, "out"), "--validation", "0.001");
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining("none of 3 examples fell into validation. Choose another --validation fraction (now 0.001)"),
    ]);
  });
});

describe("whetstone dataset", () => {
  const examples = ["abc", "abd", "abd", "abe", "abf", "abg"];
  const write = async (lines: readonly string[]) => {
    const path = join(await temporaryDirectory(), "examples.jsonl");
    await writeFile(path, `${lines.join("\n")}\n`);
    return path;
  };

  it("stats counts examples, duplicates, messages and rewards", async () => {
    const trajectory = {
      messages_and_choices: [
        { role: "user", content: "x" },
        { index: 0, message: { role: "assistant", content: "y" }, finish_reason: "stop", token_ids: [1, 2] },
      ],
      reward: 0.5,
    };
    const path = await write([...examples.map((text) => chat(text)), JSON.stringify(trajectory)]);
    const { stdout } = await runHere("dataset", "stats", path);
    expect(stdout).toMatch(
      /^7 examples, 1 duplicates, 1 with sampled turns, 0 with tools\nper example +mean +min +median +max\nmessages +2 +2 +2 +2\n/u,
    );
    expect(stdout).toMatch(/\ncompletion tokens +2 +2 +2 +2\nreward +0\.5 /u);
    expect(JSON.parse((await runHere("dataset", "stats", path, "--json")).stdout)).toMatchObject({
      examples: 7,
      characters: { max: 15, min: 2 },
    });
  });

  it("validate names every invalid line and exits with 1", async () => {
    const path = await write([chat("abc"), '{"messages":[]}', "nope", chat("abd"), '{"other":1}']);
    const { code, stdout } = await runHere("dataset", "validate", path);
    expect(code).toBe(1);
    expect(stdout.split("\n").map((line) => line.replace(path, ""))).toEqual([
      ":2: expected `messages` to be an array of at least one message",
      ":3: expected one JSON value on the line",
      ":5: expected a trajectory with `messages_and_choices`",
      "chat: 2 lines",
      "5 lines, 2 examples, 3 invalid lines",
      "",
    ]);
    expect((await runHere("dataset", "validate", await write([chat("abc")]))).code).toBe(0);
  });

  it("split and dedupe write examples without overlap", async () => {
    const path = await write(examples.map((text) => chat(text)));
    const out = join(path, "../split");
    const split = JSON.parse(
      (await runHere("dataset", "split", path, "--out", out, "--validation", "0.5", "--seed", "1", "--json")).stdout,
    ) as any[];
    expect(split.map(({ examples: count }) => count as number).reduce((sum, count) => sum + count)).toBe(6);
    const [train, validation] = await Promise.all(split.map(({ path: file }) => readFile(file as string, "utf8")));
    for (const text of new Set(examples)) expect([train, validation].filter((part) => part?.includes(`Reverse: ${text}`))).toHaveLength(1);
    const clean = join(path, "../clean.jsonl.gz");
    expect((await runHere("dataset", "dedupe", path, "--out", clean)).stdout).toMatch(/: 5 of 6 examples, 1 duplicates left out/u);
    expect((await runHere("dataset", "stats", clean)).stdout).toMatch(/^5 examples, 0 duplicates/u);
    expect((await runHere("dataset", "split", path)).code).toBe(2);
    expect((await runHere("dataset", "stats", join(path, "../none.jsonl"))).stderr).toContain("no such file");
  });
});
