import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { startNineRoutesServer } from "../support/nine-routes-server.ts";

const run = promisify(execFile);

/** What a recipe prints, line by line; without `env` it starts the embedded service in a directory of its own. */
async function lines(file: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const home = await mkdtemp(join(tmpdir(), "whetstone-recipe-"));
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  const { stdout } = await run(process.execPath, ["--conditions=whetstone/source", "--import", "tsx", file, ...args], {
    cwd: resolve(import.meta.dirname, "../.."),
    env: { ...process.env, WHETSTONE_HOME: home, ...env },
  });
  return stdout.trimEnd().split("\n");
}

describe("the flat loops", () => {
  it("rl-loop.ts runs to its end on the embedded service", { timeout: 60_000 }, async () => {
    const printed = await lines("recipes/rl-loop.ts", ["2", "4", "4"]);
    expect(printed).toEqual([
      expect.stringMatching(/^step 0 {2}reward [\d.]+ ± [\d.]+ {2}checkpoint 1 {2}loss -?[\d.]+$/),
      expect.stringMatching(/^step 1 {2}reward [\d.]+ ± [\d.]+ {2}checkpoint 2 {2}loss -?[\d.]+$/),
    ]);
  });

  it("rl-loop.ts runs to its end on a service with the nine routes and nothing else", { timeout: 60_000 }, async () => {
    const server = await startNineRoutesServer();
    onTestFinished(() => server.close());
    const printed = await lines("recipes/rl-loop.ts", ["2", "16", "8"], {
      WHETSTONE_BASE_URL: server.url,
      WHETSTONE_API_KEY: server.apiKey,
    });
    expect(printed.map((line) => /checkpoint \d/.exec(line)?.[0])).toEqual(["checkpoint 1", "checkpoint 2"]);
    const routes = new Set(server.requests.map(({ method, url }) => `${method} ${url.split("?")[0]?.replace(/[0-9a-f-]{36}/, ":id")}`));
    // All but the events route, which it is found not to have, are routes of the interface.
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

  it("sft-loop.ts runs to its end on the embedded service", { timeout: 60_000 }, async () => {
    const printed = await lines("recipes/sft-loop.ts", ["2", "32", "8"]);
    expect(printed.map((line) => /^job \d {2}checkpoint \d {2}loss/.exec(line)?.[0])).toEqual([
      "job 0  checkpoint 1  loss",
      "job 1  checkpoint 2  loss",
    ]);
  });
});
