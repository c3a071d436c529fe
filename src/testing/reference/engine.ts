/**
 * Reference implementation of the engine port in float64 with plain loops: slow and small, used to test other engines. Its gradients are a
 * test oracle.
 *
 * Weight loading and grammars reuse the code of the embedded engine; logit rules and token selection do not. There is no KV cache: every
 * token is a forward pass over all earlier tokens.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import { checkRows, checkSampling } from "../../engine/check-request.ts";
import { readModelConfig } from "../../engine/onnx/model/config.ts";
import { adapterLayout, baseLayout, type Layout } from "../../engine/onnx/model/parameters.ts";
import { countParameters } from "../../engine/onnx/model/transformer.ts";
import { initialAdapter, readBaseWeights, unpackTensors } from "../../engine/onnx/model/weights.ts";
import { maxSampledLength } from "../../engine/onnx/model/rope.ts";
import { Grammars, grammarText } from "../../engine/onnx/sample/grammar-cache.ts";
import type {
  CallOptions,
  Engine,
  LoraSpec,
  LossSpec,
  ModelHandle,
  PolicyVersion,
  Row,
  SampledToken,
  SamplingParams,
} from "../../engine/port.ts";
import { DataError, NotFoundError, UnsupportedError } from "../../base/errors.ts";
import { nextLogits, type Parameters, passRows, type ReferenceModel } from "./llama.ts";
import { bestTokens, chooseReferenceToken, referenceLogSoftmax, rankToken } from "./sampling.ts";
import { createMatrix } from "./tape.ts";
import { completeAdam } from "../../base/training-rows.ts";
import { itemAt } from "../../base/util/values.ts";

/**
 * Engine that also exposes its gradients.
 *
 * @example
 * ```ts
 * import { createReferenceEngine } from "whetstone/testing";
 *
 * const reference = createReferenceEngine({ baseModels: { base: "/models/base" } });
 * const tiny = await reference.createModel({ base: "base", seed: 0 });
 * const rows = [{ tokens: Int32Array.of(5, 6, 7), weights: Float32Array.of(0, 1, 1) }];
 * await reference.forwardBackward(tiny, rows, { kind: "cross-entropy" });
 * for (const [name, gradient] of reference.gradients(tiny)) console.log(name, gradient.length);
 * ```
 */
