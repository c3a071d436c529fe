/** The conformance suite against a real SkyRL server on the CPU, where Python has one: `pip install 'skyrl[jax,tinker]'`. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTinkerEngine } from "../../../src/engine/tinker/engine.ts";
import { delay } from "../../../src/base/util/delay.ts";
import { BASE, BASE_DIRECTORY, NO_RULES, type Subject } from "./subject.ts";
import { engineConformance } from "./suite.ts";

const python = process.env["WHETSTONE_PYTHON"] ?? "python3";
const hasSkyrl = "import sys, importlib.util as u; sys.exit(not (u.find_spec('skyrl') and u.find_spec('jax') and u.find_spec('fastapi')))";
const TINY = join(import.meta.dirname, "../../../models/whetstone-tiny");
const START_MS = 120_000;

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** A server that runs already, on a copy of the base with its tokenizer and `torch_dtype`, saves every compilation after the first. */
const runningUrl = process.env["WHETSTONE_SKYRL_URL"];

async function startSkyrl(): Promise<Subject> {
  if (runningUrl !== undefined) {
    const engine = await createTinkerEngine({ url: runningUrl, baseModels: { [BASE]: BASE_DIRECTORY } });
    return { engine, lora: { rank: 4 }, rules: NO_RULES, draws: 200, close: () => engine.close() };
  }
  const scratch = await mkdtemp(join(tmpdir(), "whetstone-skyrl-"));
  const directory = join(scratch, BASE);
  await cp(BASE_DIRECTORY, directory, { recursive: true });
  // The server loads a tokenizer at its start and, as prompts are ids, never uses it.
  for (const file of ["tokenizer.json", "tokenizer_config.json"]) await cp(join(TINY, file), join(directory, file));
  // Without it the server does not know what to compute in.
  const config = JSON.parse(await readFile(join(directory, "config.json"), "utf8")) as object;
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, torch_dtype: "float32" }));
  const port = await freePort();
  const program = join(import.meta.dirname, "../../support/skyrl_server.py");
  const child = spawn(python, [program, directory, String(port), scratch], { stdio: ["ignore", "ignore", "pipe"] });
  let output = "";
  child.stderr.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4000)));
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  const stop = async () => {
    child.kill("SIGTERM");
    if (!hasEnded()) await once(child, "close");
    await rm(scratch, { recursive: true, force: true });
  };
  try {
    const giveUpAtMs = performance.now() + START_MS;
    const url = `http://127.0.0.1:${port}`;
    while (!(await isHealthy(url))) {
      if (hasEnded() || performance.now() > giveUpAtMs) throw new Error(`SkyRL did not start:\n${output}`);
      await delay(200);
    }
    const engine = await createTinkerEngine({ url, baseModels: { [BASE]: directory }, patienceMs: 5_000 });
    return {
      engine,
      lora: { rank: 4 },
      rules: NO_RULES,
      draws: 200,
      async close() {
        await engine.close();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function isHealthy(url: string): Promise<boolean> {
  return fetch(`${url}/api/v1/healthz`).then(
    ({ ok }) => ok,
    () => false,
  );
}

const hasServer = runningUrl !== undefined || spawnSync(python, ["-c", hasSkyrl]).status === 0;
const missing = hasServer ? null : `${python} has no skyrl with its jax and tinker extras; WHETSTONE_PYTHON names another`;

engineConformance("a SkyRL server", startSkyrl, { timeoutMs: 300_000, missing });
