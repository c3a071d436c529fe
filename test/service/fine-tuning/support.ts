/** The unmodified `openai` package on a service of a test. */
import OpenAI, { toFile } from "openai";
import type { FineTuningJob, FineTuningJobEvent, JobCreateParams } from "openai/resources/fine-tuning/jobs/jobs";
import { chatLines, type TestService } from "../support.ts";

/** Creates a client that does not repeat requests. */
export function clientOf({ service }: Pick<TestService, "service">): OpenAI {
  return new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, maxRetries: 0 });
}

/** Uploads training data; its identifier. */
export async function upload(client: OpenAI, lines: string = chatLines(4), name = "train.jsonl"): Promise<string> {
  return (await client.files.create({ file: await toFile(Buffer.from(lines), name), purpose: "fine-tune" })).id;
}

/** Creates a job on chat lines. */
export async function createJob(
  client: OpenAI,
  { examples = 4, model = "tiny", ...more }: Partial<JobCreateParams> & { readonly examples?: number } = {},
): Promise<FineTuningJob> {
  return client.fineTuning.jobs.create({ model, training_file: await upload(client, chatLines(examples)), ...more });
}

/** Settings of a supervised job. */
export function supervised(hyperparameters: NonNullable<JobCreateParams.Method["supervised"]>["hyperparameters"] & object) {
  return { type: "supervised" as const, supervised: { hyperparameters } };
}

/** Waits until a job is over, like a program that polls. */
export async function finished(client: OpenAI, id: string): Promise<FineTuningJob> {
  for (let turn = 0; turn < 2000; turn++) {
    const job = await client.fineTuning.jobs.retrieve(id);
    if (["succeeded", "failed", "cancelled"].includes(job.status)) return job;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`Fine-tuning job ${id} did not end`);
}

/** All events of a job, oldest first. */
export async function eventsOf(client: OpenAI, id: string): Promise<FineTuningJobEvent[]> {
  const events: FineTuningJobEvent[] = [];
  for await (const event of client.fineTuning.jobs.listEvents(id, { limit: 7 })) events.unshift(event);
  return events;
}

/** Pairs in the format of the OpenAI API. */
export function pairs(count: number, change: (index: number) => object = () => ({})): string {
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({
      input: { messages: [{ role: "user", content: `question ${index}` }] },
      preferred_output: [{ role: "assistant", content: `good ${index}` }],
      non_preferred_output: [{ role: "assistant", content: `bad ${index}` }],
      ...change(index),
    }),
  ).join("\n");
}

/** Settings of a job on preferences. */
export const dpo = (hyperparameters: object) => ({ type: "dpo" as const, dpo: { hyperparameters } });

/** Grader of the rows of {@link rowsOf}. */
export const GRADER = {
  type: "text_similarity",
  name: "close",
  evaluation_metric: "fuzzy_match",
  input: "{{ sample.output_text }}",
  reference: "{{ item.answer }}",
} as const;

type Hyperparameters = NonNullable<NonNullable<JobCreateParams.Method["reinforcement"]>["hyperparameters"]>;

/** Settings of a reinforcement job. */
export const reinforcement = (hyperparameters: Hyperparameters = {}, more: object = {}) =>
  ({ type: "reinforcement", reinforcement: { grader: GRADER, hyperparameters, ...more } }) as const;

/** Rows of a file, each with a field for the grader. */
export function rowsOf(count: number, more: object = {}): string {
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({ messages: [{ role: "user", content: `hello ${index} world` }], answer: "hello", ...more }),
  ).join("\n");
}
