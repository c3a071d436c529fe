import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { ConfigError } from "../../src/base/errors.ts";
import { bootstrapMean, compare, sweep, type CellResult } from "../../src/lab/experiment/index.ts";
import { connect } from "../../src/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { startTestService, temporaryDirectory, testBase } from "../service/support.ts";
import { builtProgram } from "../support/built-program.ts";
import { readLines, script } from "../train/support.ts";
import { trainingSweep } from "./training-sweep.ts";

describe("a sweep of training runs that is killed in the middle of a cell", () => {
  it("keeps finished cells, resumes the interrupted one and runs the others", async () => {
    const { service } = await startTestService({ engine: { script, bases: await testBase() } });
    const dir = await temporaryDirectory();
    const [first, second, third] = ["groupSize-2_seed-0", "groupSize-3_seed-0", "groupSize-4_seed-0"] as const;
    const host = await builtProgram(new URL("sweep-host.ts", import.meta.url));
    const child = spawn(process.execPath, [host, service.url, service.apiKey, dir, second, "step-end"], { stdio: "inherit" });
    onTestFinished(() => void child.kill("SIGKILL"));
    expect(await once(child, "exit")).toEqual([null, "SIGKILL"]);
    const finished = await readFile(join(dir, first, "events.jsonl"), "utf8");

    const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
    onTestFinished(() => client.close());
    const result = await trainingSweep(client, dir);
    expect(result.cells.map(({ name, state, attempts }) => [name, state, attempts])).toEqual([
      [first, "completed", 1],
      [second, "completed", 2],
      [third, "completed", 1],
    ]);
    expect((await readFile(join(dir, "starts"), "utf8")).trim().split("\n")).toEqual([first, second, second, third]);
    expect(await readFile(join(dir, first, "events.jsonl"), "utf8")).toBe(finished);
    const events = (await readLines(join(dir, second), "events.jsonl")).map(({ type }) => type as string);
    expect(events.filter((type) => type === "run-start" || type === "run-resume")).toEqual(["run-start", "run-resume"]);
    expect(events.filter((type) => type === "step-end")).toHaveLength(2);

    const runs = await result.runs();
    expect(runs.map(({ name, state }) => [name, state])).toEqual([first, second, third].map((name) => [name, "completed"]));
    expect((await compare(runs)).differences[0]).toMatchObject({ name: second, baseline: first, count: 2 });
  });
});

