import type OpenAI from "openai";
import type { JobCreateParams } from "openai/resources/fine-tuning/jobs/jobs";
import { describe, expect, it, onTestFinished, test } from "vitest";
import { verifyDataDirectory } from "../../../src/service/stored-files/verify.ts";
import * as testing from "../../../src/testing/index.ts";
import type { TestServiceOptions } from "../../../src/testing/index.ts";
import { modelDirectory, SIMPLE_TEMPLATE } from "../../tokenizer/fixture.ts";
import { restartable, startTestService, testBase, type TestService } from "../support.ts";
import { clientOf, eventsOf, finished, GRADER, reinforcement as method, rowsOf, upload } from "./support.ts";
import { variedScript } from "./varied-script.ts";
import { onSqlite } from "../../support/postgres.ts";

const EXACT = {
  type: "string_check",
  name: "exact",
  operation: "eq",
  input: "{{ sample.output_text }}",
  reference: "{{ item.answer }}",
} as const;

async function started(options: TestServiceOptions = {}): Promise<TestService & { readonly client: OpenAI }> {
  const service = await startTestService({ ...options, engine: { script: variedScript, ...options.engine } });
  return { ...service, client: clientOf(service) };
}

async function create(
  client: OpenAI,
  { rows = rowsOf(6), validation = rowsOf(2), ...more }: Partial<JobCreateParams> & { rows?: string; validation?: string | null } = {},
) {
  const files = {
    training_file: await upload(client, rows),
    ...(validation === null ? {} : { validation_file: await upload(client, validation) }),
  };
  return client.fineTuning.jobs.create({ model: "tiny", seed: 5, method: method({ batch_size: 2, n_epochs: 2 }), ...files, ...more });
}

