/** Starts a server and measures its rate: `serving-clients.ts <file with ServingInput as JSON>`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { Agent } from "undici";
import { variantInput } from "./support.ts";
import type { ServedModel, ServingInput, ServingResult } from "./serving.bench.ts";

/** Min answers of each client, and min answers of all clients, in one measurement. */
const [CLIENT_ANSWERS, ALL_ANSWERS] = [2, 8];
/** Max time until a server has loaded its model, in milliseconds. */
const START_MS = 120_000;

const { model, clients, tokens, threads } = variantInput<ServingInput>();
const dataDir = await mkdtemp(join(tmpdir(), "whetstone-serving-"));
const port = await freePort();
const origin = `http://127.0.0.1:${port}`;
const server = start(model);
const agent = new Agent({ connections: Math.max(...clients), headersTimeout: 0, bodyTimeout: 0 });
try {
  await ready();
  const headers = { "content-type": "application/json", ...(await authorization()) };
  let questions = 0;
  /** Sends one request and returns the number of tokens of its answer. */
  const ask = async (): Promise<number> => {
    const question = `Question ${questions++}: tell me about the number ${(questions * 37) % 1000} and why people like it.`;
    const messages = [{ role: "user", content: question }];
    const body = JSON.stringify({ model: "served", messages, max_tokens: tokens, temperature: 1, ignore_eos: true });
    const answer = await agent.request({ origin, path: "/v1/chat/completions", method: "POST", headers, body });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`Unexpected answer ${answer.statusCode}: ${text}`);
    return (JSON.parse(text) as { usage: { completion_tokens: number } }).usage.completion_tokens;
  };
  /** Runs clients until each has its answers, and returns the rate in tokens per second. */
  const measure = async (count: number, answers: number): Promise<number> => {
    const startMs = performance.now();
    const client = async () => {
      let sum = 0;
      for (let i = 0; i < answers; i++) sum += await ask();
      return sum;
    };
    const sums = await Promise.all(Array.from({ length: count }, client));
    return (sums.reduce((a, b) => a + b, 0) * 1000) / (performance.now() - startMs);
  };
  const result: number[] = [];
  for (const count of clients) {
    await measure(count, 1);
    result.push(await measure(count, Math.max(CLIENT_ANSWERS, Math.ceil(ALL_ANSWERS / count))));
  }
  console.log(JSON.stringify(result satisfies ServingResult));
} finally {
  await agent.close();
  server.kill("SIGTERM");
  if (server.exitCode === null) await once(server, "exit");
  await rm(dataDir, { recursive: true, force: true });
}

/** Starts a server that listens on `port`. */
function start(served: ServedModel): ChildProcess {
  const common = { stdio: ["ignore", "ignore", "inherit"] as ["ignore", "ignore", "inherit"] };
  if (served.server === "llama.cpp") {
    const slots = Math.max(...clients);
    const args = ["-m", served.file, "-t", threads, "-tb", threads, "-np", slots, "-c", slots * 256, "--port", port, "--log-disable"];
    return spawn(served.binary, args.map(String), common);
  }
  const { source, weightPrecision, rolloutPrecision } = served;
  const program = join(import.meta.dirname, "../../src/cli/main.ts");
  const options = ["--base-model", `served=${source}`, "--weight-precision", weightPrecision, "--rollout-precision", rolloutPrecision];
  const args = ["serve", ...options, "--port", String(port), "--data-dir", dataDir];
  return spawn(process.execPath, ["--conditions=whetstone/source", "--import", "tsx", program, ...args], common);
}

/** Waits until the server answers. */
async function ready(): Promise<void> {
  const endMs = performance.now() + START_MS;
  for (;;) {
    if (server.exitCode !== null) throw new Error(`The server ended with exit code ${server.exitCode}`);
    const status = await agent.request({ origin, path: "/health", method: "GET" }).then(
      async ({ statusCode, body }) => {
        await body.dump();
        return statusCode;
      },
      () => 0,
    );
    if (status === 200) return;
    if (performance.now() > endMs) throw new Error(`The server did not answer within ${START_MS / 1000} s`);
    await wait(100);
  }
}

/** Returns the header with the key of a service; llama.cpp needs none. */
async function authorization(): Promise<Record<string, string>> {
  if (model.server === "llama.cpp") return {};
  return { authorization: `Bearer ${(await readFile(join(dataDir, "api-key"), "utf8")).trim()}` };
}

/** Returns a port that nothing listens on. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port: free } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return free;
}