describe("a sweep", () => {
  const grid = { rate: [0.1, 0.2], shape: ["wide", "deep"] };

  it("runs every combination with every seed, at most `concurrency` at a time", async () => {
    let [running, most] = [0, 0];
    const third = deferred<undefined>();
    const { cells } = await sweep({
      dir: await temporaryDirectory(),
      grid,
      seeds: [3, 4],
      concurrency: 3,
      async run({ settings, seed }) {
        most = Math.max(most, ++running);
        if (running === 3) third.resolve(undefined);
        await third.promise;
        running--;
        return `${settings.rate} ${settings.shape} ${seed}`;
      },
    });
    expect(cells.map(({ value }) => value)).toEqual(
      [3, 4].flatMap((seed) => ["0.1 wide", "0.1 deep", "0.2 wide", "0.2 deep"].map((settings) => `${settings} ${seed}`)),
    );
    expect(most).toBe(3);
  });

  it("records a failed cell and continues; the next call runs it again, unless told otherwise", async () => {
    const dir = await temporaryDirectory();
    let isBroken = true;
    const seen: string[] = [];
    const options = {
      dir,
      grid: { rate: [1, 2, 3] },
      run({ settings }: { readonly settings: { readonly rate: number } }) {
        if (isBroken && settings.rate === 2) throw new ConfigError("too fast");
        return settings.rate;
      },
      onCell: ({ state, settings }: CellResult<{ readonly rate: number }, number>) => seen.push(`${settings.rate} ${state}`),
    };
    const first = await sweep(options);
    expect(first.failed).toMatchObject([
      { settings: { rate: 2 }, value: null, error: { type: "ConfigError", code: "E_CONFIG", message: "too fast" } },
    ]);
    expect(seen).toEqual(["1 running", "1 completed", "2 running", "2 failed", "3 running", "3 completed"]);
    expect(first.table().toJSON()[1]).toMatchObject({ rate: 2, seed: 0, state: "failed", value: null, error: "too fast" });
    isBroken = false;
    expect((await sweep({ ...options, retryFailed: false })).failed).toHaveLength(1);
    const { cells, failed } = await sweep(options);
    expect(failed).toEqual([]);
    expect(cells.map(({ value, attempts }) => [value, attempts])).toEqual([
      [1, 1],
      [2, 2],
      [3, 1],
    ]);
  });

  it("keeps finished cells when the grid changes, also its order", async () => {
    const dir = await temporaryDirectory();
    const ran: string[] = [];
    const run = ({ name }: { readonly name: string }) => void ran.push(name);
    await sweep({ dir, grid: { a: [1], b: ["x"] }, run });
    await sweep({ dir, grid: { b: ["x", "y"], a: [1] }, run });
    expect(ran).toEqual(["a-1_b-x_seed-0", "a-1_b-y_seed-0"]);
    await sweep({ dir, grid: { a: [2] }, run });
    expect((await readdir(dir)).toSorted()).toEqual(["a-1_b-x_seed-0", "a-1_b-y_seed-0", "a-2_seed-0"]);
  });

  it("names cells by their settings, safely for file systems and models", async () => {
    const grids = { text: ["a/b", "..", "1"], list: [[1, 2]] };
    const { cells } = await sweep({ dir: await temporaryDirectory(), grid: grids, run: ({ settings }) => settings });
    const names = cells.map(({ name }) => name);
    for (const name of names) expect(name).toMatch(/^[\w-][\w.-]{0,127}$/u);
    expect(new Set(names).size).toBe(3);
    expect(cells.map(({ value }) => value)).toEqual(cells.map(({ settings }) => settings));
  });

  it("rejects with the signal's reason when aborted, and resumes the interrupted cell", async () => {
    const dir = await temporaryDirectory();
    const controller = new AbortController();
    const reason = new Error("enough");
    const run = async ({ seed, signal }: { readonly seed: number; readonly signal: AbortSignal }) => {
      if (seed === 1 && !controller.signal.aborted) {
        setImmediate(() => controller.abort(reason));
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("cut off"))));
      }
      return seed;
    };
    await expect(sweep({ dir, grid: {}, seeds: [0, 1, 2], run, signal: controller.signal })).rejects.toBe(reason);
    expect(JSON.parse(await readFile(join(dir, "seed-1/cell.json"), "utf8"))).toMatchObject({ state: "running" });
    const { cells } = await sweep({ dir, grid: {}, seeds: [0, 1, 2], run });
    expect(cells.map(({ value, attempts }) => [value, attempts])).toEqual([
      [0, 1],
      [1, 2],
      [2, 1],
    ]);
  });

  it("compares combinations by differences paired by seed", async () => {
    const noise = [0.3, 0.1, 0.4, 0.1, 0.5];
    const result = await sweep({
      dir: await temporaryDirectory(),
      grid: { rate: [1, 2] },
      seeds: [0, 1, 2, 3, 4],
      run: ({ settings, seed }) => {
        if (settings.rate === 2 && seed === 4) throw new Error("lost");
        return { score: settings.rate + (noise[seed] as number) * settings.rate };
      },
    });
    const found = result.compare({ value: "score", seed: 9 });
    const differences = noise.slice(0, 4).map((each) => 2 + 2 * each - (1 + each));
    expect(found).toMatchObject({ by: "seed", metric: "score", baseline: "rate=1" });
    expect(found.runs.map(({ name, count, missing }) => [name, count, missing])).toEqual([
      ["rate=1", 5, 0],
      ["rate=2", 4, 1],
    ]);
    expect(found.differences[0]).toMatchObject({ name: "rate=2", ...bootstrapMean(differences, { seed: 9 }) });
    expect(result.compare({ value: ({ value }) => value?.score ?? 0, baseline: 1 }).baseline).toBe("rate=2");
    expect(() => result.compare({ value: "scores" })).toThrow(/to have a number `scores`, its value is {"score":1.3}/);
    expect(() => result.compare({ value: "score", baseline: 2 })).toThrow(/an index from 0 to 1, got `2`/);
  });

  it.each([
    [{ grid: { a: [] } }, "grid.a", /at least one value/],
    [{ grid: { a: [1, 1] } }, "grid.a", /each value once, got 1 twice/],
    [{ grid: { a: [Number.NaN] } }, "grid.a", /JSON values, got `NaN`/],
    [{ grid: {}, seeds: [] }, "seeds", /distinct integers/],
    [{ grid: {}, seeds: [1, 1] }, "seeds", /distinct integers/],
    [{ grid: {}, concurrency: 0 }, "concurrency", /at least 1/],
  ])("rejects %j before it runs anything", async (options, param, message) => {
    const dir = join(await temporaryDirectory(), "new");
    const rejected = sweep({ dir, run: () => 1, ...options });
    await expect(rejected).rejects.toMatchObject({ code: "E_ARGUMENT", param, message: expect.stringMatching(message) as string });
    await expect(readdir(dir)).rejects.toThrow("ENOENT");
  });

  it("rejects a second sweep of the directory, a damaged record and a record of other settings", async () => {
    const dir = await temporaryDirectory();
    const nested = sweep({ dir, grid: { a: [1] }, run: () => sweep({ dir, grid: { a: [2] }, run: () => 1 }) });
    expect((await nested).failed).toMatchObject([{ error: { code: "E_CONFLICT" } }]);
    const path = join(dir, "a-1_seed-0/cell.json");
    const record = JSON.parse(await readFile(path, "utf8")) as object;
    await writeFile(path, JSON.stringify({ ...record, settings: { a: 5 } }));
    await expect(sweep({ dir, grid: { a: [1] }, run: () => 1 })).rejects.toMatchObject({ code: "E_CONFIG", param: "dir" });
    await writeFile(path, "{");
    await expect(sweep({ dir, grid: { a: [1] }, run: () => 1 })).rejects.toMatchObject({ code: "E_DATA" });
    await rm(path);
    expect((await sweep({ dir, grid: { a: [1] }, run: () => 1 })).cells).toMatchObject([{ value: 1, attempts: 1 }]);
  });
});
