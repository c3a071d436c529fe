/** Commands that list, show and delete the stored objects of a service. */
import { PassThrough } from "node:stream";
import { Command } from "commander";
import { expect, test, vi } from "vitest";
import { confirm } from "../../src/cli/confirm.ts";
import { commandTree, createProgram } from "../../src/cli/program.ts";
import { UNKNOWN_ID } from "../service/support.ts";
import { runHere } from "./run-here.ts";
import { trainedModel, useSharedService } from "./shared-service.ts";

const shared = useSharedService();

/** Runs a command with `--json` that must succeed. */
async function json(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere(...args, "--json");
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

test("models lists and shows models by name or id, and deletes one only when confirmed", async () => {
  const { model } = await trainedModel(shared, "one", 1);
  const listed = await runHere("models", "--project", "demo");
  expect(listed.stdout).toMatch(/^MODEL +BASE +ADAPTER +STEP +CHECKPOINTS +SIZE +CREATED\n/u);
  expect(listed.stdout).toMatch(/^demo\/one +whetstone-tiny +- +1 +2 +[\d.]+ \w+ +\d{4}-\d\d-\d\d \d\d:\d\d$/mu);
  expect(listed.stdout).toContain("Base models: whetstone-tiny\n");
  const { models, baseModels } = await json("models", "list");
  expect([models, baseModels]).toEqual([[expect.objectContaining({ id: model.id, name: "one" })], ["whetstone-tiny"]]);
  expect((await runHere("models", "show", "demo/one")).stdout).toMatch(new RegExp(`^id +${model.id}$`, "mu"));
  expect((await json("models", "show", model.id)).name).toBe("one");
  expect((await json("models", "show", "local/demo/one")).id).toBe(model.id);
  const unknown = await runHere("models", "show", "demo/two");
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringContaining('"demo/two" does not exist on this service, which has demo/one'),
  ]);
  const unconfirmed = await runHere("models", "delete", "demo/one");
  expect([unconfirmed.code, unconfirmed.stderr]).toEqual([2, expect.stringMatching(/Delete model demo\/one with 2 checkpoints .*--yes/u)]);
  expect(await json("models", "delete", "demo/one", "--yes")).toEqual({ modelId: model.id, deletedCheckpoints: 2, deletedRun: false });
  expect((await runHere("models")).stdout).toContain("No trainable models yet");
});

test("checkpoints lists, shows and deletes the checkpoints of a model", async () => {
  const { model, jobIds } = await trainedModel(shared, "steps", 3);
  const { checkpoints } = await json("checkpoints", "list", "demo/steps");
  expect(checkpoints.map(({ step }: { step: number }) => step)).toEqual([3, 2, 1, 0]);
  const text = (await runHere("checkpoints", "list", "demo/steps")).stdout;
  expect(text).toMatch(/^ +3 +rl +local\/demo\/steps:step2 +/mu);
  expect(text).toMatch(/4 checkpoints of demo\/steps, [\d.]+ \w+\n$/u);
  for (const name of ["demo/steps:2", "demo/steps:step2", `${model.id}:2`]) expect((await json("checkpoints", "show", name)).step).toBe(2);
  expect((await json("checkpoints", "show", "demo/steps")).step).toBe(3);
  const shown = await runHere("checkpoints", "show", "demo/steps:1");
  expect(shown.stdout).toContain("local/demo/steps:step1");
  expect(shown.stdout).toContain(jobIds[0]);
  expect(shown.stdout).toMatch(/^ {2}reward\/mean +0\.5$/mu);
  for (const steps of ["soon", "3-1", "0-100000"]) {
    const rejected = await runHere("checkpoints", "delete", "demo/steps", "1", steps, "--yes");
    expect([rejected.code, rejected.stderr]).toEqual([2, expect.stringContaining("or a range such as 5-9 of at most 100000 steps")]);
  }
  expect(await json("checkpoints", "delete", "demo/steps", "0-1", "9", "--yes")).toEqual({ deletedCount: 2, notFoundSteps: [9] });
  const none = await runHere("checkpoints", "delete", "demo/steps", "9", "--yes");
  expect([none.code, none.stderr]).toEqual([1, expect.stringContaining("has no checkpoint at these steps")]);
});

