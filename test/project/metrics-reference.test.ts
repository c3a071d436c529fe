import { expect, it } from "vitest";
import { z } from "zod";
import { environmentRollout, defineEnvironment, reward, trainScenarios } from "../../src/library/environment/index.ts";
import { gatherTrajectoryGroups, trainSft, trajectory, uploadDataset } from "../../src/index.ts";
import { defineTool, runAgent } from "../../src/library/rollout/agent/index.ts";
import { graderReward, type ScoreModelGrader } from "../../src/graders/index.ts";
import { relativeJudge } from "../../src/library/judge/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import {
  chatExamples,
  createModel,
  finishedEvents,
  MODELS,
  startRlJob,
  startSftJob,
  startTestService,
  type TestService,
} from "../service/support.ts";
import { environment, readLines, setUp, start } from "../train/support.ts";
import { read } from "./files.ts";

const sections = read("docs/reference/metrics.md").split(/^## /mu);

/** Returns the keys in the first column of the section with this heading. */
function documented(heading: string): string[] {
  const section = sections.find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`docs/reference/metrics.md has no section "${heading}"`);
  return [...section.matchAll(/^\| `([\w/<>]+)` \|/gmu)].map((match) => match[1] ?? "").toSorted();
}

/** Returns the keys of a job's gradient steps and of its checkpoint. */
async function emitted(
  service: TestService,
  modelId: string,
  jobId: string,
): Promise<{ readonly step: string[]; readonly checkpoint: string[] }> {
  const events = await finishedEvents(service, jobId);
  const steps = events.filter((event) => event.type === "gradient_step");
  const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints?order=desc&limit=1`);
  return { step: Object.keys(steps[0]?.data ?? {}).toSorted(), checkpoint: Object.keys(data[0].metrics).toSorted() };
}

it("lists exactly the keys that an RL job reports and stores", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const { step, checkpoint } = await emitted(service, modelId, await startRlJob(service, modelId));
  const keys = documented("RL: `gradient_step` and checkpoint");
  expect(step).toEqual(keys);
  expect(checkpoint).toEqual(keys.filter((key) => key !== "gradient_step"));
});

it("lists exactly the keys that an SFT job reports and stores", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const { step, checkpoint } = await emitted(service, modelId, await startSftJob(service, modelId, 3));
  expect(step).toEqual(documented("SFT: `gradient_step`"));
  expect(checkpoint).toEqual(documented("SFT: checkpoint"));
});

it("lists exactly the metrics that `graderReward` sets on a trajectory", async () => {
  const input: ScoreModelGrader["input"] = [{ role: "user", content: "{{ sample.output_text }}" }];
  const quality: ScoreModelGrader = { type: "score_model", name: "quality", model: "m", input };
  const policy = createScriptedPolicy([{ text: '{"steps": [], "result": 1}' }]);
  const { name, score } = graderReward(
    { type: "multi", name: "all", graders: { quality }, calculate_output: "quality" },
    { complete: (request) => policy.complete(request) },
  );
  const scored = trajectory({ messages: [] }).finish({ reward: 0 });
  const result = await score({ scenario: {}, text: "", trajectory: scored, signal: new AbortController().signal });
  const keys = Object.keys(typeof result === "object" ? (result.metrics ?? {}) : {});
  expect(keys.map((key) => key.replace(`${name}/quality`, "<name>/<variable>")).toSorted()).toEqual(documented("Metrics of a grader"));
});

/** Keys of a row that are not metrics. */
const ROW_KEYS = ["step", "split", "time", "policy_step"];

/** Returns the metric keys of a row, with names from the environment replaced by `<name>`. */
function metricKeys(row: object): string[] {
  const names = Object.keys(row).filter((key) => ![...ROW_KEYS, "checkpoint_step"].includes(key));
  return names.map((key) => key.replace("metric/reward/first", "metric/<name>")).toSorted();
}

it("lists exactly the keys that a run by trainRl writes", async () => {
  const given = await setUp();
  await start(given, { steps: 1, evaluation: { every: 1, samples: 2 } }).done;
  const [before, row, after] = await readLines(given.runDir, "metrics.jsonl");
  const own = documented("Run: train row of `trainRl`");
  const renamed = ["gradient_step", "reward/mean", "reward/std", "tokens_per_second"];
  const ofJob = documented("RL: `gradient_step` and checkpoint").filter((key) => !renamed.includes(key));
  expect(metricKeys(row)).toEqual([...own, ...ofJob].toSorted());
  expect(Object.keys(row)).toEqual(expect.arrayContaining([...ROW_KEYS, "checkpoint_step"]));
  for (const evaluation of [before, after]) {
    expect(metricKeys(evaluation)).toEqual(documented("Run: eval row"));
    expect(Object.keys(evaluation)).toEqual(expect.arrayContaining(ROW_KEYS));
  }
});

it("lists the keys that are missing from the row of a skipped step", async () => {
  const given = await setUp();
  const constant = defineEnvironment({ ...environment, rewards: [reward("first", () => 1)] });
  await start(given, { steps: 1, environment: constant }).done;
  const [row] = await readLines(given.runDir, "metrics.jsonl");
  const absent = ["time/train_seconds", "time/tokens_per_second"];
  expect(metricKeys(row)).toEqual(documented("Run: train row of `trainRl`").filter((key) => !absent.includes(key)));
});

it("lists exactly the keys that a run by trainSft writes", async () => {
  const { service, model, runDir } = await setUp();
  const data = await uploadDataset(service, { project: "demo", name: "data", train: chatExamples(3) });
  await trainSft({ model, data, environment, evaluation: { every: 1, samples: 2 }, runDir, report: false }).done;
  const [evaluation, row] = await readLines(runDir, "metrics.jsonl");
  expect(metricKeys(row)).toEqual(documented("Run: train row of `trainSft`"));
  expect(metricKeys(evaluation)).toEqual(documented("Run: eval row"));
});

it("lists exactly the metrics that are set on a trajectory", async () => {
  const find = defineTool({ name: "find", description: "Finds it.", schema: z.object({}), run: () => "there" });
  const searching = defineEnvironment({
    name: "searching",
    scenarios: { train: [{ id: "a" }], eval: [] },
    async rollout(_, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: "Where?" }], tools: [find] });
      await t.track("parsing", () => runAgent(t, policy, sampling));
      return t;
    },
    rewards: [reward("found", ({ text }) => text === "there")],
  });
  const policy = createScriptedPolicy([{ calls: [["find", "{}"]] }, { text: "there" }]);
  const [group] = await gatherTrajectoryGroups([{ id: "a" }], environmentRollout(searching), { policy, groupSize: 1 });
  const names: Record<string, string> = {
    "reward/found": "reward/<name>",
    "tool/find_duration": "tool/<name>_duration",
    parsing_duration: "<name>_duration",
  };
  const keys = Object.keys(group?.trajectories[0]?.metrics ?? {}).map((key) => names[key] ?? key);
  expect(keys.toSorted()).toEqual(documented("Metrics of a trajectory"));
});

it("lists exactly the metrics that a judge sets on a group", async () => {
  const policy = createScriptedPolicy([{ text: "yes" }]);
  const model = {
    ...createScriptedPolicy(({ messages }) => {
      const [, id] = /<candidate id="(\w+)">/u.exec(String(messages[1]?.content)) ?? [];
      return { text: JSON.stringify({ scores: [{ id, score: 1 }] }) };
    }),
    prices: { inputPerMillion: 1, outputPerMillion: 1 },
  };
  const judged = defineEnvironment({ ...environment, rewards: [], groupRewards: [relativeJudge({ model })] });
  const [scenario] = trainScenarios(environment.scenarios.train, { count: 1 });
  const [group] = await gatherTrajectoryGroups([scenario!], environmentRollout(judged), { policy, groupSize: 1 });
  expect(Object.keys(group?.metrics ?? {}).toSorted()).toEqual(documented("Metrics of a judge"));
});
