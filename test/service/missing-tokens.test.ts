/** Training data with bytes that the base model's vocabulary has no token for, as SmolLM2's lacks 21. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Job } from "../../src/library/client/index.ts";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { connect, type Service } from "../../src/index.ts";
import { modelFiles } from "../tokenizer/fixture.ts";
import { writeBase } from "./base-files.ts";

/** Directory of a base model without a token for "~". */
async function baseWithoutTilde(): Promise<string> {
  const directory = await writeBase();
  const tokenizer = modelFiles()["tokenizer.json"] as { model: { vocab: Record<string, number> } };
  const { "~": id, ...vocab } = tokenizer.model.vocab;
  await writeFile(
    join(directory, "tokenizer.json"),
    JSON.stringify({ ...tokenizer, model: { ...tokenizer.model, vocab: { ...vocab, unused: id } } }),
  );
  return directory;
}

async function start(): Promise<Service> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-missing-tokens-"));
  const service = await connect({ dataDir, baseModels: { tiny: await baseWithoutTilde() } });
  onTestFinished(async () => {
    await service.close();
    await rm(dataDir, { recursive: true, force: true });
  });
  return service;
}

async function warningsOf(job: Job): Promise<unknown[]> {
  await job.done();
  const warnings: unknown[] = [];
  for await (const event of job.events()) if (event.type === "warning") warnings.push(event);
  return warnings;
}

test("an SFT job warns once, with the number of bytes and examples, and trains on the rest", async () => {
  const service = await start();
  const model = await service.models.create({ project: "demo", name: "tilde", baseModel: "tiny" });
  const example = (answer: string) => ({
    messages: [
      { role: "user", content: "hi" },
      { role: "assistant", content: answer },
    ],
  });
  const train = [example("~a~"), example("~"), example("b")];
  const data = await uploadDataset(service, { name: "tildes", project: "demo", train });
  const job = await model.trainSft(data, { batchSize: 3 });
  expect(await warningsOf(job)).toMatchObject([
    { code: "missing-tokens", value: 3, threshold: 0, message: expect.stringContaining("3 bytes in 2 examples") },
  ]);
});

test("an RL job warns of the turns that it renders, with the number of trajectories, and counts a text once for all turns", async () => {
  const service = await start();
  const model = await service.models.create({ project: "demo", name: "tilde-rl", baseModel: "tiny" });
  const trajectory = (reward: number, question: string, answers: readonly string[], more: object = {}) => ({
    reward,
    additional_histories: [],
    messages_and_choices: [
      { role: "user", content: question },
      ...answers.flatMap((content, turn) => [
        ...(turn > 0 ? [{ role: "user", content: "again" }] : []),
        { message: { role: "assistant", content }, finish_reason: "stop", ...more },
      ]),
    ],
  });
  const logprobs = { content: [{ token: "a", logprob: -1, top_logprobs: [] }] };
  const sampled = { prompt_token_ids: [1, 2], token_ids: [65], logprobs };
  const group = {
    trajectories: [trajectory(1, "hi~", ["~a~", "b"]), trajectory(0, "hi~", ["b"]), trajectory(0, "~", ["~"], sampled)],
    metadata: {},
  };
  const job = await model.train([{ toJSON: () => group as never }], { allowTrainingWithoutLogprobs: true });
  const missing = (await warningsOf(job)).filter((warning) => (warning as { readonly code: string }).code === "missing-tokens");
  expect(missing).toMatchObject([{ value: 4, message: expect.stringContaining("4 bytes in 2 trajectories") }]);
});
