/**
 * Continuous batching: requests join and leave at token granularity, and every running row of the same weights advances
 * in one product. Nothing else in the batch changes a row's bits: at least two rows run, padded lengths depend on the
 * row alone, and random numbers on its seed alone. Runs in a worker.
 */
import { NotFoundError } from "../../../errors.ts";
import type { PromptToken, SampledToken, SamplingParams } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { readModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout, viewOf } from "../model/parameters.ts";
import { readAdapterOrWeights } from "../model/state.ts";
import { rotaryTables } from "../model/transformer.ts";
import { readBaseWeights } from "../model/weights.ts";
import { loadRuntime, Program, type Tensor, type Tensors } from "../runtime.ts";
import { causalMask } from "../train/batch.ts";
import type { BaseSource } from "../train/trainer.ts";
import { stackAdapters, type StackedAdapters } from "./adapters.ts";
import { remember } from "../../../util/remember.ts";
import { chooseToken, placeToken, topTokens } from "./choose.ts";
import { cacheNames, decodeGraph } from "./decode-graph.ts";
import { KvCache, type LayerCache } from "./kv-cache.ts";
import { LogitRules } from "./logits/rules.ts";

/** A sampled token on its way to the caller. */
export interface SampledEvent {
  readonly request: number;
  readonly token: SampledToken;
}

/** Settings of a sampler. */
export interface SamplerOptions {
  /** Threads inside one op. With more than one, a row's last bits may depend on the rest of its batch. @default 1 */
  readonly threads: number;
  /** Rows that run at once; further requests wait. @default 256 */
  readonly maxRows?: number | undefined;
  /** Prompt tokens per prefill call: what running rows wait for at most. @default 2048 */
  readonly maxPrefillTokens?: number | undefined;
}

/** Positions of a prompt that are scored at once: each takes a row of the whole vocabulary. */
const SCORED_POSITIONS = 256;

/** Padded prompt lengths are multiples of this; they depend on the prompt alone. */
const PREFILL_STEP = 16;

/** Weights that a batch runs on: a base as it is, under adapters, or trained throughout. */
interface Weights {
  readonly config: ModelConfig;
  readonly layout: Layout;
  readonly flat: Float32Array;
}

interface Policy {
  readonly batchKey: string;
  readonly weights: Weights;
  readonly adapter: (Adapter & { readonly flat: Float32Array; readonly layout: Layout }) | null;
  /** Running and waiting requests. */
  users: number;
  isReleased: boolean;
}

interface Request {
  readonly id: number;
  readonly policyId: string;
  readonly policy: Policy;
  readonly prompt: Int32Array;
  readonly params: SamplingParams;
  readonly stops: ReadonlySet<number>;
  readonly rules: LogitRules | null;
  /** Log-probabilities of the prompt's tokens, once they are computed; null when nobody asks. */
  promptTokens: PromptToken[] | null;
}

/** A request with a place in a batch. */
interface RunningRow {
  readonly request: Request;
  /** Tokens in the cache. */
  length: number;
  /** Sampled last; not in the cache yet. */
  lastToken: number;
  sampled: number;
}

interface Batch {
  readonly weights: Weights;
  readonly cache: KvCache;
  readonly rows: RunningRow[];
  adapters: StackedAdapters | null;
}

export class Sampler {
  readonly #options: Required<Record<"threads" | "maxRows" | "maxPrefillTokens", number>>;
  readonly #emit: (events: SampledEvent[]) => void;
  readonly #onError: (requests: number[], error: unknown) => void;
  readonly #configs = new Map<string, Promise<ModelConfig>>();
  readonly #bases = new Map<string, Promise<Weights>>();
  readonly #policies = new Map<string, Policy>();
  readonly #batches = new Map<string, Batch>();
  readonly #programs = new Map<string, Promise<Program>>();
  readonly #rotary = new Map<ModelConfig, { cos: Float32Array; sin: Float32Array }>();
  readonly #cancelled = new Set<number>();
  #waiting: Request[] = [];
  #events: SampledEvent[] = [];
  #isRunning = false;

  constructor(options: SamplerOptions, emit: (events: SampledEvent[]) => void, onError: (requests: number[], error: unknown) => void) {
    this.#options = { threads: options.threads, maxRows: options.maxRows ?? 256, maxPrefillTokens: options.maxPrefillTokens ?? 2048 };
    this.#emit = emit;
    this.#onError = onError;
  }

