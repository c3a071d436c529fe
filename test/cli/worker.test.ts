import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { contentHash } from "../../src/library/environment/index.ts";
import { ROOT } from "../project/files.ts";
import { missingRedis, REDIS, sendRollouts, temporaryQueue } from "../support/dispatchers.ts";
import { runHere } from "./run-here.ts";
import { useSharedService } from "./shared-service.ts";

const shared = useSharedService({ answer: () => "four" });

/** Writes an environment into the project, where it can import the package. */
async function environmentFile(name: string, text = ""): Promise<string> {
  const path = join(ROOT, "runs", `${name}-${process.pid}.ts`);
  onTestFinished(() => rm(path, { force: true }));
  await mkdir(join(ROOT, "runs"), { recursive: true });
  await writeFile(
    path,
    `import { trajectory } from "whetstone";
import { defineEnvironment } from "whetstone/environment";
export default defineEnvironment<{ readonly id: string }>({
  name: "${name}",
  scenarios: { train: [{ id: "a" }], eval: [] },
  async rollout({ id }, { policy, sampling }) {
    if (id === "fail") throw new TypeError("not today");
    const t = trajectory({ messages: [{ role: "user", content: id }] });
    await t.sample(policy, { maxCompletionTokens: 4, ...sampling });
    return t;
  },
  rewards: [{ name: "four", score: ({ text }) => text.startsWith("f") }],
});
${text}`,
  );
  return path;
}

async function createPlan(environment: string, environmentHash: string, ids: readonly string[]): Promise<string> {
  const { rolloutPlans } = shared.service;
  const plan = await rolloutPlans.create({ environment, environmentHash, policy: "whetstone-tiny", groupSize: 2, seed: 1 });
  await rolloutPlans.addGroups(
    plan.id,
    ids.map((id, group) => ({ group, scenario: { id } })),
  );
  return plan.id;
}

test("worker plays the rollouts of a plan, prints counts, and ends without further tasks", async () => {
  const file = await environmentFile("sums");
  const hash = await contentHash({ name: "sums", source: file });
  const id = await createPlan("sums", hash, ["a", "fail"]);
  const { code, stdout, stderr } = await runHere("worker", file, "--idle-exit", "0.2", "--name", "machine-1", "--concurrency", "3");
  expect({ code, stdout }).toEqual({ code: 0, stdout: "idle after 4 rollouts, 2 failed\n" });
  expect(stderr).toContain(`machine-1 plays sums (${hash.slice(0, 12)}) from ${shared.server.url}`);
  expect(await shared.service.rolloutPlans.get(id)).toMatchObject({ tasks: 4, finished: 4, failed: 2 });
  const { finished } = await shared.service.rolloutPlans.finished(id);
  expect(new Set(finished.map(({ worker }) => worker))).toEqual(new Set(["machine-1"]));
  const outcomes = await Promise.all(finished.map((task) => shared.service.rolloutPlans.outcome(task.id)));
  expect(outcomes.flatMap(({ exception }) => ((exception ?? null) === null ? [] : exception!.message))).toEqual(["not today", "not today"]);
});

test("worker --json prints an event per line", async () => {
  const file = await environmentFile("products");
  await createPlan("products", await contentHash({ name: "products", source: file }), ["a"]);
  const { stdout } = await runHere("worker", file, "--idle-exit", "0.2", "--json");
  const events = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(events.map(({ type }) => type)).toEqual(["worker-start", "rollout-deliver", "rollout-deliver", "worker-end"]);
  expect(events[1]).toMatchObject({ reward: 1, exception: null });
});

test("worker refuses to play for a run with other files", async () => {
  const file = await environmentFile("quotients", "// another version\n");
  const id = await createPlan("quotients", "0".repeat(64), ["a"]);
  await shared.service.rolloutPlans.finished(id);
  const { code, stderr } = await runHere("worker", file);
  expect(code).toBe(1);
  expect(stderr).toContain("Start the worker with the same files as the training run");
  expect(stderr).toContain("quotients");
});

test("train --workers plans the rollouts for workers with the same file", async () => {
  const file = await environmentFile("remainders");
  const runDir = join(ROOT, "runs", `remainders-${process.pid}`);
  onTestFinished(() => rm(runDir, { recursive: true, force: true }));
  const settings = ["--model", "cli/remainders", "--steps", "1", "--scenarios", "1", "--group-size", "2", "--run-dir", runDir];
  const refused = await runHere("train", file, ...settings, "--workers", "--concurrency", "4");
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("`--concurrency` has no effect with `--workers`") });
  // One command after the other in this process: the plan of the first waits for the worker.
  const { trainRl } = await import("../../src/training/train/index.ts");
  const { loadEnvironment } = await import("../../src/cli/environment-file.ts");
  const model = await shared.service.models.create({
    project: "cli",
    name: "remainders",
    baseModel: "whetstone-tiny",
    returnExisting: true,
  });
  const environment = await loadEnvironment(file);
  const run = trainRl({ model, environment, steps: 1, scenariosPerStep: 1, groupSize: 2, runDir, workers: true, report: false });
  const worker = await runHere("worker", file, "--idle-exit", "3");
  expect(worker.stdout).toBe("idle after 2 rollouts, 0 failed\n");
  expect(await run.done).toMatchObject({ steps: 1 });
});

test("--redis and --queue without effect are rejected", async () => {
  const file = await environmentFile("doubles");
  const model = ["--model", "cli/doubles", "--steps", "1"];
  for (const [args, message] of [
    [["worker", file, "--queue", "a"], "`--queue` has no effect without a Redis server"],
    [["worker", file, "--redis", "127.0.0.1"], "Expected the address of a Redis server"],
    [["worker", file, "--redis", REDIS, "--plan", "00000000-0000-4000-8000-000000000000"], "`planId` has no effect with `broker`"],
    [["train", file, ...model, "--redis", REDIS], "`--redis` has no effect without workers; add `--workers`"],
    [["train", file, ...model, "--workers", "--queue", "a"], "`--queue` has no effect without a Redis server"],
  ] as const)
    expect(await runHere(...args)).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
});

test.skipIf(missingRedis !== null)(
  `worker --redis plays the rollouts of a queue${missingRedis === null ? "" : `: ${missingRedis}`}`,
  async () => {
    const file = await environmentFile("triples");
    const { name, broker, count } = temporaryQueue();
    const id = await createPlan("triples", await contentHash({ name: "triples", source: file }), ["a", "fail"]);
    const plan = await shared.service.rolloutPlans.get(id);
    // Rollouts without a job are left to other workers.
    await sendRollouts(broker, plan, [1]);
    const { code, stdout } = await runHere("worker", file, "--idle-exit", "1", "--redis", REDIS, "--queue", name);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "idle after 2 rollouts, 2 failed\n" });
    expect(await count()).toBe(0);
    expect(await shared.service.rolloutPlans.get(id)).toMatchObject({ tasks: 4, finished: 2 });
  },
);
