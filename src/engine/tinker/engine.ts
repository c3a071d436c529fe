/** Engine on a Tinker-protocol server. The server trains and samples adapters; tokenization happens locally. */
import { randomUUID } from "node:crypto";
import { ConfigError, NotFoundError, UnsupportedError } from "../../base/errors.ts";
import { checkRows, checkSampling } from "../check-request.ts";
import type { AdamParams, CallOptions, Engine, LossSpec, ModelHandle, PolicyVersion, Row, SampledToken, SamplingParams } from "../port.ts";
import { capabilitiesAnswer, doneAnswer, savedAnswer } from "./answers.ts";
import { findBase, matchBases } from "./bases.ts";
import type { TinkerEncoding } from "./encoding.ts";
import { type LiveModel, type LivePolicy, unsaved } from "./live.ts";
import { checkSupported, sampleSequence, type SamplingTarget, toSeed } from "./sampler.ts";
import { ServerModel } from "./server-model.ts";
import { SERVERS, serverNamed, type TinkerServer } from "./servers.ts";
import { TinkerSession } from "./session.ts";
import { readSavedState, writeSavedState } from "./state.ts";
import { Trainable, type TrainableContext } from "./trainable.ts";
import { TinkerTransport } from "./transport.ts";

/** Settings of an engine on a Tinker-protocol server. */
export interface TinkerEngineOptions {
  /** Address of the server, without `/api/v1`. */
  readonly url: string;
  /** API key, sent as `X-API-Key`. @default none */
  readonly apiKey?: string | undefined;
  /**
   * Directories of base models in Hugging Face layout, by identifier. Only configuration and tokenizer are read. The server must list
   * the same model under the identifier, or under a path that ends with it.
   */
  readonly baseModels: Readonly<Record<string, string>>;
  /** Kind of server, which determines loss reduction and gradient clipping. @default detected from the server's root */
  readonly server?: TinkerServer | undefined;
  /** Encoding of requests and results. @default "json" */
  readonly encoding?: TinkerEncoding | undefined;
  /** Time after which a call fails if the server cannot be reached or is overloaded, in milliseconds. @default 120000 */
  readonly patienceMs?: number | undefined;
}

/** Maximum time that `close` waits for the server to unload models, in milliseconds. */
const CLOSE_PATIENCE_MS = 5_000;

/**
 * Connects to a Tinker-protocol server and opens a session.
 *
 * @param options - Address, API key and base models.
 * @returns Connected engine; call `close` to end its session.
 * @throws ConfigError `E_CONFIG` if `url` is not an http or https address, if the server rejects the API key, or if it serves none of
 *   the base models.
 * @throws DataError `E_DATA` for a base model directory without a readable configuration.
 * @throws EngineError `E_ENGINE` if the server cannot be reached for `patienceMs`.
 * @example
 * ```ts
 * const engine = await createTinkerEngine({ url: "http://localhost:8000", baseModels: { "Qwen/Qwen3-8B": "/models/qwen3-8b" } });
 * ```
 */
export async function createTinkerEngine(options: TinkerEngineOptions): Promise<Engine> {
  const url = URL.canParse(options.url) ? new URL(options.url) : null;
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new ConfigError(`Expected the engine's address to be an http or https address, got \`${options.url}\``, { param: "url" });
  const transport = new TinkerTransport({ url: options.url, apiKey: options.apiKey ?? null, patienceMs: options.patienceMs ?? 120_000 });
  try {
    const served = await transport.get("get_server_capabilities", capabilitiesAnswer);
    const bases = await matchBases(options.baseModels, served);
    const traits = SERVERS[options.server ?? serverNamed(await transport.rootName())];
    const context = { transport, traits, encoding: options.encoding ?? "json" };
    return new TinkerEngine(options.url, bases, await TinkerSession.open(transport), context);
  } catch (error) {
    await transport.close();
    throw error;
  }
}

/** Engine whose models and policies are on a server; holds their names and states. */
class TinkerEngine implements Engine {
  readonly #url: string;
  readonly #bases: Awaited<ReturnType<typeof matchBases>>;
  readonly #session: TinkerSession;
  readonly #context: TrainableContext;
  readonly #models = new Map<string, LiveModel>();
  readonly #policies = new Map<string, LivePolicy>();

  constructor(url: string, bases: Awaited<ReturnType<typeof matchBases>>, session: TinkerSession, context: TrainableContext) {
    this.#url = url;
    this.#bases = bases;
    this.#session = session;
    this.#context = context;
  }

