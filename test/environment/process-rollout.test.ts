/** Rollouts of agents that are programs. */
import { readFile } from "node:fs/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Service } from "../../src/library/client/index.ts";
import { processRollout, type ProcessRolloutOptions } from "../../src/library/environment/index.ts";
import { connect, gatherTrajectoryGroups, type GatherOptions } from "../../src/index.ts";
import { startTestService } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { manualTimeout } from "../support/manual-timeout.ts";

async function connected(): Promise<Service> {
  const running = await startTestService({ dataDir: await temporaryDirectory(), answer: () => "hi" });
  onTestFinished(() => running.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  onTestFinished(() => service.close());
  return service;
}

/** Agent in JavaScript: one request with the variables of OpenAI's client, then `rest`. */
const agent = (rest: string) => [
  process.execPath,
  "--input-type=module",
  "-e",
  `const { OPENAI_BASE_URL, OPENAI_API_KEY, WHETSTONE_SCENARIO, WHETSTONE_REWARD_FILE } = process.env;
   const { writeFileSync } = await import("node:fs");
   const ask = () => fetch(OPENAI_BASE_URL + "/chat/completions", { method: "POST",
     headers: { authorization: "Bearer " + OPENAI_API_KEY, "content-type": "application/json" },
     body: JSON.stringify({ model: "any", messages: [{ role: "user", content: JSON.parse(WHETSTONE_SCENARIO).task }] }) });
   ${rest}`,
];

/** Plays one scenario. */
async function play(more: Omit<ProcessRolloutOptions<{ task: string }>, "service">, options: GatherOptions = {}) {
  const service = await connected();
  const rollout = processRollout<{ task: string }>({ service, ...more });
  const policy = { id: "whetstone-tiny", step: null, complete: () => Promise.reject(new Error("The agent samples over HTTP")) };
  const groups = await gatherTrajectoryGroups([{ task: "say hi" }], rollout, {
    policy,
    groupSize: 1,
    maxExceptions: 1,
    progress: false,
    ...options,
  });
  expect(await service.sessions.list()).toEqual([]);
  const [group] = groups;
  return { trajectory: group?.trajectories[0], failure: group?.exceptions[0] };
}

test("records the requests of the program, its outputs without keys, and its exit code", async () => {
  const { trajectory } = await play({
    command: agent(`await (await ask()).text(); console.log("key", OPENAI_API_KEY); console.error("done");`),
  });
  expect(trajectory).toMatchObject({ reward: 1, metrics: { exit_code: 0 }, logs: ["stdout:\nkey [key]\n", "stderr:\ndone\n"] });
  expect(trajectory?.messages().map(({ content }) => content)).toEqual(["say hi", "hi"]);
  expect(trajectory?.choices[0]?.token_ids?.length).toBeGreaterThan(0);
});

test("reads the reward from the file, from a function, or from the exit code", async () => {
  const file = await play({
    command: agent(`await ask(); writeFileSync(WHETSTONE_REWARD_FILE, '{"reward": 0.25, "metrics": {"calls": 1}}');`),
    reward: "file",
  });
  expect(file.trajectory).toMatchObject({ reward: 0.25, metrics: { calls: 1 } });
  const scored = await play({
    command: agent(`await ask(); console.log("solved");`),
    reward: ({ stdout }) => Number(stdout.includes("solved")) / 2,
  });
  expect(scored.trajectory?.reward).toBe(0.5);
  expect((await play({ command: agent(`await ask(); process.exit(3);`) })).trajectory).toMatchObject({
    reward: 0,
    metrics: { exit_code: 3 },
  });
});

test("passes the template variables of the run to the session", async () => {
  const { trajectory } = await play({ command: agent("await ask();") }, { chatTemplateKwargs: { keep_thinking: true } });
  expect(trajectory?.choices[0]).toMatchObject({ unused_template_kwargs: ["keep_thinking"] });
});

test("a program that does not start, or leaves no reward, fails its rollout", async () => {
  expect((await play({ command: ["/nonexistent/agent"] })).failure?.message).toMatch(
    /program "\/nonexistent\/agent" did not start: .*ENOENT/,
  );
  const none = await play({ command: agent(`await ask(); console.error("no idea");`), reward: "file" });
  expect(none.failure?.message).toMatch(/it wrote none. The agent ended with exit code 0; its last output: no idea/);
});

test("a timeout ends the program and its child processes", async () => {
  const child = `const { spawn } = await import("node:child_process");
    const inner = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    writeFileSync(process.env.PID_FILE, String(inner.pid)); setInterval(() => {}, 1000);`;
  const pidFile = `${await temporaryDirectory()}/pid`;
  const endTime = manualTimeout(1500);
  const played = play({ command: agent(child), env: { PID_FILE: pidFile }, timeoutMs: 1500 });
  await expect.poll(() => readFile(pidFile, "utf8").catch(() => "")).not.toBe("");
  const pid = Number(await readFile(pidFile, "utf8"));
  expect(isRunning(pid)).toBe(true);
  endTime();
  expect((await played).failure).toMatchObject({ type: "TimeoutError" });
  await expect.poll(() => isRunning(pid)).toBe(false);
});

test.skipIf(process.platform === "win32").each([
  ["in its process group", false],
  ["in a group of its own", true],
])("ends with the program, although a process that it left running %s holds its outputs open", async (_, detached) => {
  const leave = `await ask();
    const { spawn } = await import("node:child_process");
    const left = spawn(process.execPath, ["-e", "setInterval(() => console.log('left'), 200)"], { stdio: "inherit", detached: ${detached} });
    writeFileSync(process.env.PID_FILE, String(left.pid)); console.log("done"); left.unref();`;
  const pidFile = `${await temporaryDirectory()}/pid`;
  const { trajectory } = await play({ command: agent(leave), env: { PID_FILE: pidFile } });
  const pid = Number(await readFile(pidFile, "utf8"));
  if (detached) process.kill(pid, "SIGKILL");
  expect(trajectory).toMatchObject({ reward: 1, logs: [expect.stringMatching(/^stdout:\ndone\n/u)] });
  await expect.poll(() => isRunning(pid)).toBe(false);
});

test("records all outputs of a process that outlives the program for a moment", async () => {
  const leave = `await ask();
    const { spawn } = await import("node:child_process");
    spawn(process.execPath, ["-e", "setTimeout(() => console.log('last'), 100)"], { stdio: "inherit" }).unref();`;
  const { trajectory } = await play({ command: agent(leave) });
  expect(trajectory?.logs).toEqual(["stdout:\nlast\n"]);
});

test.each([
  ["no key of the service", undefined, "none"],
  ["the key that its `env` sets", { WHETSTONE_API_KEY: "a-key-of-its-own" }, "true"],
])("the program gets %s", async (_, env, expected) => {
  vi.stubEnv("WHETSTONE_API_KEY", "a-key-of-the-service");
  // The value itself would be redacted.
  const program = `await ask(); const key = process.env.WHETSTONE_API_KEY; console.log(key === undefined ? "none" : key === "a-key-of-its-own");`;
  const { trajectory } = await play({ command: agent(program), env });
  expect(trajectory?.logs).toEqual([`stdout:\n${expected}\n`]);
});

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
