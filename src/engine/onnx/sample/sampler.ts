/**
 * Continuous batching: requests join and leave between tokens. A running request has a row in a batch, and all rows of the same weights
 * advance in one forward pass. Rows that grow beyond the memory are suspended, and prefilled again when other rows have ended. Results are
 * batch-invariant: a row's bits depend neither on the rest of the batch nor on earlier computations, and its random numbers only on its
 * seed. Runs in a worker.
 */
import type { SamplingParams } from "../../port.ts";
import type { BaseSource } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { type AdmittedPrompts, admit, mayStart } from "./admission.ts";
import { newRow, type SampleBatch } from "./batch.ts";
import { Batches } from "./batches.ts";
import type { PlacedWeights, SamplerPlace, SamplingPlace } from "./place.ts";
import type { GrammarConstraint } from "../../../text/grammar/decode/constraint.ts";
import { LogitRules } from "./logits/rules.ts";
import { DEFAULT_MAX_ROWS, DEFAULT_PREFIX_CACHE_BYTES, type SamplerSettings } from "./options.ts";
import { ActiveClients } from "./active-clients.ts";
import { ClientRows } from "./client-rows.ts";
import { FairShare } from "./fair-share.ts";
import { PrefillLimiters } from "./prefill-limiter.ts";
import { PublishedPolicies, type PublishedPolicy } from "./policies.ts";
import { PrefillTask, type PieceResult } from "./prefill.ts";
import { BLOCK_TOKENS, PrefixCache } from "./prefix-cache.ts";
import { WaitingQueue } from "./queue.ts";
import type { Request, SampledEvent } from "./request.ts";
import type { RequestGroup } from "../../../base/util/request-group.ts";
import { first } from "../../../base/util/values.ts";

/** Tokens that the rows of a batch can grow by after a request has been admitted, before rows may be suspended. */
const HEADROOM = 64;

/** Client of requests without a group. */
const ANONYMOUS = "";

/** Sampler with continuous batching, for any number of policies. `T` are trained weights as {@link addPolicy} takes them. */
export class Sampler<T extends { readonly lora: Adapter | null }> {
  readonly #maxRows: number;
  readonly #emit: (events: SampledEvent[]) => void;
  readonly #onError: (requests: number[], error: unknown) => void;
  readonly #prefixes: PrefixCache;
  readonly #policies: PublishedPolicies<T, PlacedWeights, Adapter>;
  readonly #place: SamplingPlace;
  readonly #batches: Batches;
  readonly #limiters: PrefillLimiters;
  readonly #cancelled = new Set<number>();
  readonly #queue = new WaitingQueue();
  /** Prompts being prefilled, in the order of their start. */
  readonly #tasks: PrefillTask[] = [];
  readonly #shares = new FairShare();
  readonly #clients = new ActiveClients();
  /** Callers of {@link settle}. */
  #settling: (() => void)[] = [];
  #events: SampledEvent[] = [];
  #isRunning = false;

