/** Test double of an engine: a single weight, and answers from a script. `scripted-state.ts` has the files of its saved states. */

import { itemAt } from "../base/util/values.ts";
import { randomUUID } from "node:crypto";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { checkRows } from "../engine/check-request.ts";
import {
  OPTIMIZER_FILE,
  type BaseModelInfo,
  type CallOptions,
  type Engine,
  type LoraSpec,
  type LossMetrics,
  type LossSpec,
  type ModelHandle,
  type PolicyVersion,
  type PromptToken,
  type Row,
  type SampledToken,
  type SamplingParams,
  type TokenLogprob,
} from "../engine/port.ts";
import { ArgumentError, EngineError, NotFoundError } from "../base/errors.ts";
import { completeAdam, entropyCoefficientOf } from "../base/training-rows.ts";
import { oneTensor, readScriptedState, type ScriptedState } from "./scripted-state.ts";

/** Call of the engine port, as passed to the `before` hook and recorded in `calls`. */
export interface ScriptedCall {
  /** Method of the engine; `sampleToken` for each token of a `sample` call. */
  readonly verb: Exclude<keyof Engine, "capabilities" | "workers" | "holds" | "close"> | "sampleToken";
  /** Identifier of the model or policy; null for `describeBase` and calls that create one. */
  readonly id: string | null;
  /** Rows, optimizer settings, path or token index of the call. */
  readonly detail: unknown;
}

/** Input of a sampling script. */
export interface SampleScriptInput {
  /** Weights that the request samples from. */
  readonly policy: PolicyVersion;
  /** Number of optimizer steps in the policy's weights. */
  readonly step: number;
  /** The single weight of the policy. */
  readonly weight: number;
  /** Token ids of the prompt, shape `[P]`. */
  readonly prompt: Int32Array;
  /** Sampling parameters of the request. */
  readonly params: SamplingParams;
}

/** Options of {@link createScriptedEngine}. */
export interface ScriptedEngineOptions {
  /** Available base models. @default one base `scripted` of 64 tokens without a directory */
  readonly bases?: readonly BaseModelInfo[] | undefined;
  /** Returns the tokens to sample. @default the prompt, last token first */
  readonly script?: ((input: SampleScriptInput) => readonly number[]) | undefined;
  /** Hook that runs before each call and each sampled token. Await in it to delay the engine, throw in it to fail the call. */
  readonly before?: ((call: ScriptedCall, options: CallOptions) => void | Promise<void>) | undefined;
}

/**
 * Scripted engine with a record of its calls.
 *
 * @example
 * ```ts
 * import { createScriptedEngine } from "whetstone/testing";
 *
 * const scripted = createScriptedEngine();
 * const { baseModels } = scripted.capabilities();
 * const handle = await scripted.createModel({ base: baseModels[0]!, seed: 0 });
 * await scripted.publish(handle);
 * console.log(scripted.calls.length, scripted.liveModels(), scripted.livePolicies());
 * ```
 */
export interface ScriptedEngine extends Engine {
  /** All calls so far, oldest first; sampled tokens are not recorded. */
  readonly calls: readonly ScriptedCall[];
  /**
   * Returns the ids of the loaded policies that are not released.
   *
   * @returns ids in the order of loading.
   */
  livePolicies(): string[];
  /**
   * Returns the ids of the created models that are not unloaded.
   *
   * @returns ids in the order of creation.
   */
  liveModels(): string[];
}

/** Model that is created and not unloaded. */
interface LiveModel extends ScriptedState {
  readonly handle: ModelHandle;
  readonly lora: LoraSpec | null;
  /** Gradient accumulated since the last optimizer step. */
  gradient: number;
}

/** State of a base model. */
const BASE_STATE: ScriptedState = { weight: 0, moment: 0, optimizerStep: 0, step: 0 };