test("jobs lists, shows, follows and deletes jobs", async () => {
  const { jobIds } = await trainedModel(shared, "trained", 2);
  const listed = await runHere("jobs", "--model", "demo/trained");
  expect(listed.stdout.split("\n").filter((line) => line.includes("succeeded"))).toHaveLength(2);
  expect(listed.stdout).toMatch(new RegExp(`^${jobIds[0]} +rl +demo/trained +succeeded +1 `, "mu"));
  expect(await json("jobs", "list", "--status", "failed", "--model", "demo/trained")).toEqual([]);
  expect((await json("jobs", "--max", "1", "--model", "demo/trained"))[0].id).toBe(jobIds[1]);
  expect((await runHere("jobs", "--status", "done")).code).toBe(2);
  expect((await runHere("jobs", "show", jobIds[0]!)).stdout).toMatch(/^checkpoint +step 1$/mu);
  const logs = await runHere("jobs", "logs", jobIds[0]!, "--follow", "--json");
  const events = logs.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string });
  expect([logs.code, events[0]?.type, events.at(-1)?.type]).toEqual([0, "training_started", "training_ended"]);
  expect((await runHere("jobs", "logs", jobIds[0]!)).stdout).toMatch(/^training ended {2}.*step=1/mu);
  expect((await runHere("jobs", "delete", jobIds[0]!)).code).toBe(2);
  expect(await json("jobs", "delete", jobIds[0]!, "--yes")).toEqual({ id: jobIds[0] });
  const unknown = await runHere("jobs", "show", UNKNOWN_ID, "--json");
  expect([unknown.code, JSON.parse(unknown.stderr)]).toEqual([1, { error: expect.objectContaining({ code: "E_NOT_FOUND" }) as unknown }]);
});

test("jobs cancel ends a job that waits, and logs --follow of it exits with 1", async () => {
  const model = await shared.service.models.create({ project: "demo", name: "waiting", baseModel: "whetstone-tiny" });
  const { id } = await shared.service.artifacts.create({ project: "demo", name: "lines" });
  const line = JSON.stringify({
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
    ],
  });
  await shared.service.artifacts.putFile(id, "train.jsonl", `${line}\n`.repeat(80));
  const { url } = await shared.service.artifacts.commit(id);
  const jobs = [];
  for (let index = 0; index < 3; index++) jobs.push(await model.trainSft(url, { batchSize: 1 }));
  const last = jobs.at(-1)!;
  expect((await json("jobs", "cancel", last.id)).status).toBe("cancelled");
  const logs = await runHere("jobs", "logs", "-f", last.id);
  expect([logs.code, logs.stdout]).toEqual([1, expect.stringContaining("training failed")]);
  await model.delete();
});

test.each([
  [["jobs", "show", "nope"], 'The job "nope" does not exist on this service. List the existing ones with `whetstone jobs list`'],
  [["jobs", "logs", "a/b"], 'The job "a/b" does not exist'],
  [["jobs", "cancel", UNKNOWN_ID], `The job "${UNKNOWN_ID}" does not exist`],
  [["jobs", "delete", UNKNOWN_ID, "--yes"], `The job "${UNKNOWN_ID}" does not exist`],
  [["artifacts", "show", UNKNOWN_ID], `The artifact "${UNKNOWN_ID}" does not exist on this service. List the existing ones with`],
  [["models", "show", UNKNOWN_ID], `The model "${UNKNOWN_ID}" does not exist`],
  [["checkpoints", "show", "demo/named:55"], 'Model "demo/named" has no checkpoint at step 55; it has: 0, 1'],
  [["chat", "demo/named:55", "hi"], 'Model "demo/named" has no checkpoint at step 55; it has: 0, 1'],
  [["export", "demo/named:55"], 'Model "demo/named" has no checkpoint at step 55; it has: 0, 1'],
  [
    ["eval", "recipes/arithmetic/environment.ts", "--model", "demo/named:55"],
    'Model "demo/named" has no checkpoint at step 55; it has: 0, 1',
  ],
  [["capture", "--model", "demo/named:55", "--", "true"], 'Model "demo/named" has no checkpoint at step 55; it has: 0, 1'],
  [["train", "recipes/arithmetic/environment.ts", "--model", "demo/new", "--base", "gpt2"], "Base model 'gpt2' does not exist"],
  [["chat", "gpt2", "hi"], 'The model "gpt2" does not exist on this service, which has'],
] as const)("a name that does not exist is reported without the request: %j", async (args, message) => {
  if ((await runHere("models", "show", "demo/named")).code !== 0) await trainedModel(shared, "named", 1);
  const { code, stdout, stderr } = await runHere(...args);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(`error: ${message}`);
  expect(stderr).toMatch(/\(E_(?:NOT_FOUND|BASE_MODEL)\)\n$/u);
  expect(stderr).not.toMatch(/\b(?:GET|POST|DELETE) /u);
});

