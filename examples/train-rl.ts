/**
 * A training run: the loop of rl-in-twenty-lines.ts with resume, pipelining, evaluation, retention and a report. Starts the embedded
 * service.
 *
 *   node --conditions=whetstone/source --import tsx examples/train-rl.ts [steps] [run directory]
 *
 * Prints each step and evaluation. If it is interrupted, start it again and it resumes without losing or repeating a step.
 */
import { connect, defineEnvironment, similarity, trainRl, trajectory } from "whetstone";

const [steps = "20", runDir = "runs/reverse"] = process.argv.slice(2);
if (!/^[1-9]\d*$/.test(steps)) {
  console.error("Usage: train-rl.ts [steps] [run directory], with steps from 1");
  process.exit(2);
}
const service = await connect();
const model = await service.models.create({ project: "demo", name: "reverse-run", baseModel: "whetstone-tiny", returnExisting: true });

/** Returns word `index` of 8⁴ in scrambled order; 7919 is odd, so no word repeats. */
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => "abcdefgh"[Math.floor(((index * 7919 + 1234) % 8 ** 4) / 8 ** i) % 8]).join("");
const backwards = (text: string) => [...text].toReversed().join("");

const environment = defineEnvironment({
  name: "reverse",
  // The last 64 words are used only for evaluation.
  scenarios: {
    train: (index: number) => ({ id: word(index) }),
    eval: Array.from({ length: 64 }, (_, k) => ({ id: word(8 ** 4 - 1 - k) })),
  },
  async rollout(scenario, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${scenario.id}` }] });
    await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
    return t;
  },
  rewards: [{ name: "similar", score: ({ scenario, text }) => similarity(text.trim(), backwards(scenario.id)) }],
});

const run = trainRl({
  model,
  environment,
  steps: Number(steps),
  groupSize: 8,
  maxStepsOffPolicy: 1, // rollouts of the next step run while a job trains
  train: { learningRate: 3e-4 },
  evaluation: { every: 10 },
  keepCheckpoints: { recent: 2, best: { metric: "eval/reward/mean", count: 1 } },
  runDir,
});
for await (const event of run) {
  if (event.type === "step-end") console.log(`step ${event.step}: reward ${event.metrics["reward/mean"]?.toFixed(3)}`);
  if (event.type === "evaluation-end") console.log(`after ${event.step} steps: ${event.metrics["eval/reward/mean"]?.toFixed(3)} held out`);
}
const { reason, steps: done, checkpointStep } = await run.done;
console.log(`${reason} after ${done} steps, checkpoint ${checkpointStep}: open ${runDir}/report.html`);
await service.close();
