import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { ROOT } from "../project/files.ts";
import { builtProgram } from "../support/built-program.ts";
import { startNineRoutesServer } from "../support/nine-routes-server.ts";

const run = promisify(execFile);

/** Returns the lines that a recipe prints; without `env` it starts the embedded service in a temporary directory. */
async function lines(file: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const home = await mkdtemp(join(tmpdir(), "whetstone-recipe-"));
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  const { stdout } = await run(process.execPath, [await builtProgram(pathToFileURL(join(ROOT, file))), ...args], {
    cwd: ROOT,
    env: { ...process.env, WHETSTONE_HOME: home, ...env },
  });
  return stdout.trimEnd().split("\n");
}

describe("the single-file loops", () => {
  it("rl-loop.ts completes on the embedded service", async () => {
    const printed = await lines("recipes/rl-loop.ts", ["2", "4", "4"]);
    expect(printed).toEqual([
      expect.stringMatching(/^step 0 {2}reward [\d.]+ ± [\d.]+ {2}checkpoint 1 {2}loss -?[\d.]+$/),
      expect.stringMatching(/^step 1 {2}reward [\d.]+ ± [\d.]+ {2}checkpoint 2 {2}loss -?[\d.]+$/),
    ]);
  });

  it("rl-loop.ts completes on a service with only the nine routes", async () => {
    const server = await startNineRoutesServer();
    onTestFinished(() => server.close());
    const printed = await lines("recipes/rl-loop.ts", ["2", "16", "8"], {
      WHETSTONE_BASE_URL: server.url,
      WHETSTONE_API_KEY: server.apiKey,
    });
    expect(printed.map((line) => /checkpoint \d/.exec(line)?.[0])).toEqual(["checkpoint 1", "checkpoint 2"]);
    const routes = new Set(server.requests.map(({ method, url }) => `${method} ${url.split("?")[0]?.replace(/[0-9a-f-]{36}/, ":id")}`));
    // Except for the events route, which the server lacks, all requests use routes of the interface.
    expect(routes).toEqual(
      new Set([
        "POST /v1/preview/models",
        "GET /v1/preview/models/:id/checkpoints",
        "POST /v1/chat/completions",
        "POST /v1/preview/training-jobs",
        "GET /v1/preview/training-jobs/:id",
        "GET /v1/preview/training-jobs/:id/events",
      ]),
    );
  });

  it("sft-loop.ts completes on the embedded service", async () => {
    const printed = await lines("recipes/sft-loop.ts", ["2", "32", "8"]);
    expect(printed.map((line) => /^job \d {2}checkpoint \d {2}loss/.exec(line)?.[0])).toEqual([
      "job 0  checkpoint 1  loss",
      "job 1  checkpoint 2  loss",
    ]);
  });

  it("preference-loop.ts completes on the embedded service", { timeout: 120_000 }, async () => {
    const printed = await lines("recipes/preference-loop.ts", ["whetstone-tiny", "1", "1", "8", "2", "240"]);
    const heldOut = "held-out reward [\\d.]+ \\([\\d.]+ to [\\d.]+\\), exact [\\d.]+$";
    expect(printed).toEqual([
      expect.stringMatching(new RegExp(`^untrained: ${heldOut}`)),
      expect.stringMatching(new RegExp(`^after examples: ${heldOut}`)),
      expect.stringMatching(new RegExp(`^round 0: .*, checkpoint 2, loss [\\d.]+, accuracy [\\d.]+, margin -?[\\d.]+: ${heldOut}`)),
    ]);
  });

  it("fine-tuning-loop.ts completes on the embedded service", async () => {
    const printed = await lines("recipes/fine-tuning-loop.ts", ["64", "16", "8"]);
    expect(printed).toEqual([
      expect.stringMatching(/^supervised {5}\d of 8 exact \([\d.]+\)$/),
      expect.stringMatching(/^reinforcement {2}\d of 8 exact \([\d.]+\)$/),
    ]);
  });

  it.each([
    ["recipes/rl-loop.ts", ["abc"]],
    ["recipes/fine-tuning-loop.ts", ["0"]],
    ["recipes/preference-loop.ts", ["--help"]],
    ["recipes/preference-loop.ts", ["whetstone-tiny", "0"]],
    ["recipes/rl-loop.ts", ["--help"]],
    ["recipes/sft-loop.ts", ["1", "0", "4"]],
  ])("%s prints its usage for the invalid arguments %j", async (file, args) => {
    const failed = expect.objectContaining({
      code: 2,
      stdout: "",
      stderr: expect.stringMatching(/^Usage: .*\n$/u),
    });
    await expect(lines(file, args)).rejects.toEqual(failed);
  });
});
