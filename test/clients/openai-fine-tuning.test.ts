/** Fine-tuning with the unmodified `openai` package, on the embedded engine and the shipped model. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { afterAll, describe, expect, it } from "vitest";
import { goldAnswer, reverseMessages, reverseScenario } from "../../recipes/reverse-text/task.ts";
import { startService } from "../../src/service/index.ts";
import { finished, supervised } from "../service/fine-tuning/support.ts";

const MODEL = "whetstone-tiny";
const HYPERPARAMETERS = { batch_size: 8, n_epochs: 2, learning_rate_multiplier: 1 } as const;
const SEED = 11;

/** Examples of the quickstart. */
const examples = (first: number, count: number) =>
  Array.from({ length: count }, (_, index) => {
    const scenario = reverseScenario("sft", 0, first + index);
    return { messages: [...reverseMessages(scenario), { role: "assistant" as const, content: goldAnswer(scenario) }] };
  });
const linesOf = (list: readonly object[]) => list.map((each) => JSON.stringify(each)).join("\n");
const messages = reverseMessages(reverseScenario("validation", 0, 0)) as { role: "system" | "user"; content: string }[];

describe("openai's fine-tuning", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-fine-tuning-"));
  const service = await startService({ dataDir });
  afterAll(async () => {
    await service.close();
    await rm(dataDir, { recursive: true });
  });
  const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, maxRetries: 0 });
  const upload = async (list: readonly object[]) =>
    (await client.files.create({ file: await toFile(Buffer.from(linesOf(list)), "data.jsonl"), purpose: "fine-tune" })).id;
  /** Calls a route of the service's own interface. */
  const own = async (method: string, path: string, body?: unknown): Promise<any> => {
    const response = await fetch(`${service.url}/v1/preview/${path}`, {
      method,
      headers: { authorization: `Bearer ${service.apiKey}` },
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    expect([path, response.status]).toEqual([path, 200]);
    return response.json();
  };
  /** Weights of a checkpoint. */
  const weightsOf = async (modelId: string, step: number) =>
    readFile(join(dataDir, "checkpoints", modelId, String(step), "adapter_model.safetensors"));

  it("trains the quickstart's examples to the same weights as an SFT job with the same settings, and samples them in every dialect", async () => {
    const train = examples(0, 64);
    const created = await client.fineTuning.jobs.create({
      model: MODEL,
      training_file: await upload(train),
      validation_file: await upload(examples(1000, 16)),
      suffix: "reverse",
      seed: SEED,
      method: supervised(HYPERPARAMETERS),
    });
    const job = await finished(client, created.id);
    expect(job).toMatchObject({ status: "succeeded", error: null });
    const model = job.fine_tuned_model!;
    const [last, first] = (await client.fineTuning.jobs.checkpoints.list(job.id)).data;
    expect([first!.step_number, last!.step_number]).toEqual([8, 16]);
    expect(last!.metrics.full_valid_loss).toBeLessThan(first!.metrics.full_valid_loss!);
    for (const { metrics } of [first!, last!]) {
      expect(metrics.full_valid_mean_token_accuracy).toBeGreaterThan(0.3);
      expect(metrics.full_valid_mean_token_accuracy).toBeLessThanOrEqual(1);
    }

    // The training job in the service's own interface, and one with the same settings on a model that starts like it.
    const { data: jobs } = await own("GET", "training-jobs");
    const tuned = jobs[0].model_id as string;
    expect(jobs).toMatchObject([{ type: "sft", status: "succeeded", step: 2 }]);
    const { data: models } = await own("GET", "models?project=fine-tuning");
    const from = `local/fine-tuning/${models[0].name}:step0`;
    const copy = await own("POST", "models", { project: "demo", name: "copy", base_model: MODEL, from });
    const data = await own("POST", "artifacts", { project: "demo", name: "data" });
    await own("PUT", `artifacts/${data.id}/files/train.jsonl`, linesOf(train));
    const { url } = await own("POST", `artifacts/${data.id}/commit`);
    const settings = { config: { batch_size: 8, learning_rate: 1e-3 }, experimental_config: { epochs: 2, shuffle_seed: SEED } };
    const { id } = await own("POST", "sft-training-jobs", { model_id: copy.id, training_data_url: url, ...settings });
    await expect.poll(async () => (await own("GET", `training-jobs/${id}`)).status).toBe("succeeded");
    expect((await weightsOf(copy.id, 1)).equals(await weightsOf(tuned, 2))).toBe(true);
    expect((await weightsOf(tuned, 1)).equals(await weightsOf(tuned, 2))).toBe(false);

    const request = { messages, temperature: 0, max_tokens: 16 };
    const reference = await client.chat.completions.create({ ...request, model: "local/demo/copy:step1" });
    const text = reference.choices[0]!.message.content;
    const chat = await client.chat.completions.create({ ...request, model });
    expect([chat.model, chat.choices[0]!.message.content]).toEqual([model, text]);
    const streamed = client.chat.completions.stream({ ...request, model: last!.fine_tuned_model_checkpoint });
    expect((await streamed.finalMessage()).content).toBe(text);
    const response = await client.responses.create({ model, input: messages, temperature: 0, max_output_tokens: 16 });
    expect([response.model, response.output_text]).toEqual([model, text]);
    const completion = await client.completions.create({ model, prompt: "reverse", temperature: 0, max_tokens: 2 });
    expect(completion.model).toBe(model);
    const anthropic = new Anthropic({ baseURL: service.url, apiKey: service.apiKey, maxRetries: 0 });
    const message = await anthropic.messages.create({
      model: first!.fine_tuned_model_checkpoint,
      max_tokens: 16,
      messages: [{ role: "user", content: "reverse" }],
    });
    expect(message.model).toBe(first!.fine_tuned_model_checkpoint);
    expect(await client.models.retrieve(model)).toMatchObject({ id: model, owned_by: "local", parent: MODEL });

    // A job continues from a checkpoint of another one.
    const next = await client.fineTuning.jobs.create({
      model: first!.fine_tuned_model_checkpoint,
      training_file: await upload(examples(64, 8)),
      method: supervised({ n_epochs: 1 }),
    });
    expect((await finished(client, next.id)).fine_tuned_model).toMatch(new RegExp(`^ft:${MODEL}:local::[0-9a-f]{12}$`, "u"));
    await expect(client.models.delete(MODEL)).rejects.toMatchObject({ status: 400, param: "model" });
    await expect(client.models.delete(first!.fine_tuned_model_checkpoint)).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    expect(await client.models.delete(model)).toEqual({ id: model, object: "model", deleted: true });
    await expect(client.models.delete(model)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(client.chat.completions.create({ ...request, model })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  }, 120_000);

  it("throws the client's own errors, with field and line", async () => {
    const create = (more: object): Promise<unknown> => client.fineTuning.jobs.create({ model: MODEL, training_file: "file-none", ...more });
    await expect(create({})).rejects.toMatchObject({ status: 404, param: "training_file" });
    const training_file = await upload(examples(0, 2));
    await expect(create({ training_file, model: "gpt-4o-mini" })).rejects.toMatchObject({ status: 404, param: "model" });
    await expect(create({ training_file, model: "ft:x:local::0" })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    const wrong = await upload([...examples(0, 2), { messages: [{ role: "user", content: 1 }] }]);
    await expect(create({ training_file: wrong })).rejects.toMatchObject({
      status: 400,
      type: "BadRequestError",
      param: "training_file",
      message: expect.stringMatching(/line 3: messages\.0\.content/u),
    });
    await expect(create({ training_file, validation_file: wrong })).rejects.toMatchObject({ status: 400, param: "validation_file" });
    await expect(create({ training_file, integrations: [{ type: "wandb", wandb: { project: "p" } }] })).rejects.toMatchObject({
      status: 400,
      param: "integrations",
    });
    await expect(create({ training_file, hyperparameters: { n_epochs: 0 } })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(client.fineTuning.jobs.retrieve("ftjob-none")).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    const stranger = new OpenAI({ baseURL: service.inferenceUrl, apiKey: "another", maxRetries: 0 });
    await expect(stranger.fineTuning.jobs.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    expect((await client.fineTuning.jobs.list()).data.every((job) => job.status === "succeeded")).toBe(true);
  });

  const hasPython = await promisify(execFile)("python3", ["-c", "import openai"]).then(
    () => true,
    () => false,
  );
  it.skipIf(!hasPython)(
    "works with the Python client (skipped without python3 and its package openai)",
    async () => {
      const script = join(import.meta.dirname, "fine_tuning.py");
      const path = join(dataDir, "python.jsonl");
      await writeFile(path, linesOf(examples(0, 8)));
      const env = { ...process.env, OPENAI_BASE_URL: service.inferenceUrl, OPENAI_API_KEY: service.apiKey };
      const { stdout } = await promisify(execFile)("python3", [script, path], { env });
      expect(stdout.trim().split("\n")).toEqual([
        "BadRequestError training_file",
        expect.stringMatching(/^succeeded ft:whetstone-tiny:local:py:/u),
        "deleted True",
      ]);
    },
    120_000,
  );
});