  /** Takes over trained weights, or an adapter's, under a new policy id. */
  async addPolicy(id: string, base: BaseSource, trained: { flat: Float32Array; lora: Adapter | null } | null): Promise<void> {
    if (trained && !trained.lora) {
      const config = await this.#config(base.directory);
      this.#policies.set(id, {
        batchKey: id,
        weights: { config, layout: baseLayout(config), flat: trained.flat },
        adapter: null,
        users: 0,
        isReleased: false,
      });
      return;
    }
    const shared = await this.#base(base);
    const adapter = trained?.lora ? { ...trained.lora, flat: trained.flat, layout: adapterLayout(shared.config, trained.lora.rank) } : null;
    // Adapters of one rank share a batch. Another rank would widen the products, and with them change a row's last bits.
    this.#policies.set(id, {
      batchKey: `rank ${adapter?.rank ?? 0} on ${base.directory}`,
      weights: shared,
      adapter,
      users: 0,
      isReleased: false,
    });
  }

  /** The same straight from a saved state. */
  async loadPolicy(id: string, base: BaseSource, state: string | undefined): Promise<void> {
    if (state === undefined) return this.addPolicy(id, base, null);
    const config = await this.#config(base.directory);
    return this.addPolicy(id, base, await readAdapterOrWeights(state, base.id, config));
  }

  releasePolicy(id: string): void {
    const policy = this.#policies.get(id);
    if (!policy) return;
    policy.isReleased = true;
    this.#forget(id, policy);
  }

  /** Queues a request; its tokens arrive through `emit`. */
  add(id: number, policyId: string, prompt: Int32Array, params: SamplingParams): void {
    const policy = this.#policies.get(policyId);
    if (!policy || policy.isReleased) throw new NotFoundError(`The engine holds no policy "${policyId}"; it was released`);
    policy.users++;
    this.#queue({
      id,
      policyId,
      policy,
      prompt,
      params,
      stops: new Set(params.stopTokenIds),
      rules: LogitRules.of(params, prompt),
      promptTokens: null,
    });
    if (!this.#isRunning) void this.#loop();
  }

  /** Takes a request in before those of less urgency. */
  #queue(request: Request): void {
    const before = this.#waiting.findIndex((other) => priorityOf(other) > priorityOf(request));
    this.#waiting.splice(before === -1 ? this.#waiting.length : before, 0, request);
  }

  /** Frees the request's row before the next token. */
  cancel(id: number): void {
    this.#cancelled.add(id);
    if (!this.#isRunning) this.#dropCancelled();
  }

  async #loop(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0 || [...this.#batches.values()].some((batch) => batch.rows.length > 0)) {
      // Requests, cancellations and new weights arrive as messages: let them in between two products.
      await new Promise(setImmediate);
      this.#dropCancelled();
      await this.#guarded(
        () => this.#prefillSome(),
        (requests) => requests,
      );
      for (const [key, batch] of this.#batches) {
        if (batch.rows.length === 0) {
          this.#batches.delete(key);
          continue;
        }
        await this.#guarded(
          () => this.#decode(batch),
          () => batch.rows.splice(0).map((row) => row.request),
        );
      }
      if (this.#events.length > 0) {
        this.#emit(this.#events);
        this.#events = [];
      }
    }
    this.#isRunning = false;
  }

  /** Runs a step; a failure ends the requests it was for, not the sampler. */
  async #guarded(step: () => Promise<void>, affected: (requests: Request[]) => Request[]): Promise<void> {
    this.#inStep = [];
    try {
      await step();
    } catch (error) {
      const requests = affected(this.#inStep);
      for (const request of requests) this.#finish(request);
      this.#onError(
        requests.map((request) => request.id),
        error,
      );
    }
  }

  /** Requests taken off the queue by the step that is running. */
  #inStep: Request[] = [];

  /** Prefills one padded length of one batch's waiting requests. */
  async #prefillSome(): Promise<void> {
    const running = [...this.#batches.values()].reduce((sum, batch) => sum + batch.rows.length, 0);
    const room = this.#options.maxRows - running;
    const first = this.#waiting[0];
    if (!first || room <= 0) return;
    const time = paddedLength(first.prompt.length);
    const taken: Request[] = [];
    const prompts = new Map<string, Request[]>();
    const most = Math.max(1, Math.floor(this.#options.maxPrefillTokens / time));
    this.#waiting = this.#waiting.filter((request) => {
      if (taken.length >= room || request.policy.batchKey !== first.policy.batchKey || paddedLength(request.prompt.length) !== time)
        return true;
      // Rows may be too few: none goes to a request that others with more urgency are before.
      if (this.#waiting.length > room && priorityOf(request) !== priorityOf(first)) return true;
      const key = `${request.policyId}:${JSON.stringify(request.params.cacheSalt ?? null)}:${request.prompt.join()}`;
      const same = prompts.get(key);
      if (!same && prompts.size >= most) return true;
      if (same) same.push(request);
      else prompts.set(key, [request]);
      taken.push(request);
      return false;
    });
    this.#inStep = taken;
    await this.#prefill(this.#batch(first.policy), [...prompts.values()], time);
  }

  /** Runs prompts, one row each. */
  async #runPrompts(
    weights: Weights,
    heads: readonly Request[],
    time: number,
    { last, fetches }: { readonly last: BigInt64Array; readonly fetches: readonly string[] },
  ): Promise<Tensors> {
    const { Tensor } = await loadRuntime();
    const { config } = weights;
    const size = Math.max(2, heads.length);
    const tokens = new BigInt64Array(size * time);
    const positions = new BigInt64Array(size * time);
    for (let b = 0; b < size; b++) {
      for (let t = 0; t < time; t++) positions[b * time + t] = BigInt(t);
      heads[b]?.prompt.forEach((token, t) => (tokens[b * time + t] = BigInt(token)));
    }
    const adapters = stackAdapters(
      config,
      heads.flatMap((request) => request.policy.adapter ?? []),
    );
    const owners = Array.from({ length: size }, (_, b) => heads[b]?.policy.adapter ?? null);
    const program = await this.#program(config, false, adapters !== null);
    const feeds: Tensors = {
      ...this.#sharedFeeds(Tensor, weights, time),
      ...adapters?.feeds(Tensor, owners),
      tokens: new Tensor("int64", tokens, [size, time]),
      positions: new Tensor("int64", positions, [size, time]),
      last: new Tensor("int64", last, [last.length]),
    };
    return program.run(feeds, fetches);
  }

  /** Log-probabilities of a prompt's own tokens: the prompt once more, so that whoever does not ask is served as ever. */
  async #scorePrompt(weights: Weights, request: Request, time: number): Promise<PromptToken[]> {
    const { prompt, params } = request;
    const { vocabularySize: V } = weights.config;
    const scored: PromptToken[] = [];
    while (scored.length < prompt.length - 1) {
      const start = scored.length;
      // At least two rows, like everything that runs; the second may be one that nobody asked for.
      const count = Math.min(SCORED_POSITIONS, prompt.length - 1 - start);
      const last = BigInt64Array.from({ length: Math.max(2, count) }, (_, at) => BigInt(start + at));
      const results = await this.#runPrompts(weights, [request], time, { last, fetches: ["logprobs"] });
      const logprobs = results["logprobs"]!.data as Float32Array;
      for (let at = 0; at < count; at++)
        scored.push(placeToken(logprobs.subarray(at * V, (at + 1) * V), prompt[start + at + 1]!, params.promptLogprobs!));
    }
    return scored;
  }

  /** Runs each distinct prompt once; requests that share it get copies of its cache. */
  async #prefill(batch: Batch, groups: readonly Request[][], time: number): Promise<void> {
    const { config } = batch.weights;
    const heads = groups.map((group) => group[0]!);
    const last = BigInt64Array.from({ length: Math.max(2, heads.length) }, (_, b) => BigInt(b * time + (heads[b]?.prompt.length ?? 1) - 1));
    const results = await this.#runPrompts(batch.weights, heads, time, { last, fetches: fetchesOf(config, groups.flat()) });
    for (const request of groups.flat())
      if (request.params.promptLogprobs !== undefined) request.promptTokens = await this.#scorePrompt(batch.weights, request, time);

    const fresh = freshCaches(results, config);
    groups.forEach((group, source) => {
      const { prompt } = group[0]!;
      for (const request of group) {
        const slot = batch.rows.length;
        batch.cache.reserve(slot + 1, prompt.length + 1);
        fresh.forEach((cache, layer) => batch.cache.write(layer, slot, 0, cache, source, time, prompt.length));
        batch.cache.setLength(slot, prompt.length);
        batch.rows.push({ request, length: prompt.length, lastToken: -1, sampled: 0 });
      }
    });
    this.#restack(batch);
    const sources = new Map(groups.flatMap((group, source) => group.map((request) => [request, source] as const)));
    this.#advance(batch, results, (row) => sources.get(row.request));
  }

  /** One more token for every row of a batch. */
  async #decode(batch: Batch): Promise<void> {
    const { Tensor } = await loadRuntime();
    const { rows, cache, weights } = batch;
    const { config } = weights;
    const { kvHeads, headSize: d } = config;
    const size = Math.max(2, rows.length);
    cache.reserve(
      size,
      rows.reduce((most, row) => Math.max(most, row.length + 1), 1),
    );
    const tokens = new BigInt64Array(size);
    const positions = new BigInt64Array(size);
    rows.forEach((row, b) => {
      tokens[b] = BigInt(row.lastToken);
      positions[b] = BigInt(row.length);
    });
    const program = await this.#program(config, true, batch.adapters !== null);
    const owners = Array.from({ length: size }, (_, b) => rows[b]?.request.policy.adapter ?? null);
    const { capacity } = cache;
    const feeds: Tensors = {
      ...this.#sharedFeeds(Tensor, weights, 1),
      ...batch.adapters?.feeds(Tensor, owners),
      tokens: new Tensor("int64", tokens, [size, 1]),
      positions: new Tensor("int64", positions, [size, 1]),
      last: new Tensor(
        "int64",
        BigInt64Array.from({ length: size }, (_, b) => BigInt(b)),
        [size],
      ),
      past_mask: new Tensor("float32", cache.mask(size), [size, 1, 1, capacity]),
    };
    for (let layer = 0; layer < config.layers; layer++) {
      const names = cacheNames(layer);
      const { keys, values } = cache.layer(layer, size);
      feeds[names.pastKeys] = new Tensor("float32", keys, [size, kvHeads, d, capacity]);
      feeds[names.pastValues] = new Tensor("float32", values, [size, kvHeads, capacity, d]);
    }
    const results = await program.run(
      feeds,
      fetchesOf(
        config,
        rows.map((row) => row.request),
      ),
    );

    const fresh = freshCaches(results, config);
    rows.forEach((row, b) => {
      fresh.forEach((layerCache, layer) => cache.write(layer, b, row.length, layerCache, b, 1, 1));
      cache.extend(b, row.length);
      row.length++;
    });
    this.#advance(batch, results, (_row, b) => b);
  }

  /** Draws a token for each row that has a place in the results, reports it, and removes the rows that ended. */
  #advance(batch: Batch, results: Tensors, sourceOf: (row: RunningRow, index: number) => number | undefined): void {
    const { contextLength, vocabularySize: V } = batch.weights.config;
    const ended: number[] = [];
    batch.rows.forEach((row, index) => {
      const source = sourceOf(row, index);
      if (source === undefined) return;
      const part = (name: string) => (results[name]!.data as Float32Array).subarray(source * V, (source + 1) * V);
      const logprobs = part("logprobs");
      const { request } = row;
      const { params, rules } = request;
      let id: number;
      try {
        id = chooseToken(rules?.needsLogits ? part("logits") : logprobs, params, row.sampled, rules);
      } catch (error) {
        // The request's own rules are at odds: that is the end of it alone.
        this.#onError([request.id], error);
        ended.push(index);
        return;
      }
      rules?.note(id);
      row.lastToken = id;
      row.sampled++;
      const finish = request.stops.has(id)
        ? "stop"
        : row.sampled >= params.maxTokens || row.length + 1 >= contextLength
          ? "length"
          : undefined;
      this.#events.push({
        request: request.id,
        token: {
          id,
          logprob: logprobs[id]!,
          top: topTokens(logprobs, params.topLogprobs),
          finish,
          ...(row.sampled === 1 && request.promptTokens !== null ? { prompt: request.promptTokens } : {}),
        },
      });
      if (finish) ended.push(index);
    });
    this.#removeRows(batch, ended);
  }

  #dropCancelled(): void {
    if (this.#cancelled.size === 0) return;
    this.#waiting = this.#waiting.filter((request) => {
      if (!this.#cancelled.has(request.id)) return true;
      this.#finish(request);
      return false;
    });
    for (const batch of this.#batches.values()) {
      this.#removeRows(
        batch,
        batch.rows.flatMap((row, index) => (this.#cancelled.has(row.request.id) ? [index] : [])),
      );
    }
    this.#cancelled.clear();
  }

  /** Closes gaps with rows from the end, so that the rows in use stay a prefix. */
  #removeRows(batch: Batch, indices: readonly number[]): void {
    if (indices.length === 0) return;
    for (const index of indices.toReversed()) {
      const { request } = batch.rows[index]!;
      const last = batch.rows.length - 1;
      batch.cache.copy(last, index);
      batch.rows[index] = batch.rows[last]!;
      batch.rows.pop();
      this.#finish(request);
    }
    this.#restack(batch);
  }

  #restack(batch: Batch): void {
    const adapters = batch.rows.flatMap((row) => row.request.policy.adapter ?? []);
    batch.adapters = stackAdapters(batch.weights.config, adapters, batch.adapters);
  }

  #finish(request: Request): void {
    request.policy.users--;
    this.#forget(request.policyId, request.policy);
  }

  #forget(id: string, policy: Policy): void {
    if (policy.isReleased && policy.users === 0) this.#policies.delete(id);
  }

  #batch(policy: Policy): Batch {
    let batch = this.#batches.get(policy.batchKey);
    if (!batch) {
      batch = { weights: policy.weights, cache: new KvCache(policy.weights.config), rows: [], adapters: null };
      this.#batches.set(policy.batchKey, batch);
    }
    return batch;
  }

  /** One object per directory: batches and tables are keyed by it. */
  #config(directory: string): Promise<ModelConfig> {
    return remember(this.#configs, directory, () => readModelConfig(directory));
  }

  #base({ directory }: BaseSource): Promise<Weights> {
    return remember(this.#bases, directory, async (): Promise<Weights> => {
      const config = await this.#config(directory);
      const layout = baseLayout(config);
      return { config, layout, flat: await readBaseWeights(directory, layout) };
    });
  }

  #program(config: ModelConfig, hasCache: boolean, hasAdapters: boolean): Promise<Program> {
    const key = JSON.stringify([config, hasCache, hasAdapters]);
    return remember(this.#programs, key, () =>
      Program.compile(decodeGraph(config, { hasCache, hasAdapters }), hasCache ? "decode" : "prefill", { threads: this.#options.threads }),
    );
  }

  #sharedFeeds(TensorClass: TensorConstructor, { config, layout, flat }: Weights, time: number): Tensors {
    let rotary = this.#rotary.get(config);
    if (!rotary) this.#rotary.set(config, (rotary = rotaryTables(config)));
    const mask = causalMask(time, config.heads / config.kvHeads);
    const half = config.headSize / 2;
    return {
      ...Object.fromEntries(
        layout.parameters.map((parameter) => [parameter.name, new TensorClass("float32", viewOf(flat, parameter), parameter.shape)]),
      ),
      cos: new TensorClass("float32", rotary.cos, [config.contextLength, half]),
      sin: new TensorClass("float32", rotary.sin, [config.contextLength, half]),
      mask: new TensorClass("float32", mask.data, mask.shape),
    };
  }
}

type TensorConstructor = Awaited<ReturnType<typeof loadRuntime>>["Tensor"];

function paddedLength(length: number): number {
  return Math.ceil(length / PREFILL_STEP) * PREFILL_STEP;
}

function layerOutputs(config: ModelConfig): string[] {
  return Array.from({ length: config.layers }, (_, layer) => cacheNames(layer)).flatMap(({ keys, values }) => [keys, values]);
}

function priorityOf(request: Request): bigint {
  return request.params.priority ?? 0n;
}

/** What a step must return: logits only where a request's rules are about them. */
function fetchesOf(config: ModelConfig, requests: readonly Request[]): string[] {
  const needsLogits = requests.some((request) => request.rules?.needsLogits);
  return ["logprobs", ...(needsLogits ? ["logits"] : []), ...layerOutputs(config)];
}

function freshCaches(results: Tensors, config: ModelConfig): LayerCache[] {
  const data = (tensor: Tensor | undefined) => tensor!.data as Float32Array;
  return Array.from({ length: config.layers }, (_, layer) => {
    const names = cacheNames(layer);
    return { keys: data(results[names.keys]), values: data(results[names.values]) };
  });
}
