/**
 * The progress of a model: evaluates checkpoints on the same scenarios and compares each with the first. Trains the checkpoints first, on the
 * embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/compare-checkpoints.ts [steps] [directory]
 *
 * Prints the mean reward of each checkpoint and its paired difference to the untrained model with a 95 % interval, and the scenario that gained
 * most. If it is interrupted, start it again and it resumes.
 */
import { connect, defineEnvironment, similarity, trainRl, trajectory } from "whetstone";
import { compare, openRun } from "whetstone/experiment";
import { evaluateCheckpoints } from "whetstone/train";

const [steps = "10", dir = "runs/checkpoints"] = process.argv.slice(2);
if (!/^[1-9]\d*$/.test(steps)) {
  console.error("Usage: compare-checkpoints.ts [steps] [directory], with steps from 1");
  process.exit(2);
}
const service = await connect();
const model = await service.models.create({ project: "demo", name: "progress", baseModel: "whetstone-tiny", returnExisting: true });

const words = Array.from({ length: 8 ** 4 }, (_, index) =>
  ((index * 7919) % 8 ** 4)
    .toString(8)
    .padStart(4, "0")
    .replaceAll(/\d/g, (digit) => "abcdefgh"[Number(digit)] ?? ""),
);
const environment = defineEnvironment({
  name: "reverse",
  scenarios: { train: words.slice(0, -64).map((id) => ({ id })), eval: words.slice(-64).map((id) => ({ id })) },
  async rollout(scenario, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${scenario.id}` }] });
    await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
    return t;
  },
  rewards: [{ name: "similar", score: ({ scenario, text }) => similarity(text.trim(), [...scenario.id].toReversed().join("")) }],
});

await trainRl({ model, environment, steps: Number(steps), train: { learningRate: 5e-4 }, runDir: `${dir}/train`, report: false }).done;
const newest = await model.step();
const checkpoints = [...new Set([0, Math.ceil(newest / 2), newest])];
await evaluateCheckpoints({ model, environment, checkpoints, samples: 2, runDir: `${dir}/eval`, report: false }).done;

const run = await openRun(`${dir}/eval`);
const comparison = await compare(checkpoints.map((step) => run.at(step)));
for (const { name, mean } of comparison.runs) console.log(name, mean.toFixed(3));
for (const { name, mean, low, high } of comparison.differences)
  console.log(`${name}: ${mean.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)}) better than the untrained model`);
const [gained] = (comparison.differences.at(-1)?.pairs ?? []).toSorted((a, b) => b.difference - a.difference);
console.log(`gained most: ${gained?.unit}, ${gained?.difference.toFixed(3)}`);
await service.close();
