/**
 * The engine's port in float64, in plain loops: slow, small, and the measure of the others. Its gradients are an oracle.
 * Weights are read and tokens drawn by the code of the embedded engine; every token is a forward pass over all before it.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import { checkRows, checkSampling } from "../../engine/check-request.ts";
import { readModelConfig } from "../../engine/onnx/model/config.ts";
import { adapterLayout, baseLayout, type Layout } from "../../engine/onnx/model/parameters.ts";
import { countParameters } from "../../engine/onnx/model/transformer.ts";
import { initialAdapter, readBaseWeights, unpackTensors } from "../../engine/onnx/model/weights.ts";
import { chooseToken, placeToken, topTokens } from "../../engine/onnx/sample/choose.ts";
import { Grammars, grammarText } from "../../engine/onnx/sample/grammar/grammars.ts";
import { LogitRules } from "../../engine/onnx/sample/logits/rules.ts";
import type { CallOptions, Engine, LoraSpec, LossSpec, ModelHandle, PolicyVersion, Row } from "../../engine/port.ts";
import { DataError, NotFoundError, UnsupportedError } from "../../errors.ts";
import { uniform } from "../../util/rng.ts";
import { logitsOf, type Parameters, passRow, type ReferenceModel } from "./llama.ts";
import { Matrix, softmax } from "./tape.ts";

/** The engine, and the gradients that an oracle is asked for. */
export interface ReferenceEngine extends Engine {
  /** What has accumulated since the last step, by the parameter's name in files; shapes as in files. */
  gradients(model: ModelHandle): ReadonlyMap<string, Float64Array>;
}

/** A parameter's values and moments, and what has accumulated of its gradient. */
interface Trained {
  /** A gain or a bias does not decay; a matrix does, of one row too. */
  readonly decays: boolean;
  readonly matrix: Matrix;
  readonly first: Float64Array;
  readonly second: Float64Array;
}

interface LiveModel {
  readonly base: string;
  readonly lora: Required<LoraSpec> | null;
  readonly model: ReferenceModel;
  readonly trained: ReadonlyMap<string, Trained>;
  step: number;
}

/** What of a model is saved. */
type Saved = Pick<LiveModel, "base" | "lora" | "step"> & { readonly vectors: ReadonlyMap<string, readonly Float64Array[]> };

const MAX_TOP_LOGPROBS = 20;

