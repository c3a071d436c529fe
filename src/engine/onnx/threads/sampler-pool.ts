/** Sampler threads of an engine. Each thread has its own policies and batches; a request runs on one thread. */
import { NotFoundError, UnavailableError } from "../../../base/errors.ts";
import { pushIterator, type PushIterator } from "../../../base/util/push-iterator.ts";
import type { CallOptions, SampledToken, SamplingOptions, SamplingParams, WorkerStatus } from "../../port.ts";
import type { Adapter } from "../model/parameters.ts";
import { PrefixAffinity } from "./prefix-affinity.ts";
import { grammarText } from "../sample/grammar-cache.ts";
import { toSent } from "../sample/logits/lists.ts";
import type { SamplerSettings } from "../sample/options.ts";
import { unpackEvents } from "../sample/packed-events.ts";
import type { SamplerEvent } from "./sampler-methods.ts";
import type { SamplerMethods } from "./sampler-worker.ts";
import { spawnWorker } from "../../../base/util/spawn-worker.ts";
import { SupervisedWorker, type WorkerDeath } from "./supervised-worker.ts";
import type { BaseSource } from "../model/config.ts";
import { restoreError, type WorkerClient, type WorkerEnd } from "../../../base/util/worker-rpc.ts";
import { onceAborted } from "../../../base/util/abort.ts";

/** Trained weights of a model or an adapter, as a flat vector. */
interface TrainedWeights {
  readonly flat: Float32Array;
  readonly lora: Adapter | null;
}

/** Options of a call that adds a policy. */
export interface PolicyOptions extends CallOptions {
  /** Whether every thread gets a copy of the weights. A large model is sampled on one thread only. */
  readonly isSmall: boolean;
}

/** Client of a running sampler thread. */
type Client = WorkerClient<SamplerMethods, SamplerEvent>;

/** Loads a policy into a thread; `isLast` for the last of its threads. */
type Load = (client: Client, isLast: boolean) => Promise<unknown>;

/**
 * Max requests by which the load of the thread with a cached prefix may exceed the lowest load; beyond it, the least loaded thread is
 * chosen.
 */
const MAX_DETOUR = 8;

/** Running request of a sampler thread. It ends with its last token, with an error, or when its reader leaves. */
class SamplerRequest {
  readonly tokens: PushIterator<SampledToken> = pushIterator<SampledToken>(() => this.#end({ isFinished: false }));
  readonly #removeListener: () => void;
  readonly #onEnd: (isFinished: boolean) => void;
  #hasEnded = false;

  /**
   * @param signal - Ends the request with the signal's reason.
   * @param onEnd - Called once, with whether the request has its last token.
   */
  constructor(signal: AbortSignal | undefined, onEnd: (isFinished: boolean) => void) {
    this.#onEnd = onEnd;
    this.#removeListener = onceAborted(signal, () => this.fail(signal!.reason));
  }

  push(token: SampledToken): void {
    this.tokens.push(token);
    if (token.finish === undefined) return;
    this.tokens.end();
    this.#end({ isFinished: true });
  }

  fail(error: unknown): void {
    this.tokens.fail(error);
    this.#end({ isFinished: false });
  }

  #end({ isFinished }: { readonly isFinished: boolean }): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#removeListener();
    this.#onEnd(isFinished);
  }
}

/** Sampler thread with its requests and policies, which are lost when it dies. */
class SamplerThread {
  readonly worker: SupervisedWorker<SamplerMethods, SamplerEvent>;
  /** Running requests by id. */
  readonly requests = new Map<number, SamplerRequest>();
  /** Policies with weights in the thread's memory. */
  readonly policies = new Set<string>();

  constructor(name: string, spawn: () => WorkerEnd, onDeath: (death: WorkerDeath) => void) {
    this.worker = new SupervisedWorker({
      name,
      spawn,
      onEvent: (event) => this.#onEvent(event),
      onDeath: (death, error) => {
        this.policies.clear();
        for (const request of this.requests.values()) request.fail(error);
        onDeath(death);
      },
    });
  }

