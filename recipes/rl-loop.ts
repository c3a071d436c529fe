/**
 * Reinforcement learning in one flat loop: sample, score, train, repeat. Follows the algorithm line by line and runs on every service with
 * this interface.
 *
 *   npx tsx --conditions=whetstone/source recipes/rl-loop.ts [steps] [scenarios per step] [group size]
 *
 * The task: write a word of four letters backwards; the reward is the similarity between completion and correct answer.
 *
 * Omitted here and available in `trainRl`: resume, evaluation on held-out scenarios, rollouts concurrent with training, checkpoint
 * retention, the report. Suffixes: P scenarios (prompts) of a step, G rollouts of a group.
 */
import { connect, gatherTrajectoryGroups, similarity, trajectory } from "whetstone";

const [steps = 20, P = 16, G = 8] = process.argv.slice(2).map(Number);
if (![steps, P, G].every((value) => Number.isInteger(value) && value >= 1)) {
  console.error("Usage: rl-loop.ts [steps] [scenarios per step] [group size], whole numbers from 1");
  process.exit(2);
}
const service = await connect();
const model = await service.models.create({ project: "recipes", name: "rl-loop", baseModel: "whetstone-tiny", returnExisting: true });
let checkpoint = await model.step();

// Word `index` of 8⁴ in scrambled order: 7919 is odd, so no word repeats within one pass.
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => "abcdefgh"[Math.floor(((index * 7919 + 1234) % 8 ** 4) / 8 ** i) % 8]).join("");

for (let step = 0; step < steps; step++) {
  // 1. Sample from one fixed checkpoint, independent of concurrent training.
  const policy = await model.policy(checkpoint);

  // 2. Choose the words of the step: different at each step, the same in every run.
  const words_P = Array.from({ length: P }, (_, p) => word(step * P + p));

  // 3. Sample G rollouts per word at temperature 1, because the loss assumes log-probabilities at temperature 1.
  const groups = await gatherTrajectoryGroups(
    words_P,
    async (word, { sampling }) => {
      const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${word}` }] });
      await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
      return t.finish({ reward: similarity(t.lastText.trim(), [...word].reverse().join("")) });
    },
    { groupSize: G, concurrency: 64, seed: step, timeoutMs: 60_000, maxExceptions: 0.05, progress: false },
  );
  const { reward, trainableGroups } = groups.stats;

  // 4. Skip the step if all rewards within each group are equal: every advantage is then 0.
  if (trainableGroups === 0) {
    console.log(`step ${step}  reward ${reward.mean.toFixed(3)}  nothing to learn`);
    continue;
  }

  // 5. Train one optimizer step, which raises the probability of rollouts above their group's mean and lowers the others.
  const job = await model.train(groups, { learningRate: 3e-4 });

  // 6. Wait for the job; its result is the next checkpoint.
  const { step: trained, metrics } = await job.done();
  console.log(
    `step ${step}  reward ${reward.mean.toFixed(3)} ± ${reward.std.toFixed(3)}  checkpoint ${trained}  loss ${metrics["loss"]?.toFixed(4) ?? "?"}`,
  );
  checkpoint = trained;
}
await service.close();
