/**
 * A small server of the Tinker protocol over any engine: sessions, adapters, futures, sequence numbers, both encodings, and the
 * two ways in which servers reduce a loss. Written from the protocol, not from the adapter that it is for.
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AdamParams, Engine, LossSpec, ModelHandle, PolicyVersion, Row } from "../../src/engine/port.ts";
import { readPassRequest, type WireDatum, type WirePass, writePassOutput, writeSampleResponse } from "./tinker-messages.ts";

export interface TinkerServerOptions {
  readonly engine: Engine;
  readonly base: string;
  /** Name of the base model on the server. */
  readonly baseName: string;
  /** `sequence-mean`: losses over the sum of their weights, gradients over the number of sequences, and no clipping. */
  readonly reduction: "sum" | "sequence-mean";
  /** Answers in place of the server where it gives a status. */
  readonly fault?:
    | ((
        path: string,
        body: Buffer,
      ) => { readonly status: number; readonly body: Record<string, unknown>; readonly isDone?: boolean } | null)
    | undefined;
}

export interface TinkerServer {
  readonly url: string;
  /** Every path that was asked for, polls left out. */
  readonly paths: readonly string[];
  close(): Promise<void>;
}

interface Model {
  readonly handle: ModelHandle;
  /** The body of each sequence number, and the future it was given. */
  readonly seen: Map<number, { readonly body: string; readonly future: string }>;
  /** Since the last step: sums need no more, means do. */
  pending: { readonly rows: readonly Row[]; readonly loss: LossSpec }[];
  turn: Promise<unknown>;
}

class Refusal extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

type Result = Record<string, unknown> | Uint8Array;
/** Result of a future, or a function of the accepted encoding. */
type Outcome = Result | ((accepts: string) => Result);

