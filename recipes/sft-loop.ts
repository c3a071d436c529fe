/**
 * Learning from examples in one flat loop: examples, a job, a measurement, again.
 *
 *   npx tsx --conditions=whetstone/source recipes/sft-loop.ts [jobs] [examples per job] [held-out words]
 *
 * The task: write a word of four letters backwards. Runs on a service with an artifact store; elsewhere, upload the file by other means.
 *
 * Left out on purpose, and to be had from `trainSft`: resume, early stop, retention of checkpoints, the report.
 */
import { connect, gatherTrajectoryGroups, similarity, trajectory, uploadDataset } from "whetstone";

const [jobs = 6, examples = 128, heldOut = 128] = process.argv.slice(2).map(Number);
const service = await connect();
const model = await service.models.create({ project: "recipes", name: "sft-loop", baseModel: "whetstone-tiny", returnExisting: true });

// Word `index` of 26⁴, in an order without pattern: 7919 and 26⁴ have no common divisor, so no word comes twice.
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => String.fromCharCode(97 + (Math.floor(((index * 7919 + 12_345) % 26 ** 4) / 26 ** i) % 26))).join("");
const prompt = (index: number) => ({ role: "user", content: `Reverse: ${word(index)}` });
const answer = (index: number) => [...word(index)].reverse().join("");

for (let job = 0; job < jobs; job++) {
  // 1. Examples nobody has seen: the prompt is context, the assistant's message is what is learned.
  const first = heldOut + job * examples;
  const train = Array.from({ length: examples }, (_, k) => ({
    messages: [prompt(first + k), { role: "assistant", content: answer(first + k) }],
  }));

  // 2. They travel as an artifact, a version of a dataset that never changes.
  const data = await uploadDataset(service, { project: model.project, name: "sft-loop", train });

  // 3. One pass over them, a small step per batch; the job's end is the next checkpoint.
  const running = await model.trainSft(data, { batchSize: 16, learningRate: 1e-3 });
  let loss = Number.NaN;
  for await (const event of running.events()) if (event.type === "gradient-step") loss = event.metrics["loss"] ?? Number.NaN;

  // 4. Greedy answers to words that no job contains.
  const policy = await model.policy();
  const indices = Array.from({ length: heldOut }, (_, index) => index);
  const groups = await gatherTrajectoryGroups(
    indices,
    async (index, { sampling }) => {
      const t = trajectory({ messages: [prompt(index)] });
      await t.sample(policy, { maxCompletionTokens: 12, ...sampling });
      const text = t.lastText.trim();
      return t.finish({ reward: similarity(text, answer(index)), metrics: { exact: text === answer(index) } });
    },
    { groupSize: 1, temperature: 0, concurrency: 64 },
  );
  const { reward, metrics } = groups.stats;
  console.log(
    `job ${job}  checkpoint ${policy.step}  loss ${loss.toFixed(3)}  similarity ${reward.mean.toFixed(3)}  exact ${metrics["exact"]?.mean.toFixed(3)}`,
  );
}
await service.close();