test("a checkpoint has the same name in every command, and `checkpoints` without a subcommand lists", async () => {
  const { model } = await trainedModel(shared, "forms", 1);
  const listed = await runHere("checkpoints", "demo/forms");
  expect([listed.code, listed.stdout]).toEqual([0, expect.stringContaining("2 checkpoints of demo/forms")]);
  for (const name of ["demo/forms:1", "demo/forms:step1", "local/demo/forms:1", `${model.id}:1`, "demo/forms:latest"]) {
    const { stdout } = await runHere("eval", "template/environment.ts", "--model", name, "--json");
    expect((JSON.parse(stdout) as { policy: string }).policy).toBe("local/demo/forms:step1");
    expect((await runHere("chat", name, "hi", "--max-tokens", "1")).code).toBe(0);
  }
});

test("every command that connects to a service has --data-dir, which WHETSTONE_BASE_URL excludes", async () => {
  const leaves = commandTree(createProgram("0")).filter(({ commands }) => commands.length === 0);
  const dataDir = leaves.filter(({ options }) => options.some(({ long }) => long === "--data-dir"));
  const without = leaves.filter((command) => !dataDir.includes(command)).map((command) => command.name());
  expect(without).toEqual(["init", "validate", "stats", "validate", "split", "dedupe", "runs", "compare", "report", "completion"]);
  const refused = await runHere("models", "--data-dir", "elsewhere");
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/WHETSTONE_BASE_URL\) and `--data-dir` are given/u)]);
});

test("artifacts lists, shows and deletes versions by name, address or id", async () => {
  const { artifacts } = shared.service;
  for (const text of ["one", "two!"]) {
    const { id } = await artifacts.create({ project: "demo", name: "words", metadata: { kind: "test" } });
    await artifacts.putFile(id, "a.txt", text);
    await artifacts.commit(id);
  }
  const listed = (await runHere("artifacts", "--name", "words")).stdout;
  expect(listed).toMatch(/^artifact:\/\/\/local\/demo\/words:v1 +committed +1 +4 bytes +/mu);
  expect(await json("artifacts", "list", "--project", "other")).toEqual([]);
  for (const [name, version] of [
    ["demo/words", 1],
    ["demo/words:v0", 0],
    ["artifact:///local/demo/words:v0", 0],
  ] as const)
    expect((await json("artifacts", "show", name)).version).toBe(version);
  expect((await runHere("artifacts", "show", "demo/words:v1")).stdout).toMatch(/^a\.txt +4 bytes +[0-9a-f]{64}$/mu);
  const unknown = await runHere("artifacts", "show", "demo/words:v7");
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringContaining("artifact:///local/demo/words:v1, artifact:///local/demo/words:v0"),
  ]);
  expect(await json("artifacts", "delete", "demo/words:v0", "--yes")).toMatchObject({ url: "artifact:///local/demo/words:v0" });
  expect(await json("artifacts", "list", "--name", "words")).toHaveLength(1);
});

test.each([
  ["y\n", true],
  ["YES\n", true],
  ["\n", false],
  ["no\n", false],
])("on a terminal, the answer %j to a deletion is %s", async (answer, isConfirmed) => {
  const logged = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  const [input, output] = [new PassThrough(), new PassThrough()];
  input.write(answer);
  expect(await confirm(new Command(), "Delete it", {}, { input, output, isInteractive: true })).toBe(isConfirmed);
  expect(String(output.read())).toContain("Delete it? [y/N] ");
  expect(process.exitCode ?? 0).toBe(isConfirmed ? 0 : 1);
  process.exitCode = undefined;
  // The question may be about a revocation, too.
  expect(logged.mock.calls.join()).toEqual(isConfirmed ? "" : expect.stringContaining("Nothing was changed"));
  logged.mockRestore();
});