/** Computes a gradient as a pure function of the rows: equal batches give bit-identical results. */
function gradientOf(rows: readonly Row[]): number {
  let sum = 0;
  for (const row of rows) {
    for (let t = 0; t < row.tokens.length; t++) sum += itemAt(row.weights, t) * (row.advantages?.[t] ?? 1) * (1 + itemAt(row.tokens, t));
  }
  return sum;
}

/** Returns the log-probability of every trained token at a weight. */
function logprobAt(weight: number): number {
  return -Math.exp(-Math.abs(weight));
}

/** Returns the log-probabilities of rows, shape `[T]` per row; 0 for tokens that are not trained. */
function logprobsOf(rows: readonly Row[], weight: number): Float32Array[] {
  return rows.map((row) => row.weights.map((tokenWeight) => (tokenWeight === 0 ? 0 : logprobAt(weight))));
}

/** Returns the metrics of a forward and backward pass. */
function metricsOf(rows: readonly Row[], loss: LossSpec, weight: number): LossMetrics {
  let tokens = 0;
  let lossSum = 0;
  let weightSum = 0;
  for (const row of rows) {
    for (let t = 0; t < row.tokens.length; t++) {
      if (row.weights[t] === 0) continue;
      tokens++;
      weightSum += itemAt(row.weights, t);
      lossSum += itemAt(row.weights, t) * (row.advantages?.[t] ?? 1) * -logprobAt(weight);
    }
  }
  const coefficient = entropyCoefficientOf(loss);
  return {
    loss: lossSum - coefficient * weightSum,
    tokens,
    // Each token has an entropy of 1 nat, which does not depend on the weight, so a bonus has no gradient.
    entropy: tokens,
    ...(coefficient > 0 ? { weightedEntropy: weightSum } : {}),
    positions: rows.reduce((sum, row) => sum + row.tokens.length - 1, 0),
    padding: 0,
  };
}

/** Log-probability of every sampled token and every token of a prompt. */
const SAMPLED_LOGPROB = -0.5;

/** Returns the `count` most likely tokens: the token itself, then the tokens after it, each less likely than the one before. */
function alternatives(token: number, count: number, vocabularySize: number): TokenLogprob[] {
  return Array.from({ length: count }, (_, rank) => ({
    id: rank === 0 ? token : (token + rank) % vocabularySize,
    logprob: SAMPLED_LOGPROB - rank,
  }));
}

/** Returns the tokens of a prompt after the first, each with `count` alternatives. */
function promptTokens(prompt: Int32Array, count: number, vocabularySize: number): PromptToken[] {
  return [...prompt.subarray(1)].map((id) => ({ id, logprob: SAMPLED_LOGPROB, rank: 1, top: alternatives(id, count, vocabularySize) }));
}

/** Answer of at most `limit` tokens that follows a script. */
interface ScriptedAnswer {
  readonly script: ArrayLike<number>;
  readonly limit: number;
  readonly prompt: Int32Array;
  readonly params: SamplingParams;
  readonly vocabularySize: number;
}

/** Returns the token at an index of an answer. Only the first token carries the log-probabilities of the prompt. */
function scriptedToken(index: number, { script, limit, prompt, params, vocabularySize }: ScriptedAnswer): SampledToken {
  // After the end of a script, sampling emits the first stop token, or repeats the script if there is no stop token.
  const id = script[index] ?? params.stopTokenIds[0] ?? script[index % Math.max(script.length, 1)] ?? 0;
  const promptAlternatives = index === 0 ? params.promptLogprobs : undefined;
  const finishAtLimit = index === limit - 1 ? "length" : undefined;
  const finish = params.stopTokenIds.includes(id) ? "stop" : finishAtLimit;
  return {
    id,
    logprob: SAMPLED_LOGPROB,
    top: alternatives(id, params.topLogprobs, vocabularySize),
    ...(promptAlternatives === undefined ? {} : { prompt: promptTokens(prompt, promptAlternatives, vocabularySize) }),
    ...(finish === undefined ? {} : { finish }),
  };
}