export async function startTinkerServer({ engine, base, baseName, reduction, fault }: TinkerServerOptions): Promise<TinkerServer> {
  const models = new Map<string, Model>();
  const states = new Map<string, string>();
  const samplers = new Map<string, PolicyVersion>();
  const futures = new Map<string, Promise<(accepts: string) => Result>>();
  const paths: string[] = [];
  const root = await mkdtemp(join(tmpdir(), "whetstone-tinker-"));

  function later(work: Promise<Outcome>): string {
    const id = randomUUID();
    const future = work.then((result) => (typeof result === "function" ? result : () => result));
    future.catch(() => {});
    futures.set(id, future);
    return id;
  }
  /** Operations of one model in their order; the same number twice is the same operation. */
  function ordered(id: string, sequence: number, body: Buffer, work: (model: Model) => Promise<Outcome>): Record<string, unknown> {
    const model = models.get(id);
    if (model === undefined) throw new Refusal(404, "Model not found");
    const seen = model.seen.get(sequence);
    const text = body.toString("latin1");
    if (seen !== undefined && seen.body !== text) throw new Refusal(409, "Training request sequence number was reused");
    if (seen !== undefined) return { request_id: seen.future };
    const done = model.turn.then(() => work(model));
    model.turn = done.catch(() => {});
    const future = later(done);
    model.seen.set(sequence, { body: text, future });
    return { request_id: future };
  }
  async function pass(model: Model, { data, lossFn, config }: WirePass, isBackward: boolean): Promise<(accepts: string) => Result> {
    const rows = data.map((datum) => rowOf(datum, reduction));
    if (isBackward) model.pending.push({ rows, loss: specOf(lossFn, config) });
    const all = rows.map((row) => ({ tokens: row.tokens, weights: new Float32Array(row.tokens.length).fill(1, 1) }));
    const logprobs = (await engine.forward(model.handle, all)).map((row) => row.subarray(1));
    return (accepts) =>
      accepts.includes("protobuf")
        ? writePassOutput(logprobs)
        : {
            loss_fn_output_type: "scalar",
            loss_fn_outputs: logprobs.map((row) => ({ logprobs: { data: [...row], dtype: "float32" } })),
            metrics: {},
          };
  }
  async function step(model: Model, adam: Record<string, number>): Promise<Record<string, unknown>> {
    const count = model.pending.reduce((sum, { rows }) => sum + rows.length, 0);
    const divisor = reduction === "sum" ? 1 : Math.max(count, 1);
    for (const { rows, loss } of model.pending) {
      const scaled = rows.map((row) => ({ ...row, weights: row.weights.map((weight) => weight / divisor) }));
      await engine.forwardBackward(model.handle, scaled, loss);
    }
    model.pending = [];
    const params: AdamParams = {
      learningRate: adam["learning_rate"]!,
      beta1: adam["beta1"],
      beta2: adam["beta2"],
      epsilon: adam["eps"],
      weightDecay: adam["weight_decay"],
      maxGradNorm: reduction === "sum" ? adam["grad_clip_norm"] : 0,
    };
    const { gradNorm } = await engine.optimStep(model.handle, params);
    return { metrics: { [reduction === "sum" ? "grad_norm" : "skyrl.ai/grad_norm"]: gradNorm } };
  }
  async function createModel({ base_model: name, lora_config: lora }: Record<string, any>): Promise<Record<string, unknown>> {
    if (name !== baseName) throw new Refusal(400, `Unknown base ${name}`);
    const handle = await engine.createModel({ base, lora: { rank: lora.rank, alpha: 32 }, seed: lora.seed });
    models.set(handle.id, { handle, seen: new Map(), pending: [], turn: Promise.resolve() });
    return { model_id: handle.id, base_model: name, lora_config: { rank: lora.rank, alpha: 32, seed: lora.seed } };
  }
  async function save(handle: ModelHandle, name: string): Promise<Record<string, unknown>> {
    const path = await mkdtemp(join(root, "state-"));
    await engine.saveState(handle, path);
    const uri = `tinker://${handle.id}/weights/${name}`;
    states.set(uri, path);
    return { path: uri, type: "save_weights" };
  }
  async function saveForSampler(handle: ModelHandle, name: string | undefined): Promise<Record<string, unknown>> {
    const id = name === undefined ? `sampling_${randomUUID()}` : `tinker://${handle.id}/sampler_weights/${name}`;
    samplers.set(id, await engine.publish(handle));
    return name === undefined ? { path: null, sampling_session_id: id } : { path: id, sampling_session_id: null };
  }
  async function load(model: Model, path: string): Promise<Record<string, unknown>> {
    const state = states.get(path);
    if (state === undefined) throw new Refusal(404, `No weights at ${path}`);
    await engine.loadState(model.handle, state);
    return { type: "load_weights" };
  }
  async function sample(body: Record<string, any>): Promise<(accepts: string) => Result> {
    const name = body["sampling_session_id"] ?? body["model_path"] ?? `base:${body["base_model"]}`;
    if (body["base_model"] === baseName && !samplers.has(name)) samplers.set(name, await engine.loadPolicy({ base }));
    const policy = samplers.get(name);
    if (policy === undefined) throw new Refusal(404, "Sampling session not found");
    const given = body["sampling_params"];
    const params = {
      maxTokens: given.max_tokens,
      temperature: given.temperature,
      topP: given.top_p,
      topK: Math.max(0, given.top_k),
      seed: BigInt(given.seed),
      stopTokenIds: given.stop,
      topLogprobs: 0,
    };
    const sequences: { stop_reason: string; tokens: number[]; logprobs: number[] }[] = [];
    for (let i = 0; i < body["num_samples"]; i++) {
      const tokens: number[] = [];
      const logprobs: number[] = [];
      let reason = "length";
      for await (const token of engine.sample(policy, Int32Array.from(body["prompt"].chunks[0].tokens), {
        ...params,
        seed: params.seed + BigInt(i),
      })) {
        tokens.push(token.id);
        logprobs.push(token.logprob);
        reason = token.finish ?? reason;
      }
      sequences.push({ stop_reason: reason, tokens, logprobs });
    }
    return (accepts) => (accepts.includes("protobuf") ? writeSampleResponse(sequences) : { sequences, prompt_logprobs: null });
  }

  /** The answer to one request. */
  async function route(path: string, body: Buffer, request: IncomingMessage): Promise<Result> {
    if (path === "/") return { name: reduction === "sum" ? "A Tinker server" : "Tinker API Mock" };
    if (path === "get_server_capabilities") return { supported_models: [{ model_name: baseName }] };
    if (path === "forward_backward" && request.headers["content-type"] === "application/x-protobuf") {
      const given = readPassRequest(body);
      return ordered(given.modelId, given.sequence, body, (model) => pass(model, given, true));
    }
    const given = JSON.parse(body.toString()) as Record<string, any>;
    const inOrder = (work: (model: Model) => Promise<Outcome>) => ordered(given["model_id"], given["seq_id"], body, work);
    switch (path) {
      case "create_session":
        return { session_id: "session_1", type: path };
      case "session_heartbeat":
        return { type: path };
      case "create_model":
        return { request_id: later(createModel(given)) };
      case "forward":
      case "forward_backward": {
        const input = given[`${path}_input`];
        const data = (input.data as any[]).map(wireDatum);
        return inOrder((model) =>
          pass(model, { data, lossFn: input.loss_fn, config: input.loss_fn_config ?? {} }, path === "forward_backward"),
        );
      }
      case "optim_step":
        return inOrder((model) => step(model, given["adam_params"]));
      case "save_weights":
        return inOrder(({ handle }) => save(handle, given["path"]));
      case "save_weights_for_sampler":
        return inOrder(({ handle }) => saveForSampler(handle, given["path"]));
      case "load_weights":
        if (given["seq_id"] !== 1) throw new Refusal(400, `LoadWeights is not permitted with seq_id ${given["seq_id"]}`);
        return inOrder((model) => load(model, given["path"]));
      case "asample":
        return { request_id: later(sample(given)) };
      case "unload_model": {
        const model = models.get(given["model_id"]);
        if (model === undefined) throw new Refusal(404, "Model not found");
        models.delete(given["model_id"]);
        return { request_id: later(model.turn.then(() => engine.unload(model.handle)).then(() => ({ status: "unloaded" }))) };
      }
      case "retrieve_future": {
        const future = futures.get(given["request_id"]);
        if (future === undefined) throw new Refusal(404, "Future not found");
        return (await future.catch((error: Error) => Promise.reject(new Refusal(400, error.message))))(request.headers.accept ?? "");
      }
      default:
        throw new Refusal(404, `No ${path}`);
    }
  }
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const path = (request.url ?? "").replace("/api/v1/", "");
    if (path !== "retrieve_future") paths.push(path);
    const faulty = fault?.(path, body) ?? null;
    const send = (status: number, result: Result) => {
      const isBytes = result instanceof Uint8Array;
      response.writeHead(status, { "content-type": isBytes ? "application/x-protobuf" : "application/json" });
      response.end(isBytes ? result : JSON.stringify(result));
    };
    // A fault may come after the work: then its answer is what gets lost.
    if (faulty !== null && faulty.isDone !== true) return send(faulty.status, faulty.body);
    try {
      const result = await route(path, body, request);
      send(faulty?.status ?? 200, faulty?.body ?? result);
    } catch (error) {
      send(error instanceof Refusal ? error.status : 500, { detail: (error as Error).message });
    }
  }

  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    paths,
    async close() {
      server.closeAllConnections();
      server.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}

