/** Real exceptions in the threads of the embedded engine, under a running service. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { type RunningService, startService } from "../../src/service/index.ts";
import {
  BASE,
  eventsSoFar,
  finishedEvents,
  MODELS,
  RL_JOBS,
  rollOut,
  send,
  SFT_JOBS,
  temporaryDirectory,
  uploadExamples,
  withoutTimes,
} from "./support.ts";

const STEPS = 12;
const BATCH = 8;
/** Time that a restart and what follows it may take at most. */
const DEADLINE_MS = 60_000;

interface Host {
  readonly service: RunningService;
  /** Threads in the order of their start: the sampler, the trainer, and later their replacements and the trainer's helper. */
  readonly workers: readonly Worker[];
  readonly log: { readonly message: string; readonly fields: any }[];
}

/** Starts a service with one sampler, and gives the test access to its threads. */
async function startHost(options: { readonly dataDir?: string } = {}): Promise<Host> {
  const workers: Worker[] = [];
  const onWorker = (worker: Worker) => workers.push(worker);
  process.on("worker", onWorker);
  onTestFinished(() => void process.off("worker", onWorker));
  const log: Host["log"] = [];
  const write = (message: string, fields?: unknown) => void log.push({ message, fields });
  const service = await startService({
    dataDir: options.dataDir ?? (await temporaryDirectory()),
    samplers: 1,
    trainerThreads: 1,
    limits: { commitEverySteps: 4 },
    logger: { info: () => {}, warn: write, error: write },
  });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const host = { service, workers, log };
  const engineThreads = workers.length;
  // The first request starts the thread that reads tokenizers, which does not belong to the engine.
  expect((await chat(host, {})).status).toBe(200);
  workers.splice(engineThreads);
  return host;
}

/** Raises an exception in a thread: no message of the engine is null, so that the listener throws. */
const crash = (worker: Worker) => worker.postMessage(null);

const health = async ({ service }: Host) => {
  const response = await fetch(`${service.url}/health`);
  return { status: response.status, body: (await response.json()) as { status: string; workers: { name: string; restarts: number }[] } };
};

function chat({ service }: Host, body: object): Promise<Response> {
  return fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content: "copy: abc" }], max_tokens: 8, temperature: 0, ...body }),
  });
}

/** The answer's text, as soon as the service gives one. */
async function textOf(host: Host, model: string): Promise<string> {
  for (const deadline = Date.now() + DEADLINE_MS; ; await delay(20)) {
    const response = await chat(host, { model });
    const body: any = await response.json();
    if (response.ok) return body.choices[0].message.content;
    if (response.status !== 503 || Date.now() > deadline) throw new Error(`Expected an answer in time, got ${JSON.stringify(body)}`);
  }
}

async function trainedModel(host: Host): Promise<string> {
  const { id, entity } = await send(host.service, "POST", MODELS, {
    project: "demo",
    name: "trained",
    base_model: BASE,
    lora: { rank: 2 },
  });
  const url = await uploadExamples(host.service, 4);
  const job = await send(host.service, "POST", SFT_JOBS, {
    model_id: id,
    training_data_url: url,
    config: { batch_size: 4, learning_rate: 1e-2 },
  });
  await finishedEvents(host.service, job.id);
  return `${entity}/demo/trained`;
}

