/**
 * A sweep: two learning rates with two seeds, each cell a training run, then the comparison of the rates. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/sweep.ts [steps] [directory]
 *
 * Prints each cell, the table of the cells and the differences paired by seed; writes reward.svg to the directory. If it is interrupted, start
 * it again: finished cells are kept, and the interrupted cell resumes.
 */
import { connect, defineEnvironment, similarity, trainRl, trajectory } from "whetstone";
import { metricChart, sweep } from "whetstone/experiment";

const [steps = "20", dir = "runs/sweep"] = process.argv.slice(2);
if (!/^[1-9]\d*$/.test(steps)) {
  console.error("Usage: sweep.ts [steps] [directory], with steps from 1");
  process.exit(2);
}
const service = await connect();

/** Returns word `index` of 8⁴ in scrambled order; 7919 is odd, so no word repeats. */
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => "abcdefgh"[Math.floor(((index * 7919 + 1234) % 8 ** 4) / 8 ** i) % 8]).join("");
const backwards = (text: string) => [...text].toReversed().join("");

const environment = defineEnvironment({
  name: "reverse",
  scenarios: {
    train: (index: number) => ({ id: word(index) }),
    eval: Array.from({ length: 32 }, (_, k) => ({ id: word(8 ** 4 - 1 - k) })),
  },
  async rollout(scenario, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${scenario.id}` }] });
    await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
    return t;
  },
  rewards: [{ name: "similar", score: ({ scenario, text }) => similarity(text.trim(), backwards(scenario.id)) }],
});

const result = await sweep({
  dir,
  grid: { learningRate: [1e-4, 5e-4] },
  seeds: [0, 1],
  async run({ name, dir: runDir, settings, seed, signal }) {
    const model = await service.models.create({ project: "sweep", name, baseModel: "whetstone-tiny", returnExisting: true });
    const evaluation = { every: Number(steps) };
    const run = trainRl({ model, environment, steps: Number(steps), seed, train: settings, evaluation, runDir, report: false, signal });
    return { reward: (await run.done).evaluation?.["eval/reward/mean"] ?? null };
  },
  onCell: ({ name, state }) => console.log(name, state),
});
console.log(result.table().toMarkdown());
console.log(result.compare({ value: "reward" }).table().toMarkdown());

const runs = await result.runs();
await metricChart(runs, { groupBy: ({ name }) => name.replace(/_seed-\d+$/, "") }).write(`${dir}/reward.svg`);
await service.close();
