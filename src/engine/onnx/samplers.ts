/** The sampler threads of an engine: each has the policies and batches of its own, and a request runs on one of them. */
import { pushIterator, type PushIterator } from "../../util/push-iterator.ts";
import type { CallOptions, SampledToken, SamplingParams } from "../port.ts";
import type { Adapter } from "./model/parameters.ts";
import { PromptHomes } from "./prompt-homes.ts";
import { grammarText } from "./sample/grammar/grammars.ts";
import type { SamplerOptions } from "./sample/options.ts";
import type { SamplerEvent } from "./sampler-worker.ts";
import { spawnWorker } from "./spawn-worker.ts";
import type { BaseSource } from "./train/trainer.ts";
import { restoreError, WorkerClient } from "./worker-rpc.ts";

/** Trained weights, or an adapter's. */
interface TrainedWeights {
  readonly flat: Float32Array;
  readonly lora: Adapter | null;
}

/** How far the thread that knows a prompt may be busier than another before the prompt goes there, in requests. */
const MAX_DETOUR = 8;

/** One thread. */
class SamplerThread {
  readonly worker: WorkerClient;
  /** Tokens of its requests, on their way to whoever reads them. */
  readonly queues = new Map<number, PushIterator<SampledToken>>();
  isAlive = true;

  constructor(options: SamplerOptions) {
    this.worker = new WorkerClient(
      spawnWorker("sampler-worker", { workerData: options }),
      (event: SamplerEvent) => this.#onEvent(event),
      (error) => {
        this.isAlive = false;
        for (const queue of this.queues.values()) queue.fail(error);
      },
    );
  }

  /** Requests on it. */
  get load(): number {
    return this.queues.size;
  }

  #onEvent(event: SamplerEvent): void {
    if ("tokens" in event) for (const { request, token } of event.tokens) this.queues.get(request)?.push(token);
    else for (const request of event.failed) this.queues.get(request)?.fail(restoreError(event.error));
  }
}

/** See the file header. What a request samples does not depend on the thread that it runs on. */
export class Samplers {
  readonly #threads: readonly SamplerThread[];
  readonly #homes = new PromptHomes<SamplerThread>();
  /** Policies that only the first thread has. */
  readonly #alone = new Set<string>();
  #nextRequest = 0;

  /** @param count - Threads. Rows and the prefix cache's memory are shared out among them. */
  constructor(count: number, options: SamplerOptions & { readonly maxRows: number; readonly prefixCacheBytes: number }) {
    const share: SamplerOptions = {
      ...options,
      maxRows: Math.ceil(options.maxRows / count),
      prefixCacheBytes: Math.floor(options.prefixCacheBytes / count),
    };
    this.#threads = Array.from({ length: count }, () => new SamplerThread(share));
  }

  /**
   * Takes over trained weights.
   *
   * @param isSmall - Whether there is memory for one copy per thread; a large model is sampled on one thread alone.
   */
  async addPolicy(id: string, base: BaseSource, weights: TrainedWeights, isSmall: boolean, { signal }: CallOptions): Promise<void> {
    const threads = this.#placesOf(id, isSmall);
    await this.#onEach(id, threads, ({ worker }, at) => {
      // The last one gets the memory itself.
      const own = at === threads.length - 1 ? weights : { ...weights, flat: weights.flat.slice() };
      return worker.call("addPolicy", [id, base, own], { signal, transfer: [own.flat.buffer as ArrayBuffer] });
    });
  }

  /** The same straight from a saved state. */
  async loadPolicy(id: string, base: BaseSource, state: string | undefined, isSmall: boolean, { signal }: CallOptions): Promise<void> {
    await this.#onEach(id, this.#placesOf(id, isSmall), ({ worker }) => worker.call("loadPolicy", [id, base, state], { signal }));
  }

  async releasePolicy(id: string): Promise<void> {
    const threads = this.#alone.delete(id) ? this.#threads.slice(0, 1) : this.#threads;
    await Promise.all(threads.filter(({ isAlive }) => isAlive).map(({ worker }) => worker.call("releasePolicy", [id])));
  }

  async *sample(
    policyId: string,
    directory: string,
    prompt: Int32Array,
    { constraint, ...params }: SamplingParams,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<SampledToken, void> {
    const { worker, queues } = this.#choose(policyId, prompt);
    const request = this.#nextRequest++;
    const queue = pushIterator<SampledToken>(() => {});
    queues.set(request, queue);
    const onAbort = () => queue.fail(signal!.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    const letGo = worker.hold();
    let isFinished = false;
    try {
      const form = constraint === undefined ? null : { ...grammarText(constraint), directory };
      worker.call("add", [request, policyId, prompt, params, form]).catch((error: unknown) => queue.fail(error));
      for await (const token of queue) {
        signal?.throwIfAborted();
        isFinished = token.finish !== undefined;
        yield token;
        if (isFinished) return;
      }
    } finally {
      signal?.removeEventListener("abort", onAbort);
      queues.delete(request);
      letGo();
      if (!isFinished) worker.call("cancel", [request]).catch(() => {});
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#threads.map(({ worker }) => worker.close()));
  }

  /** Brings a policy to threads; where one fails, or the caller leaves, no other keeps it: calls are answered in their order. */
  async #onEach(
    id: string,
    threads: readonly SamplerThread[],
    bring: (thread: SamplerThread, at: number) => Promise<unknown>,
  ): Promise<void> {
    try {
      await Promise.all(threads.map(bring));
    } catch (error) {
      this.releasePolicy(id).catch(() => {});
      throw error;
    }
  }

  #placesOf(policyId: string, isSmall: boolean): readonly SamplerThread[] {
    if (isSmall) {
      const alive = this.#threads.filter((thread) => thread.isAlive);
      return alive.length > 0 ? alive : this.#threads;
    }
    this.#alone.add(policyId);
    return this.#threads.slice(0, 1);
  }

  /** The thread that has computed most of the prompt before, unless another one has far less to do; else the idlest. */
  #choose(policyId: string, prompt: Int32Array): SamplerThread {
    const first = this.#threads[0]!;
    if (this.#threads.length === 1 || this.#alone.has(policyId)) return first;
    // A thread that died, of too little memory for example, is not asked again; the others go on.
    const idlest = this.#threads.reduce(
      (best, thread) => (thread.isAlive && (!best.isAlive || thread.load < best.load) ? thread : best),
      first,
    );
    const known = this.#homes.find(policyId, prompt);
    const chosen = known?.isAlive === true && known.load - idlest.load <= MAX_DETOUR ? known : idlest;
    this.#homes.note(policyId, prompt, chosen);
    return chosen;
  }
}