function wireDatum({ model_input: input, loss_fn_inputs: inputs }: any): WireDatum {
  const numbers = (name: string) => (inputs[name] === undefined ? undefined : (inputs[name].data as number[]));
  return {
    tokens: input.chunks[0].tokens,
    targets: numbers("target_tokens")!,
    weights: numbers("weights"),
    advantages: numbers("advantages"),
    logprobs: numbers("logprobs"),
  };
}

/** Returns a row with a plain weighted sum equal to the server's loss of the datum, before the division by the number of sequences. */
function rowOf(
  { tokens, targets, weights = targets.map(() => 1), advantages, logprobs }: WireDatum,
  reduction: "sum" | "sequence-mean",
): Row {
  const total =
    reduction === "sum"
      ? 1
      : Math.max(
          weights.reduce((a, b) => a + b, 0),
          1e-9,
        );
  const shifted = (values: readonly number[]) => Float32Array.of(0, ...values);
  return {
    tokens: Int32Array.of(...tokens, targets.at(-1)!),
    weights: shifted(weights.map((weight) => weight / total)),
    ...(advantages === undefined ? {} : { advantages: shifted(advantages) }),
    ...(logprobs === undefined ? {} : { logprobs: shifted(logprobs) }),
  };
}

function specOf(name: string, config: Readonly<Record<string, number>>): LossSpec {
  if (name === "cross_entropy") return { kind: "cross-entropy" };
  const { clip_low_threshold: low = 0.8, clip_high_threshold: high = 1.2 } = config;
  return { kind: name as "cispo" | "ppo", epsilon: 1 - low, epsilonHigh: high - 1 };
}