/**
 * Creates an {@link Engine} with a single weight, for tests: exact, instant, and without learning. Training moves the weight by a pure
 * function of the rows, states are small real files, and sampling follows a script.
 *
 * @param options - Base models, sampling script and a hook before each call.
 * @returns the engine with its record of calls.
 * @example
 * ```ts
 * const engine = createScriptedEngine({ script: () => [7, 8, 9] });
 * const policy = await engine.loadPolicy({ base: "scripted" });
 * ```
 */
export function createScriptedEngine(options: ScriptedEngineOptions = {}): ScriptedEngine {
  const bases = options.bases ?? [{ id: "scripted", directory: "", vocabularySize: 64, contextLength: 256, parameters: 1 }];
  const models = new Map<string, LiveModel>();
  const policies = new Map<string, { readonly version: PolicyVersion; readonly state: ScriptedState }>();
  const calls: ScriptedCall[] = [];
  let isClosed = false;

  /** Records a call and runs the hook; precedes the work of every method. */
  async function enter(call: ScriptedCall, callOptions: CallOptions = {}): Promise<void> {
    if (isClosed) throw new EngineError("The scripted engine is closed");
    callOptions.signal?.throwIfAborted();
    if (call.verb !== "sampleToken") calls.push(call);
    await options.before?.(call, callOptions);
    callOptions.signal?.throwIfAborted();
  }
  /** Returns a base model. @throws NotFoundError `E_NOT_FOUND` with the existing ones. */
  function requireBase(id: string): BaseModelInfo {
    const base = bases.find((candidate) => candidate.id === id);
    if (base !== undefined) return base;
    const ids = bases.map((each) => each.id).join(", ");
    throw new NotFoundError(`Base model '${id}' does not exist; this engine has: ${ids}`, { param: "base_model" });
  }
  /** Returns a model that is loaded. @throws EngineError `E_ENGINE` for any other. */
  function requireModel(model: ModelHandle): LiveModel {
    const liveModel = models.get(model.id);
    if (liveModel === undefined) throw new EngineError(`Model '${model.id}' is not loaded`);
    return liveModel;
  }
  /** Adds a policy with a copy of a state. */
  function addPolicy(baseId: string, state: ScriptedState): PolicyVersion {
    const version: PolicyVersion = { id: randomUUID(), base: baseId };
    policies.set(version.id, { version, state: { ...state } });
    return version;
  }

  return {
    calls,
    livePolicies: () => [...policies.keys()],
    liveModels: () => [...models.keys()],
    capabilities: () => ({
      name: "scripted",
      baseModels: bases.map((b) => b.id),
      lora: true,
      fullParameter: true,
      entropyBonus: true,
      constraints: true,
      maxTopLogprobs: 20,
      deterministic: true,
    }),
    async describeBase(id) {
      await enter({ verb: "describeBase", id: null, detail: id });
      return requireBase(id);
    },
    async createModel(spec, callOptions) {
      await enter({ verb: "createModel", id: null, detail: spec }, callOptions);
      requireBase(spec.base);
      const handle: ModelHandle = { id: randomUUID(), base: spec.base };
      const state = spec.from === undefined ? BASE_STATE : await readScriptedState(spec.from);
      models.set(handle.id, { ...state, gradient: 0, handle, lora: spec.lora ?? null });
      return handle;
    },
    async forward(model, rows, callOptions) {
      await enter({ verb: "forward", id: model.id, detail: rows }, callOptions);
      checkRows(rows, requireBase(model.base), null);
      const { weight } = requireModel(model);
      return logprobsOf(rows, weight);
    },
    async forwardBackward(model, rows, loss, callOptions) {
      await enter({ verb: "forwardBackward", id: model.id, detail: { rows, loss } }, callOptions);
      checkRows(rows, requireBase(model.base), loss);
      const state = requireModel(model);
      state.gradient += gradientOf(rows);
      return { logprobs: logprobsOf(rows, state.weight), metrics: metricsOf(rows, loss, state.weight) };
    },
    async optimStep(model, adam, callOptions) {
      await enter({ verb: "optimStep", id: model.id, detail: adam }, callOptions);
      const state = requireModel(model);
      const gradNorm = Math.abs(state.gradient);
      const { beta1 } = completeAdam(adam);
      state.moment = beta1 * state.moment + (1 - beta1) * state.gradient;
      state.weight -= adam.learningRate * state.moment;
      state.gradient = 0;
      state.optimizerStep += 1;
      state.step += 1;
      return { gradNorm, step: state.optimizerStep };
    },
    async resetOptimizer(model, callOptions) {
      await enter({ verb: "resetOptimizer", id: model.id, detail: null }, callOptions);
      const state = requireModel(model);
      state.moment = 0;
      state.gradient = 0;
      state.optimizerStep = 0;
    },
    async saveState(model, path, callOptions) {
      await enter({ verb: "saveState", id: model.id, detail: path }, callOptions);
      const state = requireModel(model);
      if ((await readdir(path)).length > 0) throw new ArgumentError(`Expected an empty directory to save to, '${path}' holds files`);
      const { step, optimizerStep } = state;
      // `flush` calls fsync, so that a state reported as saved is on disk.
      await writeFile(join(path, "model.safetensors"), oneTensor("weight", state.weight), { flush: true });
      await writeFile(join(path, OPTIMIZER_FILE), oneTensor("moment", state.moment), { flush: true });
      await writeFile(join(path, "state.json"), JSON.stringify({ step, optimizer_step: optimizerStep }), { flush: true });
    },
    async loadState(model, path, callOptions) {
      await enter({ verb: "loadState", id: model.id, detail: path }, callOptions);
      Object.assign(requireModel(model), await readScriptedState(path), { gradient: 0 });
    },
    async publish(model, callOptions) {
      await enter({ verb: "publish", id: model.id, detail: null }, callOptions);
      const { weight, moment, optimizerStep, step } = requireModel(model);
      return addPolicy(model.base, { weight, moment, optimizerStep, step });
    },
    async loadPolicy(spec, callOptions) {
      await enter({ verb: "loadPolicy", id: null, detail: spec }, callOptions);
      requireBase(spec.base);
      return addPolicy(spec.base, spec.state === undefined ? BASE_STATE : await readScriptedState(spec.state));
    },
    async *sample(policy, prompt, params, callOptions = {}) {
      await enter({ verb: "sample", id: policy.id, detail: { prompt, params } }, callOptions);
      const livePolicy = policies.get(policy.id);
      if (livePolicy === undefined) throw new EngineError(`Policy '${policy.id}' is not loaded`);
      const { contextLength, vocabularySize } = requireBase(policy.base);
      if (prompt.length === 0 || prompt.length >= contextLength)
        throw new ArgumentError(`Expected a prompt of 1 to ${contextLength - 1} tokens, got ${prompt.length}`, { param: "prompt" });
      const limit = Math.min(params.maxTokens, contextLength - prompt.length);
      const { weight, step } = livePolicy.state;
      const script = options.script?.({ policy, step, weight, prompt, params }) ?? [...prompt].reverse();
      for (let index = 0; index < limit; index++) {
        await enter({ verb: "sampleToken", id: policy.id, detail: index }, callOptions);
        const token = scriptedToken(index, { script, limit, prompt, params, vocabularySize });
        yield token;
        if (token.finish !== undefined) return;
      }
    },
    async release(policy) {
      await enter({ verb: "release", id: policy.id, detail: null });
      policies.delete(policy.id);
    },
    async unload(model) {
      await enter({ verb: "unload", id: model.id, detail: null });
      models.delete(model.id);
    },
    close() {
      isClosed = true;
      models.clear();
      policies.clear();
      return Promise.resolve();
    },
  };
}
