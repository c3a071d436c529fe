/**
 * Supervised fine-tuning in one flat loop: create examples, train a job, evaluate, repeat.
 *
 *   npx tsx --conditions=whetstone/source recipes/sft-loop.ts [jobs] [examples per job] [held-out words]
 *
 * The task: write a word of four letters backwards. Requires a service with an artifact store; for other services, upload the file
 * separately.
 *
 * Omitted here and available in `trainSft`: resume, early stopping, checkpoint retention, the report.
 */
import { connect, gatherTrajectoryGroups, similarity, trajectory, uploadDataset } from "whetstone";

const [jobs = 6, examples = 128, heldOut = 128] = process.argv.slice(2).map(Number);
if (![jobs, examples, heldOut].every((value) => Number.isInteger(value) && value >= 1)) {
  console.error("Usage: sft-loop.ts [jobs] [examples per job] [held-out words], whole numbers from 1");
  process.exit(2);
}
const service = await connect();
const model = await service.models.create({ project: "recipes", name: "sft-loop", baseModel: "whetstone-tiny", returnExisting: true });

// Word `index` of 26⁴ in scrambled order: 7919 and 26⁴ are coprime, so no word repeats.
const word = (index: number) =>
  Array.from({ length: 4 }, (_, i) => String.fromCharCode(97 + (Math.floor(((index * 7919 + 12_345) % 26 ** 4) / 26 ** i) % 26))).join("");
const prompt = (index: number) => ({ role: "user", content: `Reverse: ${word(index)}` });
const answer = (index: number) => [...word(index)].reverse().join("");

for (let job = 0; job < jobs; job++) {
  // 1. Create new examples: the prompt is context, the assistant message is trained.
  const first = heldOut + job * examples;
  const train = Array.from({ length: examples }, (_, k) => ({
    messages: [prompt(first + k), { role: "assistant", content: answer(first + k) }],
  }));

  // 2. Upload them as an artifact, an immutable version of a dataset.
  const data = await uploadDataset(service, { project: model.project, name: "sft-loop", train });

  // 3. Train one epoch with one optimizer step per batch; the job's result is the next checkpoint.
  const running = await model.trainSft(data, { batchSize: 16, learningRate: 1e-3 });
  let loss = Number.NaN;
  for await (const event of running.events()) if (event.type === "gradient-step") loss = event.metrics["loss"] ?? Number.NaN;

  // 4. Evaluate greedily on words that no job contains.
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
    { groupSize: 1, temperature: 0, concurrency: 64, progress: false },
  );
  const { reward, metrics } = groups.stats;
  console.log(
    `job ${job}  checkpoint ${policy.step}  loss ${loss.toFixed(3)}  similarity ${reward.mean.toFixed(3)}  exact ${metrics["exact"]?.mean.toFixed(3)}`,
  );
}
await service.close();
