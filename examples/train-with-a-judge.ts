/**
 * RL without right answers: trains on the tasks of generate-scenarios.ts with a judge that compares the rollouts of each task.
 *
 *   node --conditions=whetstone/source --import tsx examples/train-with-a-judge.ts [steps] [directory]
 *
 * Run generate-scenarios.ts first; `directory` holds its tasks. By default the judge is a script that checks the tool's result against the
 * answer. With JUDGE_BASE_URL, JUDGE_API_KEY and JUDGE_MODEL, it is a model of that endpoint. Prints the mean score before and after.
 */
import { join } from "node:path";
import { connect, defineEnvironment, trainRl, trajectory } from "whetstone";
import { defineTool, runAgent } from "whetstone/agent";
import { judgeEndpoint, relativeJudge, type JudgeModel } from "whetstone/judge";
import { readScenarios } from "whetstone/scenarios";
import { createScriptedPolicy } from "whetstone/testing";
import { z } from "zod";

const [steps = "12", directory = "runs/scenarios"] = process.argv.slice(2);
if (!/^[1-9]\d*$/.test(steps)) {
  console.error("Usage: train-with-a-judge.ts [steps] [directory], with steps from 1");
  process.exit(2);
}
const [train, held] = await Promise.all(["train", "eval"].map((split) => readScenarios(join(directory, `${split}.jsonl`))));
const shelf = (name: string) => String(10 + ([...name].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7) % 90));
const find = defineTool({
  name: "find",
  description: "Finds a book's shelf.",
  schema: z.object({ name: z.string() }),
  run: ({ name }) => (train?.concat(held ?? []).some(({ task }) => task.endsWith(` ${name}`)) === true ? shelf(name) : "none"),
});

/** Scores 1 for an answer that is the result of the tool, 0.3 for a result without such an answer, else 0. */
const script: JudgeModel = createScriptedPolicy(({ messages }) => {
  const candidates = [...String(messages.at(-1)?.content).matchAll(/<candidate id="(\w+)">\n(.*)\n/g)];
  const scores = candidates.map(([, id = "", json = "{}"]) => {
    const { messages: own } = JSON.parse(json) as { readonly messages: readonly { readonly role: string; readonly content?: unknown }[] };
    const result = own.find(({ role, content }) => role === "tool" && content !== "none")?.content;
    return { id, score: result === undefined ? 0 : own.at(-1)?.content === result ? 1 : 0.3 };
  });
  return { text: JSON.stringify({ scores }) };
});
const { JUDGE_BASE_URL: baseUrl, JUDGE_API_KEY: apiKey, JUDGE_MODEL: judge = "whetstone-tiny" } = process.env;
const environment = defineEnvironment({
  name: "library",
  scenarios: { train: train ?? [], eval: held ?? [] },
  async rollout({ task }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: task }], tools: [find] });
    await runAgent(t, policy, { maxTurns: 3, maxCompletionTokens: 48, ...sampling });
    return t;
  },
  groupRewards: [relativeJudge({ model: baseUrl === undefined ? script : judgeEndpoint({ baseUrl, apiKey, model: judge }) })],
});

const service = await connect();
const model = await service.models.create({ project: "demo", name: "judged", baseModel: "whetstone-tiny", returnExisting: true });
const settings = { steps: Number(steps), scenariosPerStep: 6, refill: { maxGroups: 12 }, train: { learningRate: 2e-4 } };
const evaluation = { every: Number(steps), samples: 4 };
const run = trainRl({ model, environment, ...settings, evaluation, runDir: join(directory, "rl") });
for await (const event of run)
  if (event.type === "evaluation-end") console.log("mean score", event.metrics["eval/reward/mean"]?.toFixed(3));
await service.close();
