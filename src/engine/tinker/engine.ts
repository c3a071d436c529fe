/** An engine behind a Tinker-protocol server: adapters are trained and sampled there, rows and tokens are made here. */
import { randomUUID } from "node:crypto";
import { ConfigError, NotFoundError, UnsupportedError } from "../../errors.ts";
import { checkRows, checkSampling } from "../check-request.ts";
import type { CallOptions, Engine, LoraSpec, ModelHandle, PolicyVersion, SampledToken } from "../port.ts";
import { capabilitiesAnswer, doneAnswer, savedAnswer } from "./answers.ts";
import { findBase, matchBases } from "./bases.ts";
import type { TinkerEncoding } from "./encoding.ts";
import { checkSupported, sampleSequence, type SamplingTarget, toSeed } from "./sampler.ts";
import { ServerModel } from "./server-model.ts";
import { SERVERS, serverNamed, type TinkerServer } from "./servers.ts";
import { Session } from "./session.ts";
import { readSavedState, type SavedState, writeSavedState } from "./state.ts";
import { Trainable, type TrainableContext } from "./trainable.ts";
import { TinkerTransport } from "./transport.ts";

/** Settings of an engine on a Tinker-protocol server. */
export interface TinkerEngineOptions {
  /** Address of the server, without `/api/v1`. */
  readonly url: string;
  /** Sent as `X-API-Key`. @default none */
  readonly apiKey?: string | undefined;
  /**
   * Base models by identifier: directories in Hugging Face layout, whose configuration and tokenizer are read. The server names
   * the same model by the identifier, or by a path that ends in it.
   */
  readonly baseModels: Readonly<Record<string, string>>;
  /** The kind of server: what losses are reduced to, and whether gradients are clipped. @default told by the server's root */
  readonly server?: TinkerServer | undefined;
  /** How rows are sent and results asked for. @default "json" */
  readonly encoding?: TinkerEncoding | undefined;
  /** How long the server may be out of reach or overloaded before a call fails, milliseconds. @default 120000 */
  readonly patienceMs?: number | undefined;
}

interface LiveModel {
  readonly handle: ModelHandle;
  readonly rank: number;
  readonly trainable: Trainable;
  /** Another one once the weights have changed: what is saved meanwhile names weights of before. */
  saved: SavedNames;
}

/** The server's names of a model's weights: with their moments, and for sampling. Null where they have none. */
interface SavedNames {
  weights: string | null;
  sampler: string | null;
}

const unsaved = (): SavedNames => ({ weights: null, sampler: null });

interface LivePolicy {
  readonly base: string;
  readonly target: SamplingTarget;
  /** The model that only this policy uses. */
  readonly own: ServerModel | null;
  requests: number;
  running: number;
  isReleased: boolean;
}

