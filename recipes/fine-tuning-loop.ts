/**
 * The OpenAI fine-tuning API on this machine: a supervised job on examples, then a reinforcement job whose only reward is a text metric.
 *
 *   npx tsx --conditions=whetstone/source recipes/fine-tuning-loop.ts [examples] [rows] [held-out texts] [seed]
 *
 * The task: write 5 to 10 letters backwards. Everything goes through the `openai` package, so the same program runs against every service
 * with that API; only the address and the name of the base model differ.
 */
import OpenAI, { toFile } from "openai";
import type { FineTuningJob } from "openai/resources/fine-tuning/jobs/jobs";
import { connect } from "whetstone";
import { type ReverseScenario, reverseScenario, type Split } from "./reverse-text/task.ts";

const [examples = 2400, rows = 6400, heldOut = 256, seed = 1] = process.argv.slice(2).map(Number);
if (![examples, rows, heldOut, seed].every((value) => Number.isInteger(value) && value >= 1)) {
  console.error("Usage: fine-tuning-loop.ts [examples] [rows] [held-out texts] [seed], whole numbers from 1");
  process.exit(2);
}
const service = await connect();
const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey ?? "" });

const scenarios = (split: Split, count: number) => Array.from({ length: count }, (_, index) => reverseScenario(split, seed, index));
const prompt = ({ prompt: text }: ReverseScenario) => [
  { role: "system" as const, content: "Answer with the reversed text alone." },
  { role: "user" as const, content: text },
];
const upload = async (name: string, lines: readonly object[]) =>
  client.files.create({
    file: await toFile(Buffer.from(lines.map((line) => JSON.stringify(line)).join("\n")), `${name}.jsonl`),
    purpose: "fine-tune",
  });

async function follow(job: FineTuningJob): Promise<string> {
  let last = job;
  while (last.status !== "succeeded") {
    if (last.status === "failed" || last.status === "cancelled") throw new Error(`Job ${last.id} ${last.status}: ${last.error?.message}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    last = await client.fineTuning.jobs.retrieve(job.id);
  }
  return last.fine_tuned_model!;
}

async function exactShare(model: string): Promise<string> {
  const answers = await Promise.all(
    scenarios("held-out", heldOut).map(async (scenario) => {
      const completion = await client.chat.completions.create({
        model,
        messages: prompt(scenario),
        temperature: 0,
        max_completion_tokens: 16,
      });
      return completion.choices[0]?.message.content === scenario.answer;
    }),
  );
  const right = answers.filter(Boolean).length;
  return `${right} of ${heldOut} exact (${(right / heldOut).toFixed(3)})`;
}

// 1. Teach the task with examples.
const taught = await upload(
  "examples",
  scenarios("sft", examples).map((scenario) => ({ messages: [...prompt(scenario), { role: "assistant", content: scenario.answer }] })),
);
const supervised = await client.fineTuning.jobs.create({
  model: "whetstone-tiny",
  training_file: taught.id,
  seed,
  method: { type: "supervised", supervised: { hyperparameters: { n_epochs: 1, batch_size: 32 } } },
});
const start = await follow(supervised);
console.log(`supervised     ${await exactShare(start)}`);

// 2. Reinforce on other texts: 8 answers per row, each with its similarity to the answer as reward.
const row = (scenario: ReverseScenario) => ({ messages: prompt(scenario), answer: scenario.answer });
const training = await upload("rows", scenarios("train", rows).map(row));
const validation = await upload("validation", scenarios("validation", Math.min(64, rows)).map(row));
const reinforced = await client.fineTuning.jobs.create({
  model: start,
  training_file: training.id,
  validation_file: validation.id,
  seed,
  method: {
    type: "reinforcement",
    reinforcement: {
      grader: {
        type: "text_similarity",
        name: "close",
        evaluation_metric: "fuzzy_match",
        input: "{{ sample.output_text }}",
        reference: "{{ item.answer }}",
      },
      hyperparameters: { n_epochs: 1, batch_size: Math.min(16, rows), eval_interval: 50 },
    },
  },
});
console.log(`reinforcement  ${await exactShare(await follow(reinforced))}`);
await service.close();
