/** A model whose weights overflow: its own requests and jobs fail by name, and other models are served as before. */
import { expect, onTestFinished, test } from "vitest";
import { startService } from "../../src/service/index.ts";
import { finishedEvents, MODELS, SFT_JOBS, temporaryDirectory, type TestService, uploadArtifact } from "./support.ts";

/** A service with the embedded engine. */
async function startRealService() {
  const logged: string[] = [];
  const note = (message: string, fields?: unknown) => void logged.push(message, JSON.stringify(fields));
  const service = await startService({ dataDir: await temporaryDirectory(), logger: { info: note, warn: note, error: note } });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const call: TestService["call"] = async (method, path, body) => {
    const isText = typeof body === "string";
    const response = await fetch(service.url + path, {
      method,
      headers: { authorization: `Bearer ${service.apiKey}`, ...(isText ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: isText ? body : JSON.stringify(body) }),
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

test("a model with overflowing weights changes no other model's output and no checkpoint", { timeout: 60_000 }, async () => {
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

  // A job of a single step succeeds, and what it made cannot be sampled.
  const config = { batch_size: 4, learning_rate: 1e20 };
  const job = await service.ok("POST", SFT_JOBS, { model_id: broken.id, training_data_url: data, config });
  expect((await finishedEvents(service, job.id)).at(-1)?.type).toBe("training_ended");
  const answer = await chat("broken");
  expect(answer.status).toBe(500);
  expect(answer.body.error).toMatchObject({
    type: "InternalServerError",
    message: expect.stringMatching(/^The model 'local\/demo\/broken:step1' cannot be sampled\. .*no finite log-probabilities/),
  });
  const answers = await Promise.all([chat("broken"), chat("good"), chat("broken"), chat("good")]);
  expect(answers.map(({ status }) => status)).toEqual([500, 200, 500, 200]);
  for (const at of [1, 3]) expect(answers[at]!.body.choices).toEqual(before);

  // Further training fails at its first step, and the checkpoint stays.
  expect((await train(broken.id, 1e-3)).at(-1)?.data.error_message).toMatch(/^Step 1: /);
  expect(await steps(broken.id)).toEqual([0, 1]);
  expect((await chat("good")).body.choices).toEqual(before);
});
