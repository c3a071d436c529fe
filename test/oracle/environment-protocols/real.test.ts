/** Clients and servers of openenv-core and openreward against ours: runs with OPENENV_PYTHON and OPENREWARD_PYTHON, each a path of a Python with the package. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { evaluate } from "../../../src/library/environment/index.ts";
import { defineToolEnvironment, openEnvEnvironment, orsEnvironment, serveOpenEnv, serveOrs } from "../../../src/library/protocols/index.ts";
import { createScriptedPolicy } from "../../../src/testing/index.ts";
import { sums, type Sum } from "../../protocols/sums.ts";

const openEnvPython = process.env["OPENENV_PYTHON"] ?? "";
const orsPython = process.env["OPENREWARD_PYTHON"] ?? "";
const started: ChildProcess[] = [];
afterEach(() => {
  for (const each of started.splice(0)) each.kill();
});

const scriptPath = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** Runs a client and returns its output. */
async function runClient(python: string, script: string, url: string): Promise<unknown> {
  const { stdout } = await promisify(execFile)(python, [scriptPath(script), url], { timeout: 60_000 });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "");
}

/** Starts a server and returns its address when it is healthy. */
async function startServer(python: string, script: string): Promise<string> {
  const probe = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => probe.once("listening", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  started.push(spawn(python, [scriptPath(script), String(port)], { stdio: "ignore" }));
  const url = `http://127.0.0.1:${port}`;
  await expect
    .poll(() =>
      fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      ),
    )
    .toBe(true);
  return url;
}

describe.skipIf(openEnvPython === "")("openenv-core", { timeout: 120_000 }, () => {
  it("serves an environment that our client plays", async () => {
    const environment = openEnvEnvironment({
      name: "counter",
      baseUrl: await startServer(openEnvPython, "openenv_server.py"),
      scenarios: { train: [{ seed: 0 }], eval: [{ seed: 0 }, { seed: 1 }] },
      messages: () => [{ role: "user", content: "Count to 3." }],
    });
    const policy = createScriptedPolicy(() => ({ calls: [["add", '{"amount":1}']] }));
    const { groups } = await evaluate(environment, policy, { samples: 1, concurrency: 1, progress: false });
    expect(groups.map(({ trajectories }) => [trajectories[0]?.reward, trajectories[0]?.metrics["turns"]])).toEqual([
      [1, 3],
      [1, 2],
    ]);
  });

  it("plays an environment of our server with its client", async () => {
    await using server = await serveOpenEnv(sums());
    expect(await runClient(openEnvPython, "openenv_client.py", server.url)).toEqual({
      prompt: "What is 6 + 7?",
      tools: ["add", "submit"],
      added: "13 after 1",
      unknown: "tool_not_found",
      reward: 0.9,
      done: true,
      steps: 4,
      failure: expect.stringContaining("VALIDATION_ERROR") as unknown,
    });
  });
});

describe.skipIf(orsPython === "")("openreward", { timeout: 120_000 }, () => {
  it("serves an environment that our client plays", async () => {
    const environment = await orsEnvironment({ baseUrl: await startServer(orsPython, "ors_server.py"), groupWeight: 0.5 });
    const policy = createScriptedPolicy(({ messages }) => (messages.length > 1 ? { text: "13" } : { calls: [["add", '{"a":6,"b":7}']] }));
    const { groups } = await evaluate(environment, policy, { samples: 2, progress: false });
    expect(groups[0]?.trajectories.map(({ reward }) => reward)).toEqual([2, 2]);
  });

  it("plays an environment of our server with its client", async () => {
    const { name, scenarios, start, rewards } = sums();
    const byLength = { name: "length", scoreGroup: lengths };
    await using server = await serveOrs(defineToolEnvironment<Sum>({ name, scenarios, start, rewards, groupRewards: [byLength] }));
    expect(await runClient(orsPython, "ors_client.py", server.url)).toEqual({
      tasks: 2,
      prompt: "What is 4 + 5?",
      roles: ["user"],
      tools: ["add"],
      added: "9 after 1",
      failure: expect.stringContaining("divide") as unknown,
      scores: [1, 8],
      reward: 0.9,
      finished: true,
    });
  });
});

const lengths = ({ trajectories }: { readonly trajectories: readonly { readonly lastText: string }[] }) =>
  trajectories.map(({ lastText }) => lastText.length);
