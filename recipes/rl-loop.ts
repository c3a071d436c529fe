/**
 * Reinforcement learning in one flat loop: sample, score, train, again. Reads like the algorithm; runs on every service of the interface.
 *
 *   npx tsx --conditions=whetstone/source recipes/rl-loop.ts [steps] [scenarios per step] [group size]
 *
 * The task: write a word of four letters backwards; the reward is how similar the answer is to the right one.
 *
 * Left out on purpose, and to be had from `trainRl`: resume, evaluation on held-out scenarios, rollouts beside training, retention of
 * checkpoints, the report. Suffixes: P scenarios (prompts) of a step, G rollouts of a group.
 */
import { connect, gatherTrajectoryGroups, similarity, trajectory } from "whetstone";

const [steps = 20, P = 16, G = 8] = process.argv.slice(2).map(Number);
const service = await connect();
const model = await service.models.create({ project: "recipes", name: "rl-loop", baseModel: "whetstone-tiny", returnExisting: true });
let checkpoint = await model.step();

// Word `index` of 8⁴, in an order without pattern: 7919 is odd, so none comes twice in one pass.
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => "abcdefgh"[Math.floor(((index * 7919 + 1234) % 8 ** 4) / 8 ** i) % 8]).join("");

for (let step = 0; step < steps; step++) {
  // 1. The policy is one checkpoint; whatever is trained meanwhile, these rollouts are its.
  const policy = await model.policy(checkpoint);

  // 2. Other words at each step, the same ones in every run.
  const words_P = Array.from({ length: P }, (_, p) => word(step * P + p));

  // 3. G attempts at each word, sampled at temperature 1: the loss is that of the distribution they come from.
  const groups = await gatherTrajectoryGroups(
    words_P,
    async (word, { sampling }) => {
      const t = trajectory({ messages: [{ role: "user", content: `Reverse: ${word}` }] });
      await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
      return t.finish({ reward: similarity(t.lastText.trim(), [...word].reverse().join("")) });
    },
    { groupSize: G, concurrency: 64, seed: step, timeoutMs: 60_000, maxExceptions: 0.05 },
  );
  const { reward, trainableGroups } = groups.stats;

  // 4. Attempts that all earn the same say nothing about which of them to make likelier.
  if (trainableGroups === 0) {
    console.log(`step ${step}  reward ${reward.mean.toFixed(3)}  nothing to learn`);
    continue;
  }

  // 5. One optimizer step on them: what did better than its group is made likelier, what did worse less likely.
  const job = await model.train(groups, { learningRate: 3e-4 });

  // 6. Its end is the next checkpoint.
  const { step: trained, metrics } = await job.done();
  console.log(
    `step ${step}  reward ${reward.mean.toFixed(3)} ± ${reward.std.toFixed(3)}  checkpoint ${trained}  loss ${metrics["loss"]?.toFixed(4) ?? "?"}`,
  );
  checkpoint = trained;
}
await service.close();