  capabilities() {
    return {
      name: "tinker",
      baseModels: [...this.#bases.keys()],
      lora: true,
      fullParameter: false,
      clipsGradients: this.#context.traits.clipsGradients,
      maxTopLogprobs: 0,
      cacheSalts: false,
      deterministic: false,
    };
  }

  async describeBase(base: string) {
    return findBase(this.#bases, base).info;
  }

  async createModel(spec: Parameters<Engine["createModel"]>[0], { signal }: CallOptions = {}): Promise<ModelHandle> {
    const { base, lora, from, seed, fresh = false } = spec;
    findBase(this.#bases, base);
    if (fresh) throw new UnsupportedError("A Tinker server makes no base models", { param: "fresh" });
    if (lora === undefined) {
      throw new UnsupportedError('A Tinker server trains adapters only; create the model with `lora`, for example {"rank": 16}', {
        param: "lora",
      });
    }
    const state = from === undefined ? null : await readSavedState(from, { server: this.#url, base, rank: lora.rank });
    const server = await this.#newModel(base, lora.rank, seed, state?.weights ?? null, signal);
    if (lora.alpha !== undefined && lora.alpha !== server.alpha) {
      await server.discard();
      const serverAlpha = server.alpha ?? "of its own choice";
      throw new UnsupportedError(`The Tinker server scales adapters by alpha ${serverAlpha}, not ${lora.alpha}; leave alpha out`, {
        param: "lora.alpha",
      });
    }
    const trainable = new Trainable(server, this.#context);
    if (state !== null) trainable.replace(server, { step: state.step, serverStep: state.server_step });
    const handle: ModelHandle = { id: randomUUID(), base };
    const saved = state === null ? unsaved() : { weights: state.weights, sampler: state.sampler };
    this.#models.set(handle.id, { handle, rank: lora.rank, trainable, saved });
    return handle;
  }

  async forward(model: ModelHandle, rows: readonly Row[], { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const { trainable } = this.#model(model);
    checkRows(rows, findBase(this.#bases, model.base).info, null);
    return trainable.forward(rows, signal);
  }

  async forwardBackward(model: ModelHandle, rows: readonly Row[], loss: LossSpec, { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const { trainable } = this.#model(model);
    checkRows(rows, findBase(this.#bases, model.base).info, loss);
    return trainable.forwardBackward(rows, loss, signal);
  }

  async optimStep(model: ModelHandle, adam: AdamParams, { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const live = this.#model(model);
    try {
      return await live.trainable.optimStep(adam, signal);
    } finally {
      live.saved = unsaved();
    }
  }

  async resetOptimizer(model: ModelHandle, { signal }: CallOptions = {}): Promise<void> {
    const live = this.#model(model);
    try {
      await live.trainable.resetOptimizer(signal);
    } finally {
      live.saved = unsaved();
    }
  }

  async saveState(model: ModelHandle, path: string, { signal }: CallOptions = {}): Promise<void> {
    const live = this.#model(model);
    const { trainable, rank } = live;
    const weights = await this.#save(live, signal);
    const sampler = this.#context.traits.policies === "snapshot" ? await this.#snapshot(live, signal) : null;
    const { step, serverStep, server } = trainable;
    const identity = { format: 1, server: this.#url, base: model.base, rank, alpha: server.alpha } as const;
    await writeSavedState(path, { ...identity, weights, sampler, step, server_step: serverStep });
  }

  async loadState(model: ModelHandle, path: string, { signal }: CallOptions = {}): Promise<void> {
    const live = this.#model(model);
    const { trainable, rank } = live;
    const state = await readSavedState(path, { server: this.#url, base: model.base, rank });
    const replaced = trainable.server;
    const loaded = await this.#newModel(model.base, rank, 0, state.weights, signal);
    trainable.replace(loaded, { step: state.step, serverStep: state.server_step });
    live.saved = { weights: state.weights, sampler: state.sampler };
    await replaced.discard();
  }

  async publish(model: ModelHandle, { signal }: CallOptions = {}): Promise<PolicyVersion> {
    const live = this.#model(model);
    if (this.#context.traits.policies === "snapshot")
      return this.#addPolicy(model.base, { model_path: await this.#snapshot(live, signal) });
    return this.#copy(model.base, live.rank, await this.#save(live, signal), signal);
  }

  async loadPolicy({ base, state }: { base: string; state?: string | undefined }, { signal }: CallOptions = {}): Promise<PolicyVersion> {
    const { serverName } = findBase(this.#bases, base);
    if (state === undefined) return this.#addPolicy(base, { base_model: serverName });
    const saved = await readSavedState(state, { server: this.#url, base });
    if (saved.sampler !== null) return this.#addPolicy(base, { model_path: saved.sampler });
    return this.#copy(base, saved.rank, saved.weights, signal);
  }

  async *sample(
    policy: PolicyVersion,
    prompt: Int32Array,
    params: SamplingParams,
    { signal }: CallOptions = {},
  ): AsyncGenerator<SampledToken, void> {
    signal?.throwIfAborted();
    const live = this.#policies.get(policy.id);
    if (live === undefined || live.isReleased) throw new NotFoundError(`The engine holds no policy "${policy.id}"; it was released`);
    const { info } = findBase(this.#bases, live.base);
    checkSampling(prompt, params, { ...info, maxTopLogprobs: this.capabilities().maxTopLogprobs });
    checkSupported(params);
    const maxTokens = Math.min(params.maxTokens, info.contextLength - prompt.length);
    const earlierRequests = live.requests;
    live.requests++;
    live.running++;
    try {
      const { transport, encoding } = this.#context;
      const request = { target: live.target, number: earlierRequests, prompt, params, maxTokens };
      for (const token of await sampleSequence(transport, encoding, request, signal)) {
        signal?.throwIfAborted();
        yield token;
      }
    } finally {
      live.running--;
      // Reports the sequence's own error rather than a failure to unload its policy's model.
      if (live.isReleased) await this.#drop(policy.id, live).catch(() => undefined);
    }
  }

  async release({ id }: PolicyVersion): Promise<void> {
    const live = this.#policies.get(id);
    if (live === undefined) return;
    live.isReleased = true;
    await this.#drop(id, live);
  }

  async unload({ id }: ModelHandle): Promise<void> {
    const live = this.#models.get(id);
    this.#models.delete(id);
    await live?.trainable.server.unload();
  }

  async close(): Promise<void> {
    this.#session.close();
    const servers = [...this.#models.values()].map(({ trainable }) => trainable.server);
    const ownModels = [...this.#policies.values()].flatMap((policy) => policy.ownModel ?? []);
    this.#models.clear();
    this.#policies.clear();
    // Optional: the server also unloads the models when the heartbeats stop, but later.
    await Promise.race([
      Promise.all([...servers, ...ownModels].map((server) => server.discard())),
      new Promise((resolve) => setTimeout(resolve, CLOSE_PATIENCE_MS).unref()),
    ]);
    await this.#context.transport.close();
  }

  /** Returns the state of a model. @throws NotFoundError `E_NOT_FOUND` if it was unloaded. */
  #model({ id }: ModelHandle): LiveModel {
    const live = this.#models.get(id);
    if (live === undefined) throw new NotFoundError(`The engine holds no trainable model "${id}"; it was unloaded`);
    return live;
  }

  /** Registers a policy. @param ownModel - Model on the server that is unloaded with the policy. @default none */
  #addPolicy(base: string, target: SamplingTarget, ownModel: ServerModel | null = null): PolicyVersion {
    const id = randomUUID();
    this.#policies.set(id, { base, target, ownModel, requests: 0, running: 0, isReleased: false });
    return { id, base };
  }

  /** Removes a released policy, and its own model on the server, when its last request has ended. */
  async #drop(id: string, live: LivePolicy): Promise<void> {
    if (live.running > 0 || !this.#policies.delete(id)) return;
    await live.ownModel?.unload();
  }

  /** Creates a model on the server and loads saved weights and moments into it, if given. */
  async #newModel(base: string, rank: number, seed: number, weights: string | null, signal: AbortSignal | undefined): Promise<ServerModel> {
    const { serverName } = findBase(this.#bases, base);
    const { transport } = this.#context;
    const server = await ServerModel.create(transport, this.#session, { base: serverName, rank, seed: toSeed(BigInt(seed)) }, signal);
    if (weights === null) return server;
    try {
      await server.runJson("load_weights", { path: weights, optimizer: true }, doneAnswer, signal);
      return server;
    } catch (error) {
      await server.discard();
      throw error;
    }
  }

  /** Saves the training state under a new name and returns the name; reuses the last save if nothing changed since. */
  async #save(live: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    // The object may be replaced while the save is in progress; see `LiveModel.saved`.
    const { saved } = live;
    saved.weights ??= await this.#saveAs("save_weights", live, signal);
    return saved.weights;
  }

  /** Saves the sampling weights under a new name and returns the name; reuses the last save if nothing changed since. */
  async #snapshot(live: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    const { saved } = live;
    saved.sampler ??= await this.#saveAs("save_weights_for_sampler", live, signal);
    return saved.sampler;
  }

  /** Runs an operation that saves weights under a new name, and returns the name. */
  async #saveAs(operation: string, { trainable }: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    return (await trainable.server.runJson(operation, { path: randomUUID() }, savedAnswer, signal)).path;
  }

  /** Creates a policy with its own copy of the model on the server. */
  async #copy(base: string, rank: number, weights: string, signal: AbortSignal | undefined): Promise<PolicyVersion> {
    const copy = await this.#newModel(base, rank, 0, weights, signal);
    try {
      return this.#addPolicy(base, { sampling_session_id: await copy.saveForSampling(signal) }, copy);
    } catch (error) {
      await copy.discard();
      throw error;
    }
  }
}