/** Starts a reference engine on directories in Hugging Face layout, by identifier. */
export function createReferenceEngine({ baseModels }: { readonly baseModels: Readonly<Record<string, string>> }): ReferenceEngine {
  const models = new Map<string, LiveModel>();
  const policies = new Map<string, ReferenceModel>();
  let nextId = 0;

  const directoryOf = (base: string): string => {
    if (Object.hasOwn(baseModels, base)) return baseModels[base]!;
    throw new NotFoundError(`The base model "${base}" does not exist here`, { param: "base_model" });
  };
  const find = <T>(map: ReadonlyMap<string, T>, { id }: { readonly id: string }): T => {
    const found = map.get(id);
    if (found === undefined) throw new NotFoundError(`The engine holds no "${id}"; it was unloaded`);
    return found;
  };
  async function load(base: string, spec: LoraSpec | null, seed: number): Promise<LiveModel> {
    const directory = directoryOf(base);
    const config = await readModelConfig(directory);
    const layout = baseLayout(config);
    const weights = matrices(await readBaseWeights(directory, layout), layout);
    const lora = spec && { rank: spec.rank, alpha: spec.alpha ?? 2 * spec.rank };
    const low = lora && adapterLayout(config, lora.rank);
    const at = (index: number) => uniform(BigInt(seed), index);
    const adapter = low && matrices(initialAdapter(low, at), low);
    const vectors = new Set(layout.parameters.flatMap(({ shape, files }) => (shape.length === 1 ? files.map(({ name }) => name) : [])));
    const trained = new Map<string, Trained>();
    for (const [name, matrix] of adapter ?? weights) {
      const [first, second] = [new Float64Array(matrix.data.length), new Float64Array(matrix.data.length)];
      trained.set(name, { matrix, decays: !vectors.has(name), first, second });
    }
    const model = { config, base: weights, adapter: adapter && lora ? { matrices: adapter, scale: lora.alpha / lora.rank } : undefined };
    return { base, lora, model, trained, step: 0 };
  }
  function restore(live: LiveModel, saved: Saved): void {
    const [wanted, found] = [live, saved].map(({ base, lora }) => `base "${base}" with adapter ${JSON.stringify(lora)}`);
    if (wanted !== found) throw new DataError(`Expected a state of ${wanted}, found one of ${found}`);
    for (const [name, one] of live.trained) {
      vectorsOf(one).forEach((vector, i) => vector.set(saved.vectors.get(name)![i]!));
      one.matrix.gradient.fill(0);
    }
    live.step = saved.step;
  }
  function pass(handle: ModelHandle, rows: readonly Row[], loss: LossSpec | null, { signal }: CallOptions = {}) {
    signal?.throwIfAborted();
    const { model } = find(models, handle);
    checkRows(rows, model.config, loss);
    return rows.map((row) => passRow(model, row, loss));
  }
  function publish({ model, base }: LiveModel): PolicyVersion {
    const version = { id: `policy-${nextId++}`, base };
    const copy = (all: Parameters) => new Map([...all].map(([name, m]) => [name, new Matrix(m.rows, m.columns, m.data.slice())]));
    const { adapter } = model;
    policies.set(version.id, { ...model, base: copy(model.base), adapter: adapter && { ...adapter, matrices: copy(adapter.matrices) } });
    return version;
  }

  const grammars = new Grammars();
  return {
    capabilities: () => ({
      name: "reference",
      baseModels: Object.keys(baseModels),
      losses: ["cross-entropy", "cispo", "ppo"],
      lora: true,
      fullParameter: true,
      maxTopLogprobs: MAX_TOP_LOGPROBS,
      constraints: true,
      deterministic: true,
    }),
    async describeBase(base) {
      const directory = directoryOf(base);
      const config = await readModelConfig(directory);
      const { vocabularySize, contextLength } = config;
      return { id: base, directory, vocabularySize, contextLength, parameters: countParameters(config) };
    },
    async createModel({ base, lora = null, from, seed, fresh = false }, { signal } = {}) {
      if (fresh) throw new UnsupportedError("The reference engine makes no base models", { param: "fresh" });
      const live = await load(base, lora, seed);
      if (from !== undefined) restore(live, await readState(from));
      signal?.throwIfAborted();
      const handle = { id: `model-${nextId++}`, base };
      models.set(handle.id, live);
      return handle;
    },
    forward: async (model, rows, options) => pass(model, rows, null, options).map(({ logprobs }) => logprobs),
    async forwardBackward(model, rows, loss, options) {
      const passes = pass(model, rows, loss, options);
      const sum = (of: "loss" | "tokens" | "entropy") => passes.reduce((total, one) => total + one[of], 0);
      const metrics = { loss: sum("loss"), tokens: sum("tokens"), entropy: sum("entropy") };
      return { logprobs: passes.map(({ logprobs }) => logprobs), metrics };
    },
    async optimStep(model, { learningRate, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8, weightDecay = 0, maxGradNorm = 0 }, { signal } = {}) {
      signal?.throwIfAborted();
      const live = find(models, model);
      const step = ++live.step;
      const all = [...live.trained.values()];
      const gradNorm = Math.sqrt(all.reduce((sum, { matrix }) => matrix.gradient.reduce((part, g) => part + g * g, sum), 0));
      const clip = maxGradNorm > 0 && gradNorm > maxGradNorm ? maxGradNorm / gradNorm : 1;
      for (const { matrix, decays, first: m, second: v } of all) {
        for (const [i, raw] of matrix.gradient.entries()) {
          const g = raw * clip;
          m[i] = beta1 * m[i]! + (1 - beta1) * g;
          v[i] = beta2 * v[i]! + (1 - beta2) * g * g;
          const update = m[i]! / (1 - beta1 ** step) / (Math.sqrt(v[i]! / (1 - beta2 ** step)) + epsilon);
          matrix.data[i]! -= learningRate * (update + (decays ? weightDecay * matrix.data[i]! : 0));
        }
        matrix.gradient.fill(0);
      }
      return { gradNorm, step };
    },
    async resetOptimizer(model) {
      const live = find(models, model);
      live.step = 0;
      for (const { matrix, first, second } of live.trained.values()) [matrix.gradient, first, second].forEach((vector) => vector.fill(0));
    },
    async saveState(model, path) {
      const { base, lora, step, trained } = find(models, model);
      const saved: Saved = { base, lora, step, vectors: new Map([...trained].map(([name, one]) => [name, vectorsOf(one)])) };
      await writeFile(join(path, "reference.bin"), serialize(saved), { flush: true });
    },
    loadState: async (model, path) => restore(find(models, model), await readState(path)),
    publish: async (model) => publish(find(models, model)),
    async loadPolicy({ base, state }) {
      const saved = state === undefined ? null : await readState(state);
      const live = await load(base, saved?.lora ?? null, 0);
      if (saved !== null) restore(live, saved);
      return publish(live);
    },
    async *sample(policy, prompt, params, { signal } = {}) {
      signal?.throwIfAborted();
      const model = find(policies, policy);
      const { contextLength, vocabularySize } = model.config;
      checkSampling(prompt, params, { contextLength, vocabularySize, maxTopLogprobs: MAX_TOP_LOGPROBS });
      const rules = LogitRules.of(params, prompt);
      const constraint =
        params.constraint === undefined ? null : await grammars.constraint(directoryOf(policy.base), grammarText(params.constraint));
      const limit = Math.min(params.maxTokens, contextLength - prompt.length);
      const tokens = [...prompt];
      for (let index = 0; index < limit; index++) {
        const all = logitsOf(model, tokens);
        const logitsAt = (t: number) => all.data.subarray(t * vocabularySize, (t + 1) * vocabularySize);
        const logprobsAt = (t: number) => Float32Array.from(softmax(logitsAt(t)), Math.log);
        const logits = Float32Array.from(logitsAt(tokens.length - 1));
        const id = chooseToken(constraint?.masked(logits) ?? logits, params, index, rules);
        const logprobs = constraint?.logprobs(logprobsAt(tokens.length - 1)) ?? logprobsAt(tokens.length - 1);
        tokens.push(id);
        rules?.note(id);
        constraint?.note(id);
        const asked = index === 0 ? params.promptLogprobs : undefined;
        const scored =
          asked === undefined ? {} : { prompt: [...prompt.subarray(1)].map((token, t) => placeToken(logprobsAt(t), token, asked)) };
        const finish = params.stopTokenIds.includes(id) ? ("stop" as const) : index === limit - 1 ? ("length" as const) : undefined;
        yield { id, logprob: logprobs[id]!, top: topTokens(logprobs, params.topLogprobs), ...scored, ...(finish && { finish }) };
        if (finish !== undefined) return;
        // Others have their turn, an abort among them.
        await new Promise(setImmediate);
        signal?.throwIfAborted();
      }
    },
    release: async ({ id }) => void policies.delete(id),
    unload: async ({ id }) => void models.delete(id),
    close: () => Promise.resolve(),
    gradients: (model) => new Map([...find(models, model).trained].map(([name, { matrix }]) => [name, matrix.gradient.slice()])),
  };
}

const vectorsOf = ({ matrix, first, second }: Trained) => [matrix.data, first, second];

function matrices(flat: Float32Array, layout: Layout): Parameters {
  const matrix = (shape: readonly number[], data: Float32Array) =>
    new Matrix(shape.length === 1 ? 1 : shape[0]!, shape.at(-1)!, Float64Array.from(data));
  return new Map(unpackTensors(flat, layout).map(({ name, shape, data }) => [name, matrix(shape, data)]));
}

async function readState(path: string): Promise<Saved> {
  const bytes = await readFile(join(path, "reference.bin")).catch((cause: unknown) => {
    throw new DataError(`Expected a state of the reference engine in '${path}'`, { cause });
  });
  return deserialize(bytes) as Saved;
}
