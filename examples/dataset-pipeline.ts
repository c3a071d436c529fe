/**
 * A dataset pipeline from stored rollouts to a fine-tuned model: filter by reward, rescore, split, upload, train. Starts the embedded
 * service.
 *
 *   node --conditions=whetstone/source --import tsx examples/dataset-pipeline.ts
 *
 * Creates its own run files first. Prints the size of the dataset after each stage, and the training loss.
 */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, trajectory } from "whetstone";
import { readTrajectories, uploadDataset, writeTrajectories, type RewardInput } from "whetstone/dataset";

const directory = await mkdtemp(join(tmpdir(), "dataset-pipeline-"));
const service = await connect({ dataDir: join(directory, "service") });
try {
  for (const run of ["monday", "tuesday"]) await writeRun(join(directory, "runs", run, "trajectories"));

  const rewards = [right, { name: "short", weight: 0.1, score: ({ text }: RewardInput<unknown>) => 1 / (1 + text.length) }];
  const all = readTrajectories(`${directory}/runs/*/trajectories/*.jsonl.gz`);
  const best = all
    .filter((t) => t.reward >= 0.9)
    .dedupe({ by: "messages" })
    .rescore(rewards)
    .balance({ by: (t) => t.metadata["task"], max: 60 });
  const { train, validation } = best.split({ validation: 0.1, seed: 7 }); // lazy: nothing has been read yet
  for (const [name, dataset] of Object.entries({ all, best, train, validation })) console.log(name, (await dataset.toArray()).length);

  const data = await uploadDataset(service, { name: "distilled", train, validation });
  console.log(data.url); // artifact:///entity/datasets/distilled:v0
  const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny" });
  const job = await model.trainSft(data, { batchSize: 16, learningRate: 2e-4 });
  const { step, metrics } = await job.done();
  console.log(`checkpoint ${step}, loss ${metrics["loss"]?.toFixed(3)}`);
} finally {
  await service.close();
  await rm(directory, { recursive: true, force: true });
}

/** Writes the trajectories of a run: correct and wrong attempts at two tasks, with duplicates. */
async function writeRun(at: string): Promise<void> {
  await mkdir(at, { recursive: true });
  const attempts = Array.from({ length: 200 }, (_, index) => {
    const word = ((index * 7919) % 456_976).toString(26);
    const task = index % 4 === 0 ? "upper" : "reverse";
    const answer = task === "upper" ? word.toUpperCase() : word.split("").toReversed().join("");
    const isRight = index % 5 > 0;
    const t = trajectory({ messages: [{ role: "user", content: `${task}: ${word}` }], metadata: { task, answer } });
    return t.add({ role: "assistant", content: isRight ? answer : word }).finish({ reward: isRight ? 1 : 0 });
  });
  await writeTrajectories(join(at, "000000.jsonl.gz"), attempts);
}

/** Scores the stored conversation without running a new rollout. */
function right({ text, trajectory: { metadata } }: RewardInput<unknown>): boolean {
  return text === metadata["answer"];
}
