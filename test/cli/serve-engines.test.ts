/** `whetstone serve` with the Tinker engine, and a recipe that uses it. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { createOnnxEngine } from "../../src/engine/index.ts";
import { shippedDirectory } from "../../src/service/models/shipped-base.ts";
import { startTinkerServer } from "../support/tinker-server.ts";
import { runHere } from "./run-here.ts";
import { checkRun, runRecipe, TINY } from "../recipes/run-recipe.ts";

const MAIN = join(import.meta.dirname, "../../dist/cli/main.js");

function whetstone(args: readonly string[], environment: NodeJS.ProcessEnv = {}): ChildProcess {
  return spawn(process.execPath, [MAIN, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, WHETSTONE_API_KEY: "", TINKER_API_KEY: "", ...environment },
  });
}

describe("rejects invalid combinations of options", () => {
  it.each([
    [["--engine", "tinker"], 1, "--engine-url"],
    [["--engine-url", "http://127.0.0.1:1"], 1, "--engine tinker"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--engine-key-env", "NO_SUCH_KEY"], 1, "NO_SUCH_KEY"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--offline"], 1, "--offline"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--hub-cache", "/tmp"], 1, "--hub-cache"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--base-root", "/tmp"], 1, "--base-root"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--device", "webgpu"], 1, "--device"],
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--device-memory", "24GB"], 1, "--device-memory"],
    [["--device", "cuda"], 2, "auto, cpu, webgpu"],
    [["--device-memory", "large"], 2, "500MB or 20GB"],
    [["--device", "webgpu", "--device-memory", "8"], 1, "Expected `--device-memory` to be a whole number of bytes from"],
    [["--device", "cpu", "--device-memory", "8GB"], 1, "`--device-memory` is for a GPU"],
    [["--device", "cpu", "--weight-precision", "float16"], 1, '`--weight-precision` "float16" is for a GPU'],
    [["--device", "auto", "--weight-precision", "int4"], 1, '`--weight-precision` "int4" is for the processor'],
    [["--upstream-adapters"], 1, "--upstream"],
    // Reported at once, before the engine's server answers.
    [["--engine", "tinker", "--engine-url", "http://127.0.0.1:1", "--upstream-adapters"], 1, "--upstream"],
    [["--base-model", "nothing"], 2, "two names"],
    [["--engine", "torch"], 2, "onnx"],
  ] as const)("%j", async (args, code, said) => {
    vi.stubEnv("WHETSTONE_API_KEY", "");
    vi.stubEnv("TINKER_API_KEY", "");
    onTestFinished(() => void vi.unstubAllEnvs());
    const handlers = process.listenerCount("SIGTERM");
    expect(await runHere("serve", "--port", "0", ...args)).toMatchObject({ code, stderr: expect.stringContaining(said) as string });
    expect(process.listenerCount("SIGTERM")).toBe(handlers);
  });
});

it("SIGINT ends a start that waits for the engine's server", async () => {
  const server = createServer((_, response) => response.writeHead(503).end());
  server.listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const child = whetstone(["serve", "--port", "0", "--engine", "tinker", "--engine-url", `http://127.0.0.1:${port}`]);
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(server, "request");
  child.kill("SIGINT");
  // A shell reports 130.
  expect(await once(child, "close")).toEqual([null, "SIGINT"]);
});

it("serve --engine tinker runs a recipe: supervised examples, reinforcement learning and evaluation", async () => {
  const behind = await createOnnxEngine({ baseModels: { "whetstone-tiny": shippedDirectory() } });
  const server = await startTinkerServer({
    engine: behind,
    base: "whetstone-tiny",
    baseName: "whetstone-tiny",
    reduction: "sequence-mean",
  });
  const runDir = await mkdtemp(join(tmpdir(), "whetstone-tinker-run-"));
  onTestFinished(async () => {
    await server.close();
    await behind.close();
    await rm(runDir, { recursive: true, force: true });
  });
  const dataDir = join(runDir, "data");
  const child = whetstone(["serve", "--port", "0", "--data-dir", dataDir, "--engine", "tinker", "--engine-url", server.url]);
  onTestFinished(async () => {
    child.kill("SIGINT");
    if (child.exitCode === null) await once(child, "close");
  });
  const [line] = (await once(createInterface(child.stdout!), "line")) as [string];
  const key = (await readFile(join(dataDir, "api-key"), "utf8")).trim();
  const environment = { WHETSTONE_BASE_URL: line.replace("Listening on ", ""), WHETSTONE_API_KEY: key };
  const run = await runRecipe("reverse-text", [...TINY, "--lora-rank", "4", "--max-grad-norm", "0", "--learning-rate-scale", "10"], {
    environment,
  });
  checkRun("reverse-text", run);
  for (const path of ["create_model", "forward_backward", "optim_step", "load_weights", "asample"]) expect(server.paths).toContain(path);
}, 180_000);
