/**
 * Preference training (DPO) in one flat loop: sample groups, make pairs of them, train, evaluate, repeat.
 *
 *   npx tsx --conditions=whetstone/source recipes/preference-loop.ts <base model> [seed] [rounds] [prompts per round] [held-out prompts]
 *
 * The task is that of recipes/instructions: answers under constraints that a program can check. The preferred answer of a pair is the one
 * with the higher reward. An adapter of rank 16 is trained; in each round, DPO's reference is the checkpoint that sampled the pairs.
 *
 * Requires a service with an artifact store. Omitted here and available in `trainPreferences`: resume, early stopping, the report.
 */
import { connect, gatherTrajectoryGroups } from "whetstone";
import { preferencePairs, uploadPreferences } from "whetstone/dataset";
import { environmentRollout, evaluate } from "whetstone/environment";
import { instructionsEnvironment } from "./instructions/environment.ts";
import { instructionScenario } from "./instructions/task.ts";

const [base = "", ...numbers] = process.argv.slice(2);
const [seed = 1, rounds = 3, prompts = 96, heldOut = 160] = numbers.map(Number);
if (base === "" || base.startsWith("-") || ![seed, rounds, prompts, heldOut].every((value) => Number.isInteger(value) && value >= 1)) {
  console.error("Usage: preference-loop.ts <base model> [seed] [rounds] [prompts per round] [held-out prompts], numbers are whole, from 1");
  process.exit(2);
}
const service = await connect();
const name = `preference-loop-${seed}`;
const model = await service.models.create({ project: "recipes", name, baseModel: base, lora: { rank: 16 }, returnExisting: true });
const environment = instructionsEnvironment(seed, heldOut);
let policy = await model.policy();
await report("untrained");

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

  // 2. Pair answers to the same prompt whose rewards differ by at least 0.2, the largest differences first.
  const pairs = preferencePairs(groups, { minMargin: 0.2, pairsPerGroup: 4 });

  // 3. Upload the pairs as an artifact, and train one epoch on them.
  const data = await uploadPreferences(service, { project: model.project, name, train: pairs });
  const job = await model.trainPreferences(data, { referenceStep: "start", beta: 0.1, batchSize: 16, learningRate: 3e-4 });
  const { step, metrics } = await job.done();

  // 4. Evaluate greedily on prompts whose topics no pair has.
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