/**
 * Connects to a Tinker-protocol server and opens a session.
 *
 * @throws ConfigError `E_CONFIG` for an address that is none, a refused key, or a server with none of the base models.
 * @throws EngineError `E_ENGINE` when the server cannot be reached for `patienceMs`.
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
    return new TinkerEngine(options.url, bases, await Session.open(transport), context);
  } catch (error) {
    await transport.close();
    throw error;
  }
}

class TinkerEngine implements Engine {
  readonly #url: string;
  readonly #bases: Awaited<ReturnType<typeof matchBases>>;
  readonly #session: Session;
  readonly #context: TrainableContext;
  readonly #models = new Map<string, LiveModel>();
  readonly #policies = new Map<string, LivePolicy>();

  constructor(url: string, bases: Awaited<ReturnType<typeof matchBases>>, session: Session, context: TrainableContext) {
    [this.#url, this.#bases, this.#session, this.#context] = [url, bases, session, context];
  }

  capabilities() {
    return {
      name: "tinker",
      baseModels: [...this.#bases.keys()],
      losses: ["cross-entropy", "cispo", "ppo"] as const,
      lora: true,
      fullParameter: false,
      clipsGradients: this.#context.traits.clipsGradients,
      maxTopLogprobs: 0,
      deterministic: false,
    };
  }

  async describeBase(base: string) {
    return findBase(this.#bases, base).info;
  }

  async createModel(
    spec: { base: string; lora?: LoraSpec | undefined; from?: string | undefined; seed: number; fresh?: boolean | undefined },
    { signal }: CallOptions = {},
  ): Promise<ModelHandle> {
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
      const its = server.alpha ?? "of its own choice";
      throw new UnsupportedError(`The Tinker server scales adapters by alpha ${its}, not ${lora.alpha}; leave alpha out`, {
        param: "lora.alpha",
      });
    }
    const trainable = new Trainable(server, this.#context);
    if (state !== null) trainable.replace(server, { step: state.step, serverStep: state.server_step });
    const handle: ModelHandle = { id: randomUUID(), base };
    this.#models.set(handle.id, {
      handle,
      rank: lora.rank,
      trainable,
      saved: state === null ? unsaved() : { weights: state.weights, sampler: state.sampler },
    });
    return handle;
  }

  async forward(model: ModelHandle, rows: Parameters<Engine["forward"]>[1], { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const { trainable } = this.#model(model);
    checkRows(rows, findBase(this.#bases, model.base).info, null);
    return trainable.forward(rows, signal);
  }

  async forwardBackward(
    model: ModelHandle,
    rows: Parameters<Engine["forwardBackward"]>[1],
    loss: Parameters<Engine["forwardBackward"]>[2],
    { signal }: CallOptions = {},
  ) {
    signal?.throwIfAborted();
    const { trainable } = this.#model(model);
    checkRows(rows, findBase(this.#bases, model.base).info, loss);
    return trainable.forwardBackward(rows, loss, signal);
  }

  async optimStep(model: ModelHandle, adam: Parameters<Engine["optimStep"]>[1], { signal }: CallOptions = {}) {
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
    const state: SavedState = {
      format: 1,
      server: this.#url,
      base: model.base,
      rank,
      alpha: server.alpha,
      weights,
      sampler,
      step,
      server_step: serverStep,
    };
    await writeSavedState(path, state);
  }

  async loadState(model: ModelHandle, path: string, { signal }: CallOptions = {}): Promise<void> {
    const live = this.#model(model);
    const { trainable, rank } = live;
    const state = await readSavedState(path, { server: this.#url, base: model.base, rank });
    const old = trainable.server;
    trainable.replace(await this.#newModel(model.base, rank, 0, state.weights, signal), {
      step: state.step,
      serverStep: state.server_step,
    });
    live.saved = { weights: state.weights, sampler: state.sampler };
    await old.discard();
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
    params: Parameters<Engine["sample"]>[2],
    { signal }: CallOptions = {},
  ): AsyncGenerator<SampledToken, void> {
    signal?.throwIfAborted();
    const live = this.#policies.get(policy.id);
    if (live === undefined || live.isReleased) throw new NotFoundError(`The engine holds no policy "${policy.id}"; it was released`);
    const { info } = findBase(this.#bases, live.base);
    checkSampling(prompt, params, { ...info, maxTopLogprobs: this.capabilities().maxTopLogprobs });
    checkSupported(params);
    const maxTokens = Math.min(params.maxTokens, info.contextLength - prompt.length);
    live.running++;
    try {
      const { transport, encoding } = this.#context;
      const request = { target: live.target, number: live.requests++, prompt, params, maxTokens };
      for (const token of await sampleSequence(transport, encoding, request, signal)) {
        signal?.throwIfAborted();
        yield token;
      }
    } finally {
      live.running--;
      // What the sequence ended with is told, not that its policy's model could not be let go.
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
    const own = [...this.#policies.values()].flatMap((policy) => policy.own ?? []);
    [this.#models, this.#policies].forEach((map) => map.clear());
    // The server ends them by itself when the session falls silent; a slot that is free at once is only better.
    await Promise.race([
      Promise.all([...servers, ...own].map((server) => server.discard())),
      new Promise((resolve) => setTimeout(resolve, CLOSE_PATIENCE_MS).unref()),
    ]);
    await this.#context.transport.close();
  }

  #model({ id }: ModelHandle): LiveModel {
    const live = this.#models.get(id);
    if (live === undefined) throw new NotFoundError(`The engine holds no trainable model "${id}"; it was unloaded`);
    return live;
  }

  #addPolicy(base: string, target: SamplingTarget, own: ServerModel | null = null): PolicyVersion {
    const id = randomUUID();
    this.#policies.set(id, { base, target, own, requests: 0, running: 0, isReleased: false });
    return { id, base };
  }

  async #drop(id: string, live: LivePolicy): Promise<void> {
    if (live.running > 0 || !this.#policies.delete(id)) return;
    await live.own?.unload();
  }

  /** A model on the server, with saved weights and moments if there are any. */
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

  /** The training state under a name of its own; again only after a change. */
  async #save(live: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    const { saved } = live;
    return (saved.weights ??= await this.#saveAs("save_weights", live, signal));
  }

  /** The weights for sampling under a name of their own; again only after a change. */
  async #snapshot(live: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    const { saved } = live;
    return (saved.sampler ??= await this.#saveAs("save_weights_for_sampler", live, signal));
  }

  async #saveAs(operation: string, { trainable }: LiveModel, signal: AbortSignal | undefined): Promise<string> {
    return (await trainable.server.runJson(operation, { path: randomUUID() }, savedAnswer, signal)).path;
  }

  /** A policy on a model of its own. */
  async #copy(base: string, rank: number, weights: string, signal: AbortSignal | undefined): Promise<PolicyVersion> {
    const own = await this.#newModel(base, rank, 0, weights, signal);
    try {
      return this.#addPolicy(base, { sampling_session_id: await own.saveForSampling(signal) }, own);
    } catch (error) {
      await own.discard();
      throw error;
    }
  }
}

/** How long the end waits for the server to let go of models, milliseconds. */
const CLOSE_PATIENCE_MS = 5_000;
