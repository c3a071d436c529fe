/** Models with overflowing weights: their own requests and jobs fail by name, and other models are served as before. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { adapterLayout } from "../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../src/engine/onnx/model/safetensors.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { startService } from "../../src/service/index.ts";
import {
  choice,
  finishedEvents,
  group,
  MODELS,
  RL_JOBS,
  SFT_JOBS,
  temporaryDirectory,
  type TestService,
  uploadArtifact,
} from "./support.ts";

/** A service with the embedded engine. */
async function startRealService() {
  const logged: string[] = [];
  const note = (message: string, fields?: unknown) => void logged.push(message, JSON.stringify(fields));
  const service = await startService({ dataDir: await temporaryDirectory(), logger: { info: note, warn: note, error: note } });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const call: TestService["call"] = async (method, path, body) => {
    const isRaw = typeof body === "string" || body instanceof Uint8Array;
    const response = await fetch(service.url + path, {
      method,
      headers: { authorization: `Bearer ${service.apiKey}`, ...(isRaw ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body) }),
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  };
  const ok: TestService["ok"] = async (...request) => {
    const { status, body } = await call(...request);
    expect(status, JSON.stringify(body)).toBe(200);
    return body;
  };
  return { ...({ call, ok } as TestService), logged };
}

/** Uploads an adapter with finite weights and an overflowing product. Returns its address. */
async function uploadHugeAdapter(service: TestService): Promise<string> {
  const base = join(import.meta.dirname, "../../models/whetstone-tiny");
  const layout = adapterLayout(await readModelConfig(base), 2);
  const path = join(await temporaryDirectory(), "adapter_model.safetensors");
  await writeSafetensors(path, unpackTensors(new Float32Array(layout.length).fill(1e20), layout));
  const config = JSON.stringify({ peft_type: "LORA", r: 2, lora_alpha: 4 });
  return uploadArtifact(service, { "adapter_config.json": config, "adapter_model.safetensors": await readFile(path) }, "huge");
}

test("a model with overflowing weights changes no other model's output and no checkpoint", async () => {
  const service = await startRealService();
  const create = (name: string) => service.ok("POST", MODELS, { project: "demo", name, base_model: "whetstone-tiny", lora: { rank: 4 } });
  const messages = (text: string) => [{ role: "user", content: `copy: ${text}` }];
  const line = (text: string) => JSON.stringify({ messages: [...messages(text), { role: "assistant", content: text }] });
  const data = await uploadArtifact(service, { "train.jsonl": [line("abc"), line("bcd"), line("cde"), line("def")].join("\n") });
  const train = async (id: string, rate: number) => {
    const config = { batch_size: 2, learning_rate: rate };
    const job = await service.ok("POST", SFT_JOBS, { model_id: id, training_data_url: data, config });
    return finishedEvents(service, job.id);
  };
  const chat = (model: string, more: object = {}) =>
    service.call("POST", "/v1/chat/completions", {
      model: `local/demo/${model}`,
      messages: messages("a longer text"),
      max_tokens: 12,
      temperature: 0,
      ignore_eos: true,
      logprobs: true,
      ...more,
    });
  const steps = async (id: string) =>
    (await service.ok("GET", `${MODELS}/${id}/checkpoints`)).data.map(({ step }: { step: number }) => step);

  const [good, broken] = [await create("good"), await create("broken")];
  await train(good.id, 1e-3);
  const before = (await chat("good")).body.choices;
  // One step leaves every weight finite and huge.
  const first = await train(broken.id, 1e20);
  expect(first.at(-1)).toMatchObject({
    type: "training_failed",
    data: {
      error_message: expect.stringMatching(
        /^Step 2: Expected finite log-probabilities, got NaN for token \d+ of row 0; the largest trained weight is \S+, in tensor "base_model\.\S+". The job committed nothing.*Lower the learning rate/,
      ),
    },
  });
  expect(first.filter(({ type }) => type === "gradient_step")).toHaveLength(1);
  expect(await steps(broken.id)).toEqual([0]);

  // Neither does a job of a single step: no later step checks its update.
  const config = { batch_size: 4, learning_rate: 1e20 };
  const unusable = (problem: string) =>
    expect.stringMatching(new RegExp(`^Step 1: The update makes the model unusable\\. .*${problem}.*Lower the learning rate`, "u"));
  const job = await service.ok("POST", SFT_JOBS, { model_id: broken.id, training_data_url: data, config });
  expect((await finishedEvents(service, job.id)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: unusable("finite log-probabilities") },
  });
  // The tiny gradient of these choices leaves weights with which the normalization overflows, and log-probabilities do not.
  const groups = [group({ reward: 1, choices: [choice([1, 2, 3], [4, 5])] }, { reward: 0, choices: [choice([1, 2, 3], [6])] })];
  const rl = { model_id: broken.id, trajectory_groups: groups, experimental_config: { learning_rate: 1e20 } };
  const practice = await service.ok("POST", RL_JOBS, rl);
  expect((await finishedEvents(service, practice.id)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: unusable("uniform distribution") },
  });
  expect(await steps(broken.id)).toEqual([0]);
  expect((await chat("broken")).status).toBe(200);

  // Clients do not repeat a request to an uploaded adapter that cannot be sampled.
  const huge = await service.ok("POST", MODELS, {
    project: "demo",
    name: "huge",
    base_model: "whetstone-tiny",
    from: await uploadHugeAdapter(service),
  });
  const answer = await chat("huge");
  expect(answer.status).toBe(422);
  expect(answer.body.error).toMatchObject({
    type: "ValidationError",
    error_code: "E_NON_FINITE",
    message: expect.stringMatching(/^The model 'local\/demo\/huge:step0' cannot be sampled\. .*no finite log-probabilities/),
  });
  const answers = await Promise.all([chat("huge"), chat("good"), chat("huge"), chat("good")]);
  expect(answers.map(({ status }) => status)).toEqual([422, 200, 422, 200]);
  for (const at of [1, 3]) expect(answers[at]!.body.choices).toEqual(before);

  // Training fails at its first step, and the checkpoint stays.
  expect((await train(huge.id, 1e-3)).at(-1)?.data.error_message).toMatch(/^Step 1: /);
  expect(await steps(huge.id)).toEqual([0]);
  expect((await chat("good")).body.choices).toEqual(before);
});
