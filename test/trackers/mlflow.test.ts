import { expect, it } from "vitest";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { trainSft } from "../../src/training/train/index.ts";
import { mlflowTracker } from "../../src/training/trackers/mlflow.ts";
import { readLines, setUp, start, type SetUp } from "../train/support.ts";
import { startMlflowServer, type StoredRun } from "./mlflow-server.ts";

const history = ({ metrics }: StoredRun, key: string) =>
  [...metrics.values()].filter((metric) => metric.key === key).map(({ step, value }) => [step, value]);

async function expected({ runDir }: SetUp, split: string, name: string) {
  const rows = await readLines(runDir, "metrics.jsonl");
  return rows.filter((row) => row.split === split).map((row) => [row.step, row[name]]);
}

it("logs parameters, every metric of every step once, the status, and rollouts as traces; a resume continues the run", async () => {
  const server = await startMlflowServer();
  const given = await setUp();
  const options = { trackers: [mlflowTracker({ url: server.url, token: "secret", rollouts: 4 })], evaluation: { every: 2 } };
  await start(given, { ...options, steps: 2 }).done;
  const [run] = server.runs.values();
  expect(run!.status).toBe("FINISHED");
  await start(given, { ...options, steps: 3 }).done;
  expect(server.requests.map(({ problem }) => problem).filter((problem) => problem !== null)).toEqual([]);
  expect(new Set(server.requests.map(({ authorization }) => authorization))).toEqual(new Set(["Bearer secret"]));
  expect(server.runs.size).toBe(1);
  expect(run).toMatchObject({ name: "run", status: "FINISHED" });
  expect(Object.fromEntries(run!.params)).toMatchObject({ kind: "rl", group_size: "3", environment: "tokens", "evaluation.every": "2" });
  expect(history(run!, "reward/mean")).toEqual(await expected(given, "train", "reward/mean"));
  expect(history(run!, "eval/reward/mean")).toEqual(await expected(given, "eval", "eval/reward/mean"));
  // Four of the six rollouts of each step, and both of each evaluation.
  expect(run!.spans.size).toBe(3 * 4 + 3 * 2);
  const [span] = run!.spans.values();
  const values = Object.fromEntries(span!.attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
  expect(values).toMatchObject({ "gen_ai.operation.name": "invoke_agent", "whetstone.split": "eval", "whetstone.scenario_id": "eval-0" });
  expect(JSON.parse(String(values["mlflow.spanInputs"]))).toEqual({ messages: [{ role: "user", content: "eval-0" }] });
  expect(span!.events.map(({ name }) => name)).toEqual(["gen_ai.evaluation.result", "gen_ai.evaluation.result"]);
});

it("adds nothing when a delivery is repeated after its response was lost", async () => {
  // The second batch with metrics fails after an earlier part of the same delivery was stored.
  const server = await startMlflowServer({ answer: (path, count) => (path === "/v1/traces" && count === 1 ? 503 : null) });
  const given = await setUp();
  await start(given, { trackers: [mlflowTracker({ url: server.url })] }).done;
  const [run] = server.runs.values();
  expect(server.runs.size).toBe(1);
  expect(history(run!, "reward/mean")).toEqual(await expected(given, "train", "reward/mean"));
  expect(run!.spans.size).toBe(3 * 6);
});

it("logs metrics without traces to a server that does not accept traces, and warns", async () => {
  const server = await startMlflowServer({ answer: (path) => (path === "/v1/traces" ? 404 : null) });
  const given = await setUp();
  const run = start(given, { trackers: [mlflowTracker({ url: server.url })] });
  const warnings: string[] = [];
  for await (const event of run) if (event.type === "warning" && event.code === "tracker-mlflow") warnings.push(event.message);
  expect(warnings).toEqual([expect.stringMatching(/does not accept traces .* answered 404.*set `rollouts: 0`/)]);
  expect(server.requests.filter(({ path }) => path === "/v1/traces")).toHaveLength(1);
  expect(history([...server.runs.values()][0]!, "reward/mean")).toHaveLength(3);
});

it("logs the gradient steps of a supervised run under their number over all jobs", async () => {
  const server = await startMlflowServer();
  const { service, model, runDir } = await setUp();
  const line = {
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
    ],
  };
  const url = await uploadDataset(service, { project: "demo", name: "lines", train: [line, line, line, line] });
  await trainSft({ model, data: [url, url], runDir, report: false, trackers: [mlflowTracker({ url: server.url })] }).done;
  const [run] = server.runs.values();
  expect(history(run!, "gradient/loss").map(([step]) => step)).toEqual([0, 1, 2, 3]);
  expect(history(run!, "loss").map(([step]) => step)).toEqual([0, 1]);
});

it("needs the address of a server", () => {
  expect(() => mlflowTracker({ url: "127.0.0.1:5000" })).toThrow(/Expected `url` to be an http or https address/);
  expect(() => mlflowTracker({ url: "http://127.0.0.1:5000", rollouts: -1 })).toThrow(/Expected `rollouts` to be an integer of at least 0/);
});