  /**
   * @param emit - Called after each step with the sampled tokens of all requests.
   * @param onError - Called with the ids of requests that failed; they get no further tokens.
   */
  constructor(
    options: SamplerSettings,
    emit: (events: SampledEvent[]) => void,
    onError: (requests: number[], error: unknown) => void,
    { place, weights }: SamplerPlace<T>,
  ) {
    this.#place = place;
    this.#maxRows = options.maxRows ?? DEFAULT_MAX_ROWS;
    this.#limiters = new PrefillLimiters({
      maxTokens: options.maxPrefillTokens ?? 2048,
      minPiece: place.minPiece,
      clients: this.#clients,
    });
    this.#prefixes = new PrefixCache(options.prefixCacheBytes ?? DEFAULT_PREFIX_CACHE_BYTES);
    this.#batches = new Batches(place, {
      onToken: (event) => this.#events.push(event),
      onEnd: (request) => this.#release(request),
      onFailure: (request, error) => this.#onError([request.id], error),
    });
    this.#policies = new PublishedPolicies(weights, (policy) => {
      this.#prefixes.forget(policy);
      // An empty batch keeps its cache, and so the weights, for the next request.
      if (!this.#policies.hasBatch(policy.batchKey)) this.#batches.drop(policy.batchKey);
    });
    this.#emit = emit;
    this.#onError = onError;
  }

  /** Adds trained weights, or an adapter's, under a new policy id and takes ownership of them; null = the base model unchanged. */
  async addPolicy(id: string, base: BaseSource, trained: T | null): Promise<void> {
    await this.#place.open();
    return this.#policies.add(id, base, trained);
  }

  /** Adds a policy from a saved state on disk; undefined = the base model unchanged. */
  async loadPolicy(id: string, base: BaseSource, state: string | undefined): Promise<void> {
    await this.#place.open();
    return this.#policies.load(id, base, state);
  }

  /** Releases a policy: its requests continue, and no further request may use it. */
  releasePolicy(id: string): void {
    this.#policies.release(id);
  }

  /**
   * Queues a request; its tokens arrive through `emit`.
   *
   * @param group - Group of the request; see `SamplingOptions.group`. @default a group of its own, of a client that all such requests share
   * @throws NotFoundError `E_NOT_FOUND` if the policy does not exist or was released.
   */
  add(
    id: number,
    policyId: string,
    prompt: Int32Array,
    params: SamplingParams,
    constraint: GrammarConstraint | null = null,
    group: RequestGroup = { client: ANONYMOUS, id: -1 - id },
  ): void {
    const policy = this.#policies.acquire(policyId);
    const rules = LogitRules.of(params, prompt);
    this.#queue.add({ id, policyId, policy, prompt, sampled: 0, params, stops: new Set(params.stopTokenIds), rules, constraint, group });
    if (!this.#isRunning) void this.#loop();
  }

  /** Cancels a request and frees its row before the next token. */
  cancel(id: number): void {
    this.#cancelled.add(id);
    if (!this.#isRunning) this.#dropCancelled();
  }

  /** Without requests, frees memory that the next request can compute again: training needs it more. */
  freeIdle(): void {
    if (!this.#isRunning) this.#place.freeIdle();
  }

  /** Waits until the caches of all batches fit into the present memory: until the next token, or not at all without requests. */
  settle(): Promise<void> {
    return this.#isRunning ? new Promise((resolve) => this.#settling.push(resolve)) : Promise.resolve();
  }

  async #loop(): Promise<void> {
    this.#isRunning = true;
    while (this.#queue.length > 0 || this.#tasks.length > 0 || this.#batches.size > 0) {
      // Requests, cancellations and new weights arrive as messages: handle them between two forward passes.
      await new Promise(setImmediate);
      this.#dropCancelled();
      this.#clients.see([...this.#queue, ...this.#starting, ...this.#batches.requests], performance.now());
      await this.#prefill();
      for (const [key, batch] of this.#batches) {
        if (batch.size > 0) await this.#decode(batch);
        else if (!this.#isStarting(key)) this.#batches.drop(key);
      }
      this.#flush();
      for (const resolve of this.#settling.splice(0)) resolve();
    }
    this.#isRunning = false;
    for (const [key, { weights }] of this.#batches) if (!this.#place.keepsIdleKeys(weights)) this.#batches.drop(key);
  }

  /** Emits the tokens that were sampled since the last call. */
  #flush(): void {
    if (this.#events.length > 0) this.#emit(this.#events);
    this.#events = [];
  }

  /** Prefills prompts for as long as running rows can wait; with no running row, computes one piece. */
  async #prefill(): Promise<void> {
    const startMs = performance.now();
    let endMs: number | null;
    let policy: PublishedPolicy;
    do {
      endMs = this.#prefillEnd(startMs);
      const task = await this.#nextTask(endMs);
      if (!task) return;
      ({ policy } = first(task.requests));
      await this.#step(task, endMs);
      // First tokens wait neither for other prompts nor for the decode step of other rows.
      this.#flush();
    } while (endMs !== null && this.#limiters.promptTokens(policy.weights.config, endMs) >= BLOCK_TOKENS);
  }

  /** Returns the time until which running rows can wait for a prefill that began at `startMs`; null without running rows. */
  #prefillEnd(startMs: number): number | null {
    const { running, size, requests } = this.#batches;
    if (size === 0) return null;
    const next = this.#shares.next([...this.#starting, ...this.#queue]);
    if (next === undefined) return startMs;
    const { client } = next.group;
    const isNewcomer = new ClientRows(requests).isNewcomer(client);
    // The requests of a burst arrive one after the other: rows that have just started may wait for the rest of their client's prompts.
    const waiting = (this.#queue.length + this.#starting.length) / Math.max(1, this.#batches.settledRows(client));
    return startMs + Math.max(...running.map(({ weights }) => this.#limiters.of(weights.config).budgetMs(waiting, isNewcomer)));
  }

  /** Whether a prompt of this batch is being prefilled: it reads the batch's stack of adapters. */
  #isStarting(key: string): boolean {
    return this.#starting.some(({ policy }) => policy.batchKey === key);
  }

  /** Requests with prompts being prefilled. */
  get #starting(): Request[] {
    return this.#tasks.flatMap(({ requests }) => requests);
  }

  /** Returns the prompts whose turn it is: being prefilled, or waiting. Null if nothing can be prefilled now. */
  async #nextTask(endMs: number | null): Promise<PrefillTask | null> {
    const started = this.#shares.next(this.#starting);
    const task = (started && this.#tasks.find(({ requests }) => requests.includes(started))) ?? null;
    const minSharedPrefix = this.#prefixes.isEnabled ? this.#place.minSharedPrefix : null;
    const first = this.#shares.next(this.#queue, (request) => mayStart(request, this.#tasks, minSharedPrefix));
    if (!first || (started && !this.#shares.interrupts(first, started))) return task;
    if (this.#roomFor(first) <= 0) this.#yieldRows(first);
    const room = this.#roomFor(first);
    const maxTokens = this.#limiters.pieceTokens(first.policy.weights.config, endMs);
    const admitted = admit(this.#queue, first, this.#prefixes, { room, maxTokens, place: this.#place });
    return (admitted && (await this.#start(admitted))) ?? task;
  }

  /** Returns how many more rows there is room for, if they are as long as the request. */
  #roomFor(request: Request): number {
    return Math.min(this.#maxRows - this.#batches.size - this.#starting.length, this.#memoryRoom(request));
  }

  /** Suspends rows of the client with the most rows, for waiting requests of a client with fewer. */
  #yieldRows({ group: { client }, policy }: Request): void {
    const [starting, wanted] = [this.#starting, [...this.#queue].filter(({ group }) => group.client === client).length];
    const yielding = new ClientRows([...this.#batches.requests, ...starting]).yieldingTo(client, wanted);
    if (yielding === null) return;
    const mayYield = (request: Request) => request.group.client === yielding.client;
    // A batch of other weights has other memory, and the same limit of rows.
    const isFull = this.#batches.size + this.#starting.length >= this.#maxRows;
    const batches = isFull ? this.#batches.running : [this.#batches.of(policy)];
    let left = yielding.count;
    for (const batch of batches) {
      const suspended = batch.suspend(left, mayYield);
      left -= suspended.length;
      for (const request of suspended) this.#queue.add(request);
    }
  }

  /** Returns how many more rows there is memory for in the batch of a request, if they are as long as the request. */
  #memoryRoom({ policy, prompt }: Request): number {
    const batch = this.#batches.of(policy);
    const starting = this.#starting.filter((request) => request.policy.batchKey === policy.batchKey);
    const longest = starting.reduce((length, request) => Math.max(length, request.prompt.length), Math.max(batch.longest, prompt.length));
    const rows = batch.size + starting.length;
    return batch.roomFor(Math.min(rows + this.#queue.length, this.#maxRows), longest + HEADROOM) - rows;
  }

  /** Starts prefilling prompts; returns null if that failed. */
  async #start({ prompts, known }: AdmittedPrompts): Promise<PrefillTask | null> {
    try {
      const task = await PrefillTask.start(prompts, known, this.#prefixes, this.#place);
      this.#tasks.unshift(task);
      return task;
    } catch (error) {
      const requests = prompts.flatMap((shared) => shared.requests);
      this.#fail(requests, error);
      return null;
    }
  }

  /** Computes the next piece of a task, and moves its requests to their batch after the last piece. */
  async #step(task: PrefillTask, endMs: number | null): Promise<void> {
    const { policy } = first(task.requests);
    const { weights } = policy;
    try {
      const batch = this.#batches.of(policy);
      const adapters = batch.adaptersWith(task.requests.flatMap((request) => request.policy.adapter ?? []));
      await this.#place.prepare(task.kind, weights, adapters?.useOf(task.owners) ?? "none", task.needsLogits);
      const groups = task.requests.map(({ group }) => group);
      const startMs = performance.now();
      const result = await task.step(adapters, this.#limiters.pieceTokens(weights.config, endMs));
      const tookMs = performance.now() - startMs;
      this.#limiters.of(weights.config).notePrefill(result.computed, tookMs);
      this.#shares.charge(groups, tookMs);
      if (result.completed.length === 0) return;
      this.#enter(batch, policy.batchKey, result);
      this.#end(task);
    } catch (error) {
      this.#end(task);
      this.#fail(task.requests, error);
    }
  }

  /** Removes a task; does nothing if it has already ended. */
  #end(task: PrefillTask): void {
    const index = this.#tasks.indexOf(task);
    if (index >= 0) this.#tasks.splice(index, 1);
    task.release();
  }

  /** Adds the requests of completed prompts to their batch. */
  #enter(batch: SampleBatch, batchKey: string, { completed, distributions }: PieceResult): void {
    const rows = completed.flatMap((prefilled) => prefilled.requests.map((request) => newRow(request, prefilled)));
    const expected = Math.min(this.#maxRows, batch.size + rows.length + this.#queue.countOf(batchKey));
    batch.enter(rows, distributions, expected);
  }

  /** Decodes one token of each row of a batch, after rows beyond the memory have been suspended. */
  async #decode(batch: SampleBatch): Promise<void> {
    try {
      // Rows that grew beyond the memory continue when others have ended.
      const excess = batch.size - batch.roomFor(batch.size, batch.longest + 1);
      for (const request of batch.suspend(excess)) this.#queue.add(request);
      await batch.prepare();
      const startMs = performance.now();
      const { config } = batch.weights;
      const rows = await batch.decode(this.#limiters.decodeRows(config));
      this.#limiters.of(config).noteDecode(rows, performance.now() - startMs);
    } catch (error) {
      const requests: Request[] = [];
      batch.remove((request) => requests.push(request) > 0);
      this.#report(requests, error);
    }
  }

  /** Ends the given requests with an error; the sampler continues. */
  #fail(requests: readonly Request[], error: unknown): void {
    for (const request of requests) this.#release(request);
    this.#report(requests, error);
  }

  #report(requests: readonly Request[], error: unknown): void {
    const ids = requests.map(({ id }) => id);
    this.#onError(ids, error);
  }

  #dropCancelled(): void {
    if (this.#cancelled.size === 0) return;
    const isCancelled = ({ id }: Request) => this.#cancelled.has(id);
    this.#queue.remove(isCancelled).forEach((request) => this.#release(request));
    for (const task of [...this.#tasks]) {
      task.remove(isCancelled).forEach((request) => this.#release(request));
      if (task.requests.length === 0) this.#end(task);
    }
    this.#batches.remove(isCancelled);
    this.#cancelled.clear();
  }

  /** Ends the use of the request's policy. */
  #release(request: Request): void {
    this.#policies.releaseUse(request.policyId, request.policy);
  }
}