  get isAlive(): boolean {
    return this.worker.client !== null;
  }

  /** Number of running requests. */
  get load(): number {
    return this.requests.size;
  }

  #onEvent(event: SamplerEvent): void {
    // A request that has ended here may still get events that the thread posted before.
    if ("tokens" in event) for (const { request, token } of unpackEvents(event.tokens)) this.requests.get(request)?.push(token);
    else for (const request of event.failed) this.requests.get(request)?.fail(restoreError(event.error));
  }
}

/** Distributes policies and requests over sampler threads. The tokens of a request do not depend on the thread. */
export class SamplerPool {
  readonly #threads: readonly SamplerThread[];
  readonly #affinities = new PrefixAffinity<SamplerThread>();
  /** Policies that are not released. A small policy is copied to every thread, a large one only to the first. */
  readonly #policies = new Map<string, { readonly isSmall: boolean }>();
  #nextRequest = 0;

  /**
   * @param workers - Functions that start the samplers, by name.
   * @param onDeath - Called after each death of a sampler.
   */
  constructor(workers: Readonly<Record<string, () => WorkerEnd>>, onDeath: (death: WorkerDeath) => void) {
    this.#threads = Object.entries(workers).map(([name, spawn]) => new SamplerThread(name, spawn, onDeath));
  }

  /**
   * Creates a pool of threads.
   *
   * @param count - Number of threads, among which rows and prefix cache memory are divided.
   */
  static ofThreads(
    count: number,
    options: SamplerSettings & { readonly maxRows: number; readonly prefixCacheBytes: number },
    onDeath: (death: WorkerDeath) => void,
  ): SamplerPool {
    const perThread: SamplerSettings = {
      ...options,
      maxRows: Math.ceil(options.maxRows / count),
      prefixCacheBytes: Math.floor(options.prefixCacheBytes / count),
    };
    const spawn = () => spawnWorker("engine/onnx/threads/sampler-worker", { workerData: perThread });
    const workers = Array.from({ length: count }, (_, index) => [`sampler-${index}`, spawn] as const);
    return new SamplerPool(Object.fromEntries(workers), onDeath);
  }

  /** States of the threads, for `Engine.workers`. */
  get status(): readonly WorkerStatus[] {
    return this.#threads.map(({ worker }) => worker.statusAs("sampler"));
  }

  /** Whether all running threads that should hold the policy do, and at least one of them runs. */
  holds(id: string): boolean {
    const policy = this.#policies.get(id);
    if (policy === undefined) return false;
    const threads = this.#threadsOf(policy).filter(({ isAlive }) => isAlive);
    return threads.length > 0 && threads.every(({ policies }) => policies.has(id));
  }