test(
  "an exception in the sampler ends its requests with 503; later requests get the same answers as before",
  { timeout: 120_000 },
  async () => {
    const host = await startHost();
    const models = [BASE, await trainedModel(host)];
    const before = [await textOf(host, models[0]!), await textOf(host, models[1]!)];
    expect((await health(host)).body).toMatchObject({ status: "ok", workers: [{ name: "sampler-0", restarts: 0 }, { name: "trainer" }] });

    const stream = await chat(host, { model: BASE, max_tokens: 200, stream: true, ignore_eos: true });
    const whole = chat(host, { model: models[1], max_tokens: 200, ignore_eos: true });
    const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
    await reader.read();
    crash(host.workers[0]!);
    let events = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) events += part.value;
    expect(events).toContain('"type":"ServiceUnavailableError"');
    const answer = await whole;
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("1");
    expect(await answer.json()).toEqual({
      error: {
        message: expect.stringContaining("worker died"),
        type: "ServiceUnavailableError",
        param: null,
        code: 503,
        error_code: "E_UNAVAILABLE",
      },
    });

    expect([await textOf(host, models[0]!), await textOf(host, models[1]!)]).toEqual(before);
    expect(await health(host)).toMatchObject({
      status: 200,
      body: {
        status: "ok",
        workers: [
          { name: "sampler-0", state: "running", restarts: 1 },
          { name: "trainer", restarts: 0 },
        ],
      },
    });
    expect(host.log).toContainEqual({
      message: expect.stringContaining("worker of the engine died"),
      fields: expect.objectContaining({ worker: "sampler-0", restartsInMs: 100 }),
    });
  },
);

test("a sampler that dies repeatedly is restarted after increasing delays, reported by /health", { timeout: 120_000 }, async () => {
  const host = await startHost();
  for (let death = 0; death < 3; death++) {
    crash(host.workers.filter((_, index) => index !== 1).at(-1)!);
    for (const deadline = Date.now() + DEADLINE_MS; ; await delay(5)) {
      const { status, body } = await health(host);
      if (status === 503) {
        expect(body).toMatchObject({ status: "unavailable", workers: [{ state: "restarting", restarts: death }, { state: "running" }] });
        // The replacement may be there by now.
        expect([200, 503]).toContain((await chat(host, {})).status);
      }
      if (body.workers[0]!.restarts === death + 1) break;
      if (Date.now() > deadline) throw new Error("The sampler was not restarted in time");
    }
  }
  expect(host.log.map(({ fields }) => fields.restartsInMs)).toEqual([100, 200, 400]);
  expect(await textOf(host, BASE)).toBeTypeOf("string");
});

test("a job in which the trainer dies ends with the same weights; queued jobs wait", { timeout: 240_000 }, async () => {
  const run = async (host: Host, isKilled: boolean) => {
    const { id } = await send(host.service, "POST", MODELS, { project: "demo", name: "killed", base_model: BASE });
    const sft = await send(host.service, "POST", SFT_JOBS, {
      model_id: id,
      training_data_url: await uploadExamples(host.service, STEPS * BATCH),
      config: { batch_size: BATCH, learning_rate: 1e-3 },
    });
    const groups = [await rollOut(host.service, "Write about one.", { n: 4 })];
    const rl = await send(host.service, "POST", RL_JOBS, { model_id: id, trajectory_groups: groups });
    if (isKilled) {
      while ((await eventsSoFar(host.service, sft.id)).length < 7) await delay(5);
      crash(host.workers[1]!);
      for (const deadline = Date.now() + DEADLINE_MS; (await health(host)).body.workers[1]!.restarts === 0; await delay(5)) {
        expect(await send(host.service, "GET", `${RL_JOBS}/${rl.id}`)).toMatchObject({ status: "queued" });
        if (Date.now() > deadline) throw new Error("The trainer was not restarted in time");
      }
    }
    const events = [...(await finishedEvents(host.service, sft.id)), ...(await finishedEvents(host.service, rl.id))];
    const path = join(host.service.dataDir, "checkpoints", id, "2", "model.safetensors");
    return { events: events.map(({ type, data }) => [type, withoutTimes(data)]), weights: await readFile(path) };
  };
  const calm = await run(await startHost(), false);
  const host = await startHost();
  const killed = await run(host, true);
  expect(killed.events).toEqual(calm.events);
  expect(killed.weights.equals(calm.weights)).toBe(true);
  expect((await health(host)).body).toMatchObject({ status: "ok", workers: [{ restarts: 0 }, { name: "trainer", restarts: 1 }] });
});
