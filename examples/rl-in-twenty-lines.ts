/**
 * RL in twenty lines: a small model learns to write a word backwards. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/rl-in-twenty-lines.ts [steps]
 *
 * Prints the mean reward and the metrics of each step.
 */
import { connect, gatherTrajectoryGroups, trajectory } from "whetstone";

const steps = Number(process.argv[2] ?? 20);
const scenarios = { batch };
const service = await connect(); // WHETSTONE_BASE_URL, or starts the embedded one
const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });

for (let step = await model.step(); step < steps; step++) {
  const policy = await model.policy(step);
  const groups = await gatherTrajectoryGroups(
    scenarios.batch(step, 16),
    async (scenario, { signal, seed }) => {
      const t = trajectory({ messages: [{ role: "user", content: scenario.prompt }] });
      await t.sample(policy, { temperature: 1, maxCompletionTokens: 32, seed, signal }); // appends the choice: token ids and logprobs
      return t.finish({ reward: similarity(t.lastText, scenario.answer) });
    },
    { groupSize: 8, concurrency: 64, timeoutMs: 30_000, maxExceptions: 0.05 },
  );

  const job = await model.train(groups, { learningRate: 1e-3 }); // preflight first; throws PreflightError
  for await (const event of job.events()) if (event.type === "gradient-step") console.log(step, groups.stats.reward.mean, event.metrics);
}
await service.close();

/** `count` words for one step: other words at each step, the same ones in each run. */
function batch(step: number, count: number): { readonly prompt: string; readonly answer: string }[] {
  return Array.from({ length: count }, (_, index) => {
    let state = step * 1000 + index + 1;
    const letters = Array.from({ length: 4 }, () => {
      state = (state * 48271) % 2147483647;
      return String.fromCharCode(97 + (state % 26));
    });
    return { prompt: `Reverse the text: ${letters.join("")}`, answer: letters.toReversed().join("") };
  });
}

/** Share of the answer's letters that stand in their place, in [0, 1]; what is too long costs. */
function similarity(text: string, answer: string): number {
  const right = answer.split("").filter((letter, index) => text[index] === letter).length;
  return right / Math.max(text.length, answer.length);
}
