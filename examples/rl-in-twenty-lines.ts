/**
 * RL in twenty lines: a small model learns to write a word backwards. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/rl-in-twenty-lines.ts [steps]
 *
 * Prints each step's mean reward and the metrics of its job. A second run resumes from the last checkpoint.
 */
import { connect, gatherTrajectoryGroups, similarity, trajectory } from "whetstone";

const steps = Number(process.argv[2] ?? 20);
if (!Number.isInteger(steps) || steps < 1) {
  console.error("Usage: rl-in-twenty-lines.ts [steps], a whole number from 1");
  process.exit(2);
}
const scenarios = { batch };
const service = await connect(); // connects to WHETSTONE_BASE_URL, or starts the embedded service
const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });

for (let step = await model.step(); step < steps; step++) {
  const policy = await model.policy(step); // e.g. "entity/demo/reverse:step7"; immutable, so that all rollouts use the same weights
  const groups = await gatherTrajectoryGroups(
    scenarios.batch(step, 16),
    async (scenario, { sampling }) => {
      const t = trajectory({ messages: [{ role: "user", content: scenario.prompt }] });
      await t.sample(policy, { maxCompletionTokens: 12, ...sampling }); // appends the choice: token ids and logprobs
      return t.finish({ reward: similarity(t.lastText.trim(), scenario.answer) });
    },
    { groupSize: 8, concurrency: 64, seed: step, timeoutMs: 30_000, maxExceptions: 0.05, progress: false },
  );

  const job = await model.train(groups, { learningRate: 3e-4 }); // runs preflight first, which may throw PreflightError
  for await (const event of job.events()) if (event.type === "gradient-step") console.log(step, groups.stats.reward.mean, event.metrics);
}
await service.close();

/** Returns `count` words for a step: different at each step, the same in each run. 7919 is odd, so the 8⁴ words do not repeat. */
function batch(step: number, count: number): { readonly prompt: string; readonly answer: string }[] {
  return Array.from({ length: count }, (_, k) => {
    const place = ((step * count + k) * 7919 + 1234) % 8 ** 4;
    const letters = Array.from({ length: 4 }, (__, i) => "abcdefgh"[Math.floor(place / 8 ** i) % 8] ?? "");
    return { prompt: `Reverse: ${letters.join("")}`, answer: letters.toReversed().join("") };
  });
}
