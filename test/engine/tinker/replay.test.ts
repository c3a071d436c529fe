import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import type { Row } from "../../../src/engine/port.ts";
import { createTinkerEngine } from "../../../src/engine/tinker/engine.ts";
import { json, TinkerTransport } from "../../../src/engine/tinker/transport.ts";
import { doneAnswer } from "../../../src/engine/tinker/answers.ts";
import { params, sampleAll } from "../conformance/subject.ts";
import { type Exchange, exchanges, startReplayServer } from "./replay-server.ts";

const TEXT = [72, 69, 76, 76, 79, 0, 87, 79, 82, 76, 68];
const row: Row = { tokens: Int32Array.from(TEXT), weights: new Float32Array(TEXT.length).fill(0.05, 1) };

/** Recorded results of one kind, in their order. */
function results(path: string): any[] {
  const started = exchanges.filter((exchange) => exchange.path === `/api/v1/${path}` && exchange.status === 200);
  return started.map((exchange) => {
    const id = (exchange.response as { request_id: string }).request_id;
    return exchanges.find(({ request }) => (request as { request_id?: string } | null)?.request_id === id)!.response;
  });
}

async function scratch(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-replay-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function start() {
  const directory = await scratch();
  await writeFile(join(directory, "config.json"), JSON.stringify({ vocab_size: 128, max_position_embeddings: 64 }));
  const server = await startReplayServer();
  const engine = await createTinkerEngine({ url: server.url, baseModels: { tiny: directory }, patienceMs: 5_000 });
  onTestFinished(() => engine.close());
  return { engine, ...server };
}

it("replays a recorded run with its results, from the first model to the last release", async () => {
  const { engine, received } = await start();
  const model = await engine.createModel({ base: "tiny", lora: { rank: 8 }, seed: 1 });
  const passes = results("forward_backward");
  const steps = results("optim_step");
  for (let step = 0; step < 4; step++) {
    const { logprobs, metrics } = await engine.forwardBackward(model, [row, row], { kind: "cross-entropy" });
    const recorded = passes[step].loss_fn_outputs.map(({ logprobs: { data } }: { logprobs: { data: number[] } }) => data) as number[][];
    expect(logprobs.map((one) => [...one])).toEqual(recorded.map((data) => [0, ...data.map(Math.fround)]));
    expect(metrics.tokens).toBe(20);
    expect(metrics.loss).toBeCloseTo(-0.05 * recorded.flat().reduce((a, b) => a + b, 0), 6);
    expect(await engine.optimStep(model, { learningRate: 0.01, beta2: 0.95, epsilon: 1e-12 })).toEqual({
      gradNorm: steps[step].metrics["skyrl.ai/grad_norm"],
      step: step + 1,
    });
  }
  expect([...(await engine.forward(model, [row]))[0]!.subarray(1)]).toEqual(
    results("forward")[0].loss_fn_outputs[0].logprobs.data.map(Math.fround),
  );
  // Every operation has the next number, and a step equals the recorded step.
  expect(received.filter(({ body }) => body?.model_id !== undefined).map(({ body }) => body.seq_id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(received.find(({ path }) => path === "optim_step")!.body).toEqual(
    exchanges.find(({ path }) => path.endsWith("optim_step"))!.request,
  );
  // The server divides by 10 trained tokens of each sequence and by 2 sequences; the sent weights compensate for both.
  const sent = received.find(({ path }) => path === "forward_backward")!.body.forward_backward_input;
  expect(sent).toMatchObject({ loss_fn: "cispo", loss_fn_config: { clip_low_threshold: 1, clip_high_threshold: 1 } });
  expect(sent.data[0].loss_fn_inputs.advantages.data).toEqual(Array.from({ length: 10 }, () => Math.fround(0.05 * 10 * 2)));

  const state = await scratch();
  await engine.saveState(model, state);
  expect(JSON.parse(await readFile(join(state, "tinker.json"), "utf8"))).toMatchObject({
    base: "tiny",
    rank: 8,
    alpha: 32,
    weights: "tinker://model_d67ad937/weights/ck1",
    step: 4,
    server_step: 4,
  });
  const policy = await engine.publish(model);
  const tokens = await sampleAll(engine, policy, Int32Array.from(TEXT.slice(0, 5)), params(7));
  const [sequence] = results("asample")[0].sequences;
  expect(tokens.map(({ id, logprob }) => [id, logprob])).toEqual(
    sequence.tokens.map((id: number, i: number) => [id, sequence.logprobs[i]]),
  );
  expect(tokens.at(-1)!.finish).toBe("length");
  // Saved once; loaded into a model of the policy's own, as that model's first operation.
  expect(received.slice(-5).map(({ path, body }) => [path, body.seq_id ?? null])).toEqual([
    ["save_weights", 10],
    ["create_model", null],
    ["load_weights", 1],
    ["save_weights_for_sampler", 2],
    ["asample", 0],
  ]);
  const base = await engine.loadPolicy({ base: "tiny" });
  expect(await sampleAll(engine, base, Int32Array.from(TEXT.slice(0, 5)), params(7, { maxTokens: 4 }))).toHaveLength(4);
  await engine.release(policy);
  expect(received.at(-1)).toEqual({ path: "unload_model", body: { model_id: "model_6dc92f3a", type: "unload_model" } });
});

it.each<[string, number, (exchange: Exchange) => boolean, object]>([
  ["a number that was used for something else", 409, ({ status }) => status === 409, { code: "E_CONFLICT", retryable: false }],
  [
    "a setting that the loss has not",
    422,
    ({ status }) => status === 422,
    { code: "E_ARGUMENT", message: expect.stringContaining("Allowed keys") },
  ],
  [
    "weights loaded too late",
    400,
    ({ path, status }) => path.endsWith("load_weights") && status === 400,
    { code: "E_ENGINE", message: expect.stringContaining("not permitted with seq_id 14") },
  ],
  ["a future that is none", 404, ({ path, status }) => path.endsWith("retrieve_future") && status === 404, { code: "E_NOT_FOUND" }],
])("throws a typed error for the recorded response: %s (%i)", async (_name, status, isIt, error) => {
  const exchange = exchanges.find(isIt)!;
  const { createServer } = await import("node:http");
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(exchange.response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const transport = new TinkerTransport({ url: `http://127.0.0.1:${port}`, apiKey: null, patienceMs: 60_000 });
  onTestFinished(async () => {
    await transport.close();
    server.closeAllConnections();
    server.close();
  });
  await expect(transport.post(exchange.path.replace("/api/v1/", ""), json(exchange.request!), doneAnswer)).rejects.toMatchObject(error);
});