  /** Adds a policy with trained weights. The buffer of the weights is transferred to a thread. */
  async addPolicy(id: string, base: BaseSource, weights: TrainedWeights, { isSmall, signal }: PolicyOptions): Promise<void> {
    await this.#onEach(id, { isSmall }, (client, isLast) => {
      // The buffer itself is transferred to the last thread, copies to the others.
      const transferred = isLast ? weights : { ...weights, flat: weights.flat.slice() };
      return client.call("addPolicy", [id, base, transferred], { signal, transfer: [transferred.flat.buffer as ArrayBuffer] });
    });
  }

  /** Adds a policy that `publish` makes known to the only sampler. */
  async addPublished(id: string, publish: () => Promise<unknown>): Promise<void> {
    await this.#onEach(id, { isSmall: false }, publish);
  }

  /** Adds a policy with the weights of the base, or of a saved state. */
  async loadPolicy(id: string, base: BaseSource, state: string | undefined, { isSmall, signal }: PolicyOptions): Promise<void> {
    await this.#onEach(id, { isSmall }, (client) => client.call("loadPolicy", [id, base, state], { signal }));
  }

  /** Frees memory of samplers without requests that the next request can compute again. */
  freeIdle(): void {
    for (const { worker } of this.#threads) worker.client?.call("freeIdle", undefined).catch(() => {});
  }

  /** Releases a policy on all threads. */
  async releasePolicy(id: string): Promise<void> {
    this.#policies.delete(id);
    const threads = this.#threads.filter(({ policies }) => policies.delete(id));
    await Promise.all(threads.map((thread) => releaseOn(thread, id)));
  }

  /** Starts a request on one thread and returns its tokens; see `Engine.sample`. */
  sample(
    policyId: string,
    directory: string,
    prompt: Int32Array,
    { constraint, ...params }: SamplingParams,
    { signal, group }: SamplingOptions,
  ): AsyncIterableIterator<SampledToken> {
    signal?.throwIfAborted();
    const { worker, requests } = this.#choose(policyId, prompt, params.cacheSalt);
    const client = worker.require();
    const id = this.#nextRequest++;
    const request = new SamplerRequest(signal, (isFinished) => {
      requests.delete(id);
      release();
      if (!isFinished) client.call("cancel", [id]).catch(() => {});
    });
    // Keeps the process alive while the request runs.
    const release = client.hold();
    requests.set(id, request);
    const grammar = constraint === undefined ? null : { ...grammarText(constraint), directory };
    client.call("add", [id, policyId, prompt, toSent(params), grammar, group]).catch((error: unknown) => request.fail(error));
    return request.tokens;
  }

  /** Stops the threads after their current calls. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map(({ worker }) => worker.close()));
  }

  /** Loads a policy into its threads. If a load fails or is aborted, all threads release the policy after their load has ended. */
  async #onEach(id: string, policy: { readonly isSmall: boolean }, load: Load): Promise<void> {
    const wantedThreads = this.#threadsOf(policy);
    const alive = wantedThreads.filter(({ isAlive }) => isAlive);
    // Without a running thread, the first one reports the error.
    const threads = alive.length > 0 ? alive : wantedThreads.slice(0, 1);
    this.#policies.set(id, policy);
    const loads = threads.map(async (thread, index) => {
      await load(thread.worker.require(), index === threads.length - 1);
      thread.policies.add(id);
    });
    try {
      await Promise.all(loads);
    } catch (error) {
      this.#policies.delete(id);
      for (const thread of threads) {
        thread.policies.delete(id);
        releaseOn(thread, id).catch(() => {});
      }
      throw error;
    }
  }

  /** Returns the threads that should hold a policy: all for a small model, the first for a large one. */
  #threadsOf({ isSmall }: { readonly isSmall: boolean }): readonly SamplerThread[] {
    return isSmall ? this.#threads : this.#threads.slice(0, 1);
  }

  /** Returns the thread with the longest cached prefix of the prompt, unless its load is too high; otherwise the least loaded thread. */
  #choose(policyId: string, prompt: Int32Array, cacheSalt: string | undefined): SamplerThread {
    const policy = this.#policies.get(policyId);
    if (policy === undefined) throw new NotFoundError(`The engine holds no policy "${policyId}"; it was released`);
    const threads = this.#threadsOf(policy).filter(({ policies }) => policies.has(policyId));
    const [first] = threads;
    if (first === undefined)
      throw new UnavailableError("The sampler died and lost the model's weights; they are loaded again with the next request");
    if (threads.length === 1) return first;
    const idlest = threads.reduce((best, thread) => (thread.load < best.load ? thread : best), first);
    const cache = cacheSalt === undefined ? policyId : `${policyId} ${cacheSalt}`;
    const cached = this.#affinities.find(cache, prompt);
    const isCachedUsable = cached?.policies.has(policyId) === true && cached.load - idlest.load <= MAX_DETOUR;
    const chosen = isCachedUsable ? cached : idlest;
    this.#affinities.record(cache, prompt, chosen);
    return chosen;
  }
}

/** Releases a policy on a thread; does nothing if the thread is being restarted. */
async function releaseOn({ worker }: SamplerThread, id: string): Promise<void> {
  await worker.client?.call("releasePolicy", [id]);
}