describe("a reinforcement job", () => {
  it("trains on its own rollouts, measures rewards, and leaves a model and checkpoints", async () => {
    const service = await started();
    const { client, engine, ok } = service;
    const created = await create(client, { suffix: "best", metadata: { team: "a" } });
    expect(created.method).toEqual({
      type: "reinforcement",
      reinforcement: {
        grader: GRADER,
        hyperparameters: {
          ...{ batch_size: 2, n_epochs: 2, learning_rate_multiplier: 1, compute_multiplier: 1, eval_interval: 1, eval_samples: 1 },
          reasoning_effort: "default",
        },
      },
    });
    const job = await finished(client, created.id);
    expect(job).toMatchObject({ status: "succeeded", error: null, fine_tuned_model: expect.stringMatching(/^ft:tiny:local:best:/u) });
    expect(job.trained_tokens).toBeGreaterThan(0);
    const calls = engine.calls.filter(({ verb }) => verb === "sample");
    // 6 steps with 2 rows of 8 samples, and 6 validations of 2 rows.
    expect(calls).toHaveLength(6 * 2 * 8 + 6 * 2);

    const events = await eventsOf(client, job.id);
    const steps = events.filter(({ type }) => type === "metrics").map(({ data }) => data as Record<string, number>);
    expect(steps.map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6]);
    for (const step of steps) {
      expect(step["train_mean_reward"]).toBeGreaterThan(0);
      expect(step["full_valid_mean_reward"]).toBeGreaterThanOrEqual(0);
      expect(step["completion_tokens_mean"]).toBeGreaterThan(0);
    }
    expect(events.find(({ type }) => type === "metrics")?.message).toMatch(
      /^Step 1\/6: mean reward=0\.\d{4}, validation reward=0\.\d{4}, training loss=/u,
    );

    const checkpoints = (await client.fineTuning.jobs.checkpoints.list(job.id)).data;
    expect(checkpoints.map(({ step_number: step }) => step)).toEqual([6, 5, 4]);
    expect(checkpoints[0]!.metrics).toMatchObject({ step: 6, train_mean_reward: steps[5]!["train_mean_reward"] });
    for (const model of [job.fine_tuned_model!, ...checkpoints.map((each) => each.fine_tuned_model_checkpoint)]) {
      const answer = await client.chat.completions.create({ model, messages: [{ role: "user", content: "hello 7 world" }], seed: 1 });
      expect(answer.model).toBe(model);
    }
    const csv = await (await client.files.content(job.result_files[0]!)).text();
    expect(csv.split("\n")[0]).toBe("step,train_mean_reward,full_valid_mean_reward,completion_tokens_mean,train_loss");
    expect(
      csv
        .trim()
        .split("\n")
        .slice(1)
        .map((line) => Number(line.split(",")[1])),
    ).toEqual(steps.map((step) => step["train_mean_reward"]));

    const { data } = await ok("GET", "/v1/preview/training-jobs");
    expect(data).toMatchObject([{ type: "rl", status: "succeeded", step: 3 }]);
    expect(engine.livePolicies().length).toBeLessThanOrEqual(5);
  });

  it("trains the advantages of its groups like an RL job, at the rate of the model's size", async () => {
    const { client, engine } = await started();
    const { id } = await create(client, {
      rows: rowsOf(1),
      validation: null,
      method: method({ batch_size: 1, n_epochs: 1, learning_rate_multiplier: 2 }),
    });
    expect((await finished(client, id)).status).toBe("succeeded");
    const { detail } = engine.calls.find(({ verb }) => verb === "forwardBackward")!;
    const { rows, loss } = detail as { rows: { advantages: Float32Array; logprobs: Float32Array }[]; loss: { kind: string } };
    expect(loss.kind).toBe("cispo");
    expect(rows.length).toBeGreaterThan(1);
    expect(new Set(rows.map(({ advantages }) => Math.sign(advantages.at(-1)!)))).toEqual(new Set([1, -1]));
    expect(engine.calls.find(({ verb }) => verb === "optimStep")!.detail).toMatchObject({ learningRate: 6e-4, maxGradNorm: 0.1 });
  });

  it("leaves the weights as they are in a step whose groups have equal rewards", async () => {
    const { client, engine } = await started({ engine: { script: () => [5, 6] } });
    const { id } = await create(client, { validation: null });
    expect((await finished(client, id)).status).toBe("succeeded");
    expect(engine.calls.filter(({ verb }) => verb === "optimStep")).toEqual([]);
    const steps = (await eventsOf(client, id)).filter(({ type }) => type === "metrics");
    expect(steps.map(({ data }) => (data as { train_loss: number }).train_loss)).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it("samples the same with the same seed, and something else with another one", async () => {
    const { client } = await started();
    const csvOf = async (seed: number) => {
      const { id } = await create(client, { seed });
      const job = await finished(client, id);
      return (await client.files.content(job.result_files[0]!)).text();
    };
    const first = await csvOf(1);
    expect(await csvOf(1)).toBe(first);
    expect(await csvOf(2)).not.toBe(first);
  });

  it("has the same rewards with the same seed, also from a model that the grader gives no seed", async () => {
    const answer = ({ prompt, params }: { prompt: string; params: { seed: bigint } }) =>
      prompt.includes("Score") ? `{"steps":[],"result":${Number(params.seed % 7n) / 10}}` : `${params.seed % 3n}`;
    const service = await testing.startTestService({ answer });
    onTestFinished(() => service.close({ graceMs: 0 }));
    const client = clientOf({ service });
    const input = [{ role: "user", content: "Score {{ sample.output_text }}" }];
    const judge = { type: "score_model", name: "judge", model: "whetstone-tiny", input };
    const csvOf = async () => {
      const settings = method({ batch_size: 2, n_epochs: 1 }, { grader: judge });
      const { id } = await create(client, { model: "whetstone-tiny", rows: rowsOf(2), validation: null, method: settings });
      return (await client.files.content((await finished(client, id)).result_files[0]!)).text();
    };
    expect(await csvOf()).toBe(await csvOf());
  });

  it("succeeds if the weights of its rollouts cannot be released, and logs that", async () => {
    const before = ({ verb }: { readonly verb: string }) => {
      if (verb === "release") throw new Error("no such policy");
    };
    const { client, log } = await started({ engine: { before } });
    expect((await finished(client, (await create(client, { validation: null })).id)).status).toBe("succeeded");
    expect(log.map(({ message }) => message)).toContain("The weights of rollouts could not be released");
  });

  it("reports rollouts that a grader could not score, and fails if none was scored", async () => {
    const judge = {
      type: "score_model",
      name: "judge",
      model: "tiny",
      input: [{ role: "user", content: "{{ sample.output_text }} {{ item.answer }}" }],
    };
    const { client } = await started();
    const { id } = await create(client, { validation: null, method: method({}, { grader: judge }) });
    const job = await finished(client, id);
    expect(job.status).toBe("failed");
    expect(job.error?.message).toContain("The grader scored 0 of 48 rollouts of step 1. First error: Grader `judge`");
  });

  it("asks models of the service for scores, and sends tools and a form of the answers with its rollouts", async () => {
    const answer = ({ prompt, params }: { prompt: string; params: { seed: bigint } }) =>
      prompt.includes("Score") ? `{"steps":[],"result":${Number(params.seed % 5n) / 10}}` : `{"answer":"${params.seed % 3n}"}`;
    const service = await testing.startTestService({ answer });
    onTestFinished(() => service.close({ graceMs: 0 }));
    const client = clientOf({ service });
    const tool = { type: "function", function: { name: "look_up", parameters: { type: "object", properties: {} } } };
    const judge = {
      ...{ type: "score_model", name: "judge", model: "whetstone-tiny" },
      input: [{ role: "user", content: "Score {{ sample.output_json.answer }} for {{ item.answer }}" }],
    };
    const parts = { judge, exact: { ...EXACT, input: "{{ sample.output_json.answer }}" } };
    const grader = { type: "multi", graders: parts, calculate_output: "judge + exact" };
    const schema = { type: "object", properties: { answer: { type: "string" } }, required: ["answer"], additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
    const created = await create(client, {
      ...{ model: "whetstone-tiny", rows: rowsOf(2, { tools: [tool], answer: "1" }), validation: null },
      method: method({ n_epochs: 1, batch_size: 2 }, { grader, response_format }),
    });
    expect(created.method!.reinforcement).toMatchObject({ grader: { ...grader, name: "multi" }, response_format });
    expect(await finished(client, created.id)).toMatchObject({ status: "succeeded", error: null });
    const samples = service.engine.calls
      .filter(({ verb }) => verb === "sample")
      .map(({ detail }) => detail as { params: { constraint?: unknown } });
    // One sample checks the format when the job is created.
    expect(samples).toHaveLength(1 + 2 * 8 * 2);
    expect(samples.every(({ params }) => params.constraint !== undefined)).toBe(true);
    const step = (await eventsOf(client, created.id)).find(({ type }) => type === "metrics")!.data as { train_mean_reward: number };
    expect(step.train_mean_reward).toBeGreaterThan(0.1);
  });

  it("keeps its files while it is not over, and can be backed up", async () => {
    onSqlite();
    let release = () => undefined as void;
    const held = new Promise<void>((resolve) => (release = resolve));
    const { client, engine, service } = await started({ engine: { before: ({ verb }) => (verb === "optimStep" ? held : undefined) } });
    const { id, training_file: file } = await create(client);
    await expect.poll(() => engine.calls.some(({ verb }) => verb === "optimStep")).toBe(true);
    await expect(client.files.delete(file)).rejects.toMatchObject({ status: 400 });
    expect(await verifyDataDirectory(service.dataDir)).toMatchObject({ missing: [], damaged: [] });
    release();
    await finished(client, id);
    expect(await client.files.delete(file)).toMatchObject({ deleted: true });
  });

  it("continues after a restart of the service during its rollouts", async () => {
    const { start } = await restartable();
    let samples = 0;
    const held = async ({ verb }: { readonly verb: string }, { signal }: { readonly signal?: AbortSignal | undefined }) => {
      if (verb === "sample" && ++samples > 25)
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
    };
    const before = await start({ script: variedScript, before: held });
    const { id } = await create(clientOf(before));
    await expect.poll(() => samples).toBeGreaterThan(25);
    await before.service.close({ graceMs: 0 });
    const after = await start({ script: variedScript });
    expect(await finished(clientOf(after), id)).toMatchObject({ status: "succeeded", error: null });
    const csv = async (client: OpenAI, jobId: string) =>
      (await client.files.content((await finished(client, jobId)).result_files[0]!)).text();
    const { client } = await started();
    expect(await csv(clientOf(after), id)).toBe(await csv(client, (await create(client)).id));
  });

  it("is paused after a step, resumed, and cancelled", async () => {
    let release = () => undefined as void;
    let steps = 0;
    const held = new Promise<void>((resolve) => (release = resolve));
    const service = await started({ engine: { before: async ({ verb }) => (verb === "optimStep" && ++steps === 2 ? held : undefined) } });
    const { client, engine } = service;
    const { id } = await create(client);
    await expect.poll(() => steps).toBe(2);
    const pausing = client.fineTuning.jobs.pause(id);
    await expect.poll(async () => (await service.ok("GET", "/v1/preview/training-jobs")).data[0].paused).toBe(true);
    release();
    expect((await pausing).status).toBe("queued");
    const samples = engine.calls.filter(({ verb }) => verb === "sample").length;
    expect(samples).toBe(2 * (16 + 2));
    expect((await eventsOf(client, id)).at(-1)!.message).toBe("The job is paused after step 2");
    await client.fineTuning.jobs.resume(id);
    expect((await finished(client, id)).status).toBe("succeeded");

    const other = await create(client);
    await expect.poll(() => engine.calls.filter(({ verb }) => verb === "sample").length).toBeGreaterThan(6 * 18 + 10);
    expect((await client.fineTuning.jobs.cancel(other.id)).status).toBe("cancelled");
    await expect.poll(() => engine.liveModels().length).toBeLessThanOrEqual(1);
  });

  it("is rejected with a prompt that the effort makes longer than the context", async () => {
    const effort = "{%- if reasoning_effort is defined -%}{{- 'think ' * 20 -}}{%- endif -%}";
    const directory = await modelDirectory({
      "tokenizer_config.json": { eos_token: "<|end|>", chat_template: effort + SIMPLE_TEMPLATE },
    });
    const [base] = await testBase();
    const { client } = await started({ engine: { bases: [{ ...base!, directory }] } });
    const settings = { rows: rowsOf(1), validation: null };
    await create(client, settings);
    await expect(create(client, { ...settings, method: method({ reasoning_effort: "low" }) })).rejects.toMatchObject({
      status: 400,
      param: "training_file",
      message: expect.stringContaining("line 1: "),
    });
  });

  test.each<[string, object, string, RegExp]>([
    ["no settings", { method: { type: "reinforcement" } }, "method.reinforcement.grader", /Expected a grader/u],
    [
      "a python grader",
      { method: method({}, { grader: { type: "python", name: "p", source: "" } }) },
      "method.reinforcement.grader.type",
      /`python`/u,
    ],
    ["an unknown hyperparameter", { method: method({ beta: 1 } as never) }, "method.reinforcement.hyperparameters.beta", /beta/u],
    ["a batch of no rows", { method: method({ batch_size: 0 }) }, "method.reinforcement.hyperparameters.batch_size", /batch_size/u],
    [
      "an effort that the template does not have",
      { method: method({ reasoning_effort: "high" }) },
      "method.reinforcement.hyperparameters.reasoning_effort",
      /no `reasoning_effort`/u,
    ],
    [
      "a schema that is not one",
      { method: method({}, { response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "text" } } } }) },
      "method.reinforcement.response_format",
      /text/u,
    ],
    [
      "a grammar that does not parse",
      { method: method({}, { response_format: { type: "json_schema", json_schema: { name: "a", schema: { pattern: "(" } } } }) },
      "method.reinforcement.response_format",
      /pattern/u,
    ],
    ["the deprecated hyperparameters", { hyperparameters: { n_epochs: 1 } }, "hyperparameters", /supervised/u],
    ["settings of another method", { method: { ...method(), supervised: {} } }, "method.supervised", /alone/u],
    ["a row without the grader's field", { rows: rowsOf(2, { answer: undefined }) }, "training_file", /line 1: .*item\.answer/u],
    [
      "a row that ends with an answer",
      {
        rows: rowsOf(1, {
          messages: [
            { role: "user", content: "a" },
            { role: "assistant", content: "b" },
          ],
        }),
      },
      "training_file",
      /line 1: messages\.1\.role/u,
    ],
    [
      "a prompt longer than the context",
      { rows: rowsOf(1, { messages: [{ role: "user", content: "hello ".repeat(300) }] }) },
      "training_file",
      /line 1: /u,
    ],
    ["a row that is not JSON", { rows: `${rowsOf(1)}\n{` }, "training_file", /line 2: not JSON/u],
    ["no rows", { rows: "\n" }, "training_file", /empty/u],
    ["an invalid validation row", { validation: rowsOf(2, { answer: undefined }) }, "validation_file", /line 1/u],
  ])("is rejected with %s", async (_, more, param, message) => {
    const { client } = await started();
    await expect(create(client, { method: method(), ...more })).rejects.toMatchObject({
      status: 400,
      param,
      message: expect.stringMatching(message),
    });
    expect((await client.fineTuning.jobs.list()).data).toEqual([]);
  });
});