export interface ReferenceEngine extends Engine {
  /**
   * Returns the gradients accumulated since the last optimizer step.
   *
   * @param model - Model of this engine.
   * @returns gradients by parameter name as in weight files, with the shapes of the files.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  gradients(model: ModelHandle): ReadonlyMap<string, Float64Array>;
}

/** A model with its trained parameters and optimizer state. Plain data: a copy is a policy, its serialized bytes are a saved state. */
interface LiveModel extends ReferenceModel {
  /** Identifier of the base model. */
  readonly base: string;
  /** Trained parameters: the adapter's, or all. */
  readonly trained: Parameters;
  /** First and second moment by parameter name, for parameters with at least one optimizer step. */
  readonly moments: Map<string, readonly [Float64Array, Float64Array]>;
  /** Number of optimizer steps. */
  step: number;
}

/** Max alternatives per token. */
const MAX_TOP_LOGPROBS = 20;
/** File of a saved state in its directory. */
const STATE_FILE = "reference.bin";

/**
 * Creates an engine that computes in float64 with plain loops, as an oracle for tests of other engines on small models.
 *
 * @param options - `baseModels`: directories in Hugging Face layout by base-model identifier.
 * @returns the engine; it has no threads and no memory outside the heap.
 * @example
 * ```ts
 * const reference = createReferenceEngine({ baseModels: { base: "/models/base" } });
 * const { parameters } = await reference.describeBase("base");
 * ```
 */
export function createReferenceEngine({ baseModels }: { readonly baseModels: Readonly<Record<string, string>> }): ReferenceEngine {
  const directories = new Map(Object.entries(baseModels));
  const models = new Map<string, LiveModel>();
  const policies = new Map<string, LiveModel>();
  const grammars = new Grammars();
  let nextId = 0;

  /** Returns the value of an id. @throws NotFoundError `E_NOT_FOUND` with the existing ids. */
  const find = <T>(map: ReadonlyMap<string, T>, id: string): T => {
    const value = map.get(id);
    if (value !== undefined) return value;
    const param = (map as ReadonlyMap<string, unknown>) === directories ? "base_model" : null;
    throw new NotFoundError(`Expected one of ${[...map.keys()].join(", ") || "none"}, got "${id}"`, { param });
  };
  /** Reads the weights of a base model, and adds a new adapter if `spec` is given. */
  async function load(base: string, spec: LoraSpec | null, seed: number): Promise<LiveModel> {
    const directory = find(directories, base);
    const config = await readModelConfig(directory);
    const layout = baseLayout(config);
    const full = matrices(await readBaseWeights(directory, layout), layout);
    const lora = spec && { rank: spec.rank, alpha: spec.alpha ?? 2 * spec.rank };
    const loraLayout = lora && adapterLayout(config, lora.rank);
    const adapter = loraLayout && matrices(initialAdapter(loraLayout, seed), loraLayout);
    const parameters = new Map([...full, ...(adapter ?? [])]);
    return { base, lora, config, parameters, trained: adapter ?? full, moments: new Map(), step: 0 };
  }
  /** Runs a forward pass, and with a loss the backward pass. */
  function pass(model: ModelHandle, rows: readonly Row[], loss: LossSpec | null, { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const live = find(models, model.id);
    checkRows(rows, live.config, loss);
    return passRows(live, rows, loss);
  }
  /** Adds a copy of a model as a policy. */
  function publish(live: LiveModel): PolicyVersion {
    const version = { id: `policy-${nextId++}`, base: live.base };
    policies.set(version.id, structuredClone(live));
    return version;
  }

  return {
    capabilities: () => ({
      name: "reference",
      baseModels: Object.keys(baseModels),
      lora: true,
      fullParameter: true,
      entropyBonus: true,
      maxTopLogprobs: MAX_TOP_LOGPROBS,
      constraints: true,
      deterministic: true,
    }),
    async describeBase(base) {
      const directory = find(directories, base);
      const config = await readModelConfig(directory);
      const { vocabularySize, contextLength } = config;
      return { id: base, directory, vocabularySize, contextLength, parameters: countParameters(config) };
    },
    async createModel({ base, lora = null, from, seed, fresh = false }, { signal } = {}) {
      if (fresh) throw new UnsupportedError("The reference engine makes no base models", { param: "fresh" });
      const initial = await load(base, lora, seed);
      const live = from === undefined ? initial : await readState(from, initial);
      signal?.throwIfAborted();
      const handle = { id: `model-${nextId++}`, base };
      models.set(handle.id, live);
      return handle;
    },
    forward: async (model, rows, options) => pass(model, rows, null, options).logprobs,
    forwardBackward: async (model, rows, loss, options) => pass(model, rows, loss, options),
    async optimStep(model, adam, { signal } = {}) {
      signal?.throwIfAborted();
      const live = find(models, model.id);
      const gradNorm = adamStep(live, completeAdam(adam));
      return { gradNorm, step: live.step };
    },
    async resetOptimizer(model) {
      const live = find(models, model.id);
      dropGradients(live);
      models.set(model.id, { ...live, step: 0, moments: new Map() });
    },
    saveState: async (model, path) => writeFile(join(path, STATE_FILE), serialize(find(models, model.id)), { flush: true }),
    loadState: async (model, path) => void models.set(model.id, await readState(path, find(models, model.id))),
    publish: async (model) => publish(find(models, model.id)),
    loadPolicy: async ({ base, state }) => publish(state === undefined ? await load(base, null, 0) : await readState(state, { base })),
    async *sample(policy, prompt, params, { signal } = {}) {
      const model = find(policies, policy.id);
      checkSampling(prompt, params, { ...model.config, maxTopLogprobs: MAX_TOP_LOGPROBS });
      const constraint =
        params.constraint === undefined ? null : await grammars.constraint(find(directories, policy.base), grammarText(params.constraint));
      yield* sampleTokens(model, prompt, params, { constraint, signal });
    },
    release: async ({ id }) => void policies.delete(id),
    unload: async ({ id }) => void models.delete(id),
    close: () => Promise.resolve(),
    gradients: (model) => new Map([...find(models, model.id).trained].map(([name, { gradient }]) => [name, gradient.slice()])),
  };
}

/**
 * Applies one step of AdamW to the trained parameters of a model, and sets the gradients to 0.
 *
 * @returns Norm of the gradients before clipping.
 */
function adamStep(live: LiveModel, adam: ReturnType<typeof completeAdam>): number {
  const { learningRate, beta1, beta2, epsilon, weightDecay, maxGradNorm } = adam;
  live.step++;
  const { step } = live;
  const squares = [...live.trained.values()].map(({ gradient }) => gradient.reduce((sum, g) => sum + g * g, 0));
  const gradNorm = Math.sqrt(squares.reduce((sum, part) => sum + part, 0));
  const clip = maxGradNorm > 0 && gradNorm > maxGradNorm ? maxGradNorm / gradNorm : 1;
  for (const [name, { data, gradient }] of live.trained) {
    const [m, v] = live.moments.get(name) ?? [new Float64Array(data.length), new Float64Array(data.length)];
    live.moments.set(name, [m, v]);
    // Weight decay applies to matrices, also with one row, and not to gains and biases.
    const decay = /(norm\.weight|\.bias)$/.test(name) ? 0 : weightDecay;
    for (const [i, raw] of gradient.entries()) {
      const g = raw * clip;
      m[i] = beta1 * m[i]! + (1 - beta1) * g;
      v[i] = beta2 * v[i]! + (1 - beta2) * g * g;
      const update = m[i]! / (1 - beta1 ** step) / (Math.sqrt(v[i]! / (1 - beta2 ** step)) + epsilon);
      data[i]! -= learningRate * (update + decay * data[i]!);
    }
  }
  dropGradients(live);
  return gradNorm;
}

/** Constraint of a sampled choice by a grammar. */
type Constraint = Awaited<ReturnType<Grammars["constraint"]>>;

/** Samples the tokens of a request. The first token carries the log-probabilities of the prompt, if requested. */
async function* sampleTokens(
  model: LiveModel,
  prompt: Int32Array,
  params: SamplingParams,
  { constraint, signal }: { readonly constraint: Constraint | null; readonly signal: AbortSignal | undefined },
): AsyncGenerator<SampledToken> {
  const V = model.config.vocabularySize;
  const { maxTokens, promptLogprobs, topLogprobs, stopTokenIds } = params;
  const maxLength = maxSampledLength(model.config, prompt.length);
  const outputs: number[] = [];
  while (true) {
    signal?.throwIfAborted();
    const tokens = [...prompt, ...outputs];
    const { data } = nextLogits(model, tokens);
    const logitsAfter = (t: number) => data.subarray(t * V, (t + 1) * V);
    const raw = logitsAfter(tokens.length - 1);
    const mask = constraint?.masked(new Float32Array(V)); // 0 for tokens that can follow, −∞ for all others
    const logits = raw.map((logit, id) => logit + (mask?.[id] ?? 0));
    const logprobs = referenceLogSoftmax(logits, tokens.length);
    const id = chooseReferenceToken(logits, params, { prompt, outputs });
    const isFull = outputs.length + 1 >= maxTokens || tokens.length + 1 >= maxLength;
    const finishAtLimit = isFull ? "length" : undefined;
    const finish = stopTokenIds.includes(id) ? "stop" : finishAtLimit;
    const token: SampledToken = { id, logprob: logprobs[id]!, top: bestTokens(logprobs, topLogprobs), finish };
    const rankedPrompt = (count: number) =>
      tokens.slice(1).map((next, t) => rankToken(referenceLogSoftmax(logitsAfter(t), t + 1), next, count));
    const firstTokenFields = promptLogprobs === undefined ? { cachedTokens: 0 } : { cachedTokens: 0, prompt: rankedPrompt(promptLogprobs) };
    yield outputs.length > 0 ? token : { ...token, ...firstTokenFields };
    if (finish !== undefined) return;
    constraint?.record(id);
    outputs.push(id);
    // Yields to the event loop, so that other requests run and an abort takes effect.
    await new Promise(setImmediate);
  }
}

/** Converts flat weights to matrices by parameter name. */
function matrices(flat: Float32Array, layout: Layout): Parameters {
  const matrix = (rows: number, data: Float32Array) => createMatrix(rows, data.length / rows, Float64Array.from(data));
  return new Map(
    unpackTensors(flat, layout).map(({ name, shape, data }) => [name, matrix(shape.length === 1 ? 1 : itemAt(shape, 0), data)]),
  );
}

/** Sets all gradients to 0. */
function dropGradients({ trained }: LiveModel): void {
  for (const { gradient } of trained.values()) gradient.fill(0);
}

/**
 * Reads a saved state and checks its base model, and its adapter if given.
 *
 * @param model - Base model, and adapter (null for full-parameter training), that the state must have.
 * @throws DataError `E_DATA` if the state is missing or has another base model or adapter.
 */
async function readState(path: string, model: Pick<LiveModel, "base"> & Partial<Pick<LiveModel, "lora">>): Promise<LiveModel> {
  const bytes = await readFile(join(path, STATE_FILE)).catch((cause: unknown) => {
    throw new DataError(`Expected a state of the reference engine in '${path}'`, { cause });
  });
  const saved = deserialize(bytes) as LiveModel;
  const identityOf = ({ base, lora }: Pick<LiveModel, "base" | "lora">) => JSON.stringify([base, lora]);
  const expected = identityOf({ lora: saved.lora, ...model });
  const found = identityOf(saved);
  if (expected !== found) throw new DataError(`Expected a state of base and adapter ${expected}, found one of ${found}`);
  dropGradients(saved);
  return saved;
}
