/**
 * Preference training (DPO) in one flat loop, after SFT on examples: sample groups, make pairs of them, train, evaluate, repeat.
 *
 *   npx tsx --conditions=whetstone/source recipes/preference-loop.ts <base model> [seed] [rounds] [prompts per round] [held-out prompts] [examples]
 *
 * The task of recipes/instructions: answers under constraints that a program can check. The preferred answer of a pair is the one
 * with the higher reward. An adapter of rank 16 is trained; in each round, DPO's reference is the checkpoint that sampled the pairs.
 *
 * Requires a service with an artifact store. Omitted here and available in `trainPreferences`: resume, early stopping, the report.
 */
import { connect, gatherTrajectoryGroups, uploadDataset } from "whetstone";
import { preferencePairs, uploadPreferences } from "whetstone/dataset";
import { environmentRollout, evaluate } from "whetstone/environment";
import { instructionsEnvironment } from "./instructions/environment.ts";
import { goldAnswer } from "./instructions/gold.ts";
import { instructionMessages, instructionScenario } from "./instructions/task.ts";

const [base = "", ...numbers] = process.argv.slice(2);
const [seed = 1, rounds = 1, prompts = 160, heldOut = 200, count = 160] = numbers.map(Number);
if (
  base === "" ||
  base.startsWith("-") ||
  ![seed, rounds, prompts, heldOut, count].every((value) => Number.isInteger(value) && value >= 1)
) {
  console.error(
    "Usage: preference-loop.ts <base model> [seed] [rounds] [prompts per round] [held-out prompts] [examples], numbers are whole, from 1",
  );
  process.exit(2);
}
const service = await connect();
const name = `preference-loop-${seed}`;
const model = await service.models.create({ project: "recipes", name, baseModel: base, lora: { rank: 16 }, returnExisting: true });
const environment = instructionsEnvironment(seed, heldOut);
let policy = await model.policy();
await report("untrained");

// 0. Teach the task with examples: of the untrained model's answers too few are right to learn from.
const examples = Array.from({ length: count }, (_, index) => {
  const scenario = instructionScenario("sft", seed, index);
  return { messages: [...instructionMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
});
const taught = await model.trainSft(await uploadDataset(service, { project: model.project, name: `${name}-sft`, train: examples }), {
  batchSize: 16,
  learningRate: 1e-3,
});
policy = await model.policy((await taught.done()).step);
await report("after examples");

for (let round = 0; round < rounds; round++) {
  // 1. Sample 8 answers to each prompt at temperature 1: the pairs show the model its own good and bad answers.
  const scenarios = Array.from({ length: prompts }, (_, index) => instructionScenario("train", seed, round * prompts + index));
  const groups = await gatherTrajectoryGroups(scenarios, environmentRollout(environment), {
    policy,
    groupSize: 8,
    concurrency: 64,
    seed: seed * 1000 + round,
    progress: false,
  });

  // 2. Pair answers to the same prompt with rewards that differ by at least 0.3, at most four pairs per prompt.
  const pairs = preferencePairs(groups, { minMargin: 0.3, pairsPerGroup: 4 });

  // 3. Upload the pairs as an artifact, and train one epoch on them.
  const data = await uploadPreferences(service, { project: model.project, name, train: pairs });
  const job = await model.trainPreferences(data, { referenceStep: "start", beta: 0.1, batchSize: 16, learningRate: 1e-4 });
  const { step, metrics } = await job.done();

  // 4. Evaluate greedily on held-out prompts, with topics that occur in no pair.
  policy = await model.policy(step);
  const metric = (key: string) => metrics[key]?.toFixed(3) ?? "?";
  await report(
    `round ${round}: sampled reward ${groups.stats.reward.mean.toFixed(3)}, checkpoint ${step}, loss ${metric("loss")}, accuracy ${metric("rewards/accuracies")}, margin ${metric("rewards/margins")}`,
  );
}
await service.close();

/** Prints the reward of the held-out prompts with its 95 % confidence interval. */
async function report(title: string): Promise<void> {
  const { reward, rewards } = await evaluate(environment, policy, { concurrency: 64, progress: false });
  console.log(
    `${title}: held-out reward ${reward.mean.toFixed(3)} (${reward.low.toFixed(3)} to ${reward.high.toFixed(3)}), exact ${rewards["exact"]?.mean.toFixed(3)}`,
  );
}
