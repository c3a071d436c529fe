/** Embedded engine: the Engine port over sampler threads and a trainer thread, which run independently of each other. */
import { availableParallelism } from "node:os";
import { Lru, remember } from "../../base/util/lru.ts";
import { startedByReader } from "../../base/util/started-by-reader.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { loadingBase, unresolvedBase } from "../base-failure.ts";
import { checkSampling } from "../check-request.ts";
import type { AdamParams, BaseModelInfo, CallOptions, SamplingOptions, Capabilities, DeviceChoice, DeviceInfo } from "../port.ts";
import type { Engine, LossSpec, ModelHandle, PolicyVersion, Row, SamplingParams, StatePath } from "../port.ts";
import type { RolloutPrecision, VerifyBaseOptions, WeightPrecision, WorkerStatus } from "../port.ts";
import { checkThreadCounts } from "./counts.ts";
import { BaseCatalog } from "./model/base-catalog.ts";
import { type ModelConfig, readModelConfig, type BaseSource } from "./model/config.ts";
import { isLarge } from "./model/size.ts";
import { countParameters } from "./model/transformer.ts";
import { BaseInspector } from "./threads/base-inspector.ts";
import { loadRuntime } from "./runtime/program.ts";
import { checkLogitParams } from "./sample/check-params.ts";
import { DEFAULT_MAX_ROWS } from "./sample/options.ts";
import { type ComputeUnit, type DeviceUnitOptions, deviceUnit, processorUnit } from "./threads/compute-unit.ts";
import { ComputeUnits } from "./threads/compute-units.ts";
import { checkedDevice, devicePrecision, processorPrecision } from "./threads/device-options.ts";
import type { WorkerDeath } from "./threads/supervised-worker.ts";
import { threadCandidates } from "./train/thread-choice.ts";

/** Settings of the embedded engine. */
export interface OnnxEngineOptions {
  /**
   * Base models by identifier: the path of a directory in Hugging Face layout or of a GGUF file, `ollama:<name>[:tag]`, or with
   * `resolveBase` `hf:<owner>/<name>[@revision]`.
   */
  readonly baseModels: Readonly<Record<string, string>>;
  /** Directories under which a base model given by absolute path must lie; `"any"` = all paths. @default [] */
  readonly allowedRoots?: readonly string[] | "any" | undefined;
  /**
   * Returns the directory of a model on the hub (`owner/name`, or `owner/name@revision`) or of another unknown identifier, or null if the
   * base does not exist. Called with every request, so the implementation must cache its results. @default always null
   */
  readonly resolveBase?: ((base: string) => Promise<string | null>) | undefined;
  /**
   * Number of sampler threads. Requests are distributed among them; the sampled tokens do not depend on the thread. Models of more
   * than 16 M weights are sampled on one thread. @default 2; 1 on machines with fewer than four processors, which the serving thread
   * and one sampler already use
   */
  readonly samplers?: number | undefined;
  /**
   * Threads per operator in a sampler, of which at most 4 are used. Models of more than 16 M weights use them where the result stays
   * bit-identical; smaller models always use one. @default number of processors
   */
  readonly samplerThreads?: number | undefined;
  /**
   * Threads of the trainer, at most 4. The result does not depend on the number. By default the first steps of each model shape are
   * timed with 1, 2 and as many threads as there are processors (at most 4); models of more than 16 M weights use the last of these without
   * a trial. @default the fastest of these
   */
  readonly trainerThreads?: number | undefined;
  /** Niceness of the trainer's compute threads, 0 to 19; Linux only. @default 10 */
  readonly trainerNiceness?: number | undefined;
  /** Maximum number of sequences sampled at once, divided among the samplers. @default 256 */
  readonly maxSamplingRows?: number | undefined;
  /** Bytes of the prefix cache, divided among the samplers; 0 = none. @default 256 MiB; on a GPU, an eighth of `deviceMemory` */
  readonly prefixCacheBytes?: number | undefined;
  /**
   * Device that trains and samples: the processor; a GPU through WebGPU, an error without one; or `"auto"`, the GPU for models of more
   * than 16 M weights and the processor for all others, or for all models without a GPU or with a software adapter alone. @default "cpu"
   */
  readonly device?: DeviceChoice | undefined;
  /**
   * Memory of the GPU in bytes, which WebGPU does not report; at least 1 GB. The bytes that a training batch keeps for its gradient are
   * proportional to it: with more, fewer layers are recomputed, and more requests run at once. An error with the device `"cpu"`.
   * @default 8 GB
   */
  readonly deviceMemory?: number | undefined;
  /**
   * Type in which weights that are not trained are stored: the matrices, embeddings and output heads of base models, for sampling and under
   * adapters. Products are computed in float32, or as `rolloutPrecision` says. Models that train every parameter start from the float32
   * weights of the files.
   *
   * - `"float16"`, on a GPU alone, takes half the memory, and needs an adapter with the WebGPU feature shader-f16.
   * - `"int4"` and `"int8"`, on the processor alone, are blocks of 32 elements with a float32 scale, some 0.63 and 1.13 bytes per weight.
   *   GGUF files in Q4_0, Q4_1 and Q4_K, and with `"int8"` in Q8_0, keep their values; other weights are rounded as llama.cpp rounds to Q4_0
   *   and Q8_0. An error with the devices `"webgpu"` and `"auto"`.
   *
   * @default "float32"
   */
  readonly weightPrecision?: WeightPrecision | undefined;
  /**
   * Number format of the products with weights when the processor samples from models of more than 16 M weights, or from base models in
   * int4 or int8. `"int8"` rounds the matrices of the decode graph, the output head included, unless they are stored in int4 or int8, and
   * the rows that they multiply, to 8 bits in blocks of 32, which is faster for few requests. The recorded log-probabilities belong to the
   * rounded model, and RL jobs correct the difference to the trained weights by importance ratios. Prompts are computed, and weights
   * trained, in float32. An error with another device than `"cpu"`. @default "float32"
   */
  readonly rolloutPrecision?: RolloutPrecision | undefined;
  /**
   * Called once per compiled graph with nodes that the processor computes although the graph runs on a GPU, except arithmetic on shapes and
   * token ids. @default no callback
   */
  readonly onFallback?: DeviceUnitOptions["onFallback"] | undefined;
  /**
   * Called with the reason if the device is `"auto"` and the first model of more than 16 M weights finds no GPU: the processor computes all
   * large models from then on, with float32 weights. @default no callback
   */
  readonly onDeviceUnavailable?: ((reason: string) => void) | undefined;
  /** Called after a worker died, which the engine restarts. @default no callback */
  readonly onWorkerDeath?: ((death: WorkerDeath) => void) | undefined;
}

/** Maximum of `topLogprobs`, larger than any vocabulary. The service applies the limit for its callers. */
const MAX_TOP_LOGPROBS = 2 ** 20;

/** Start of the identifiers of policies; the trainer's identifiers of models start otherwise. */
const POLICY_PREFIX = "policy-";

/**
 * Starts the embedded engine.
 *
 * @param options - Base models, and limits for threads, rows and memory.
 * @returns Running engine; call `close` to stop its threads.
 * @throws EngineMissingError `E_ENGINE_MISSING` if onnxruntime-node cannot be loaded.
 * @throws ConfigError `E_CONFIG` for a number of threads or rows that is not an integer of at least 1, and for more than 4 trainer
 *   threads; for an unknown device or precision; for `rolloutPrecision` `"int8"` with another device than `"cpu"`; for `deviceMemory`
 *   below 1 GB or with the device `"cpu"`; for float16 weights with the device `"cpu"`, or on an adapter without shader-f16; and for
 *   weights in int8 or int4 with another device than `"cpu"`.
 * @example
 * ```ts
 * const engine = await createOnnxEngine({ baseModels: { base: "/models/base" } });
 * ```
 */
export async function createOnnxEngine(options: OnnxEngineOptions): Promise<Engine> {
  const maxSamplingRows = options.maxSamplingRows ?? DEFAULT_MAX_ROWS;
  const samplers = options.samplers ?? (availableParallelism() >= 4 ? Math.min(2, maxSamplingRows) : 1);
  const samplerThreads = options.samplerThreads ?? availableParallelism();
  const { trainerThreads } = options;
  checkThreadCounts({ samplers, samplerThreads, trainerThreads, maxSamplingRows });
  const { device, deviceMemory: memoryBytes, weightPrecision, rolloutPrecision } = checkedDevice(options);
  const bases = new BaseCatalog(options);
  await bases.check();
  await loadRuntime();
  const { onWorkerDeath: onDeath = () => {}, onFallback = () => {}, onDeviceUnavailable = () => {} } = options;
  const sampler = { threads: samplerThreads, maxRows: maxSamplingRows, prefixCacheBytes: options.prefixCacheBytes };
  const deviceSettings = { sampler, memoryBytes, weightPrecision: devicePrecision(weightPrecision) };
  const startDevice = () => deviceUnit({ ...deviceSettings, acceptsSoftware: device === "webgpu", onDeath, onFallback });
  const trainer = { threads: trainerThreads ?? threadCandidates(availableParallelism()), niceness: options.trainerNiceness ?? 10 };
  const precisions = { weightPrecision: processorPrecision(weightPrecision), rolloutPrecision };
  const startProcessor = () => processorUnit({ samplers, sampler, trainer, precisions, onDeath });
  const main = device === "webgpu" ? await startDevice() : startProcessor();
  const startLarge = device === "auto" ? startDevice : null;
  return new OnnxEngine(bases, new ComputeUnits(main, startLarge, ({ message }) => onDeviceUnavailable(message)));
}

/** Engine that finds the compute unit of each model, the samplers and the trainer of one device, and forwards calls to it. */
class OnnxEngine implements Engine {
  readonly #bases: BaseCatalog;
  readonly #inspector = new BaseInspector();
  readonly #configs = new Lru<string, Promise<ModelConfig>>();
  /** Parameter counts by directory. Counting lays out every tensor, and every request describes its base model. */
  readonly #parameterCounts = new Map<string, number>();
  readonly #units: ComputeUnits;
  #nextPolicy = 0;

  constructor(bases: BaseCatalog, units: ComputeUnits) {
    this.#bases = bases;
    this.#units = units;
  }

  workers(): readonly WorkerStatus[] {
    return this.#units.started.flatMap((unit) => unit.workers());
  }

  devices(): readonly DeviceInfo[] {
    return this.#units.started.map(({ device }) => device);
  }

  holds(held: PolicyVersion | ModelHandle): boolean {
    const unit = this.#units.known(held.base);
    if (unit === undefined) return false;
    return held.id.startsWith(POLICY_PREFIX) ? unit.samplers.holds(held.id) : unit.trainer.holds(held);
  }

  capabilities(): Capabilities {
    return {
      name: "onnx",
      baseModels: this.#bases.ids,
      lora: true,
      fullParameter: true,
      entropyBonus: true,
      maxTopLogprobs: MAX_TOP_LOGPROBS,
      constraints: true,
      deterministic: true,
    };
  }

  addBase(id: string, source: string): Promise<void> {
    return this.#bases.add(id, source);
  }

  async describeBase(base: string): Promise<BaseModelInfo> {
    const source = await this.#resolve(base);
    const { directory } = source;
    const config = await this.#config(source);
    return {
      id: base,
      directory,
      vocabularySize: config.vocabularySize,
      contextLength: config.contextLength,
      parameters: getOrInsert(this.#parameterCounts, directory, () => countParameters(config)),
    };
  }

  async verifyBase(base: string, options: VerifyBaseOptions = {}): Promise<void> {
    const { directory } = await this.#resolve(base);
    await loadingBase(base, () => this.#inspector.inspect(directory, options));
  }

  async createModel({ base, ...rest }: Parameters<Engine["createModel"]>[0], { signal }: CallOptions = {}): Promise<ModelHandle> {
    const source = await this.#resolve(base);
    return (await this.#unitOf(source)).trainer.createModel(source, rest, { signal });
  }

  async forward(model: ModelHandle, rows: readonly Row[], options: CallOptions = {}) {
    return (await this.#trainerOf(model)).call(model, "forward", (id) => [id, rows], options);
  }

  async forwardBackward(model: ModelHandle, rows: readonly Row[], loss: LossSpec, options: CallOptions = {}) {
    const { trainer, device } = await this.#unitOfModel(model);
    const { logprobs, metrics } = await trainer.call(model, "forwardBackward", (id) => [id, rows, loss], options);
    // Adds the adapter's name, which the device's process does not know.
    return { logprobs, metrics: metrics.device ? { ...metrics, device: { ...metrics.device, ...device } } : metrics };
  }

  async optimStep(model: ModelHandle, adam: AdamParams, options: CallOptions = {}): Promise<{ gradNorm: number; step: number }> {
    return (await this.#trainerOf(model)).call(model, "optimStep", (id) => [id, adam], options);
  }

  async resetOptimizer(model: ModelHandle, options: CallOptions = {}): Promise<void> {
    return (await this.#trainerOf(model)).call(model, "resetOptimizer", (id) => [id], options);
  }

  async saveState(model: ModelHandle, path: StatePath, options: CallOptions = {}): Promise<void> {
    return (await this.#trainerOf(model)).call(model, "saveState", (id) => [id, path], options);
  }

  async loadState(model: ModelHandle, path: StatePath, options: CallOptions = {}): Promise<void> {
    return (await this.#trainerOf(model)).call(model, "loadState", (id) => [id, path], options);
  }

  async publish(model: ModelHandle, { signal }: CallOptions = {}): Promise<PolicyVersion> {
    const base = await this.#resolve(model.base);
    const id = this.#newPolicyId();
    const unit = await this.#unitOf(base);
    await unit.publish(model, id, base, { isSmall: await this.#isSmall(base), signal });
    return { id, base: model.base };
  }

  async loadPolicy(spec: { base: string; state?: StatePath | undefined }, { signal }: CallOptions = {}): Promise<PolicyVersion> {
    const id = this.#newPolicyId();
    const base = await this.#resolve(spec.base);
    const { samplers } = await this.#unitOf(base);
    await samplers.loadPolicy(id, base, spec.state, { isSmall: await this.#isSmall(base), signal });
    return { id, base: spec.base };
  }

  sample(policy: PolicyVersion, prompt: Int32Array, params: SamplingParams, options: SamplingOptions = {}) {
    return startedByReader(async () => {
      options.signal?.throwIfAborted();
      const base = await this.#resolve(policy.base);
      const config = await this.#config(base);
      checkSampling(prompt, params, { ...config, maxTopLogprobs: MAX_TOP_LOGPROBS });
      checkLogitParams(params, config.vocabularySize);
      const { samplers } = await this.#unitOf(base);
      return samplers.sample(policy.id, base.directory, prompt, params, options);
    });
  }

  async release(policy: PolicyVersion): Promise<void> {
    await this.#units.known(policy.base)?.samplers.releasePolicy(policy.id);
  }

  async unload(model: ModelHandle): Promise<void> {
    await this.#units.known(model.base)?.trainer.unload(model);
  }

  async close(): Promise<void> {
    await Promise.all([this.#units.close(), this.#inspector.close()]);
  }

  /** Returns a new identifier of a policy. */
  #newPolicyId(): string {
    return `${POLICY_PREFIX}${this.#nextPolicy++}`;
  }

  /** Returns the trainer that holds a model. */
  async #trainerOf(model: ModelHandle): Promise<ComputeUnit["trainer"]> {
    return (await this.#unitOfModel(model)).trainer;
  }

  /** Returns the compute unit of a model, without resolving its base again if the base was used before. */
  async #unitOfModel({ base }: ModelHandle): Promise<ComputeUnit> {
    return this.#units.known(base) ?? (await this.#unitOf(await this.#resolve(base)));
  }

  /** Returns the compute unit of a base model; starts the device if the base is the first large one. */
  #unitOf(base: BaseSource): Promise<ComputeUnit> {
    return this.#units.of(base.id, () => this.#isSmall(base));
  }

  /** Whether a base model is small; see {@link isLarge}. */
  async #isSmall(base: BaseSource): Promise<boolean> {
    return !isLarge(await this.#config(base));
  }

  /** Finds the directory or file of a base model. */
  #resolve(base: string): Promise<BaseSource> {
    return this.#bases.resolve(base).catch((error: unknown) => Promise.reject(unresolvedBase(base, error)));
  }

  /** Returns the configuration of a base model, read once per directory. */
  #config({ id, directory }: BaseSource): Promise<ModelConfig> {
    return loadingBase(id, () => remember(this.#configs, directory, () => readModelConfig(directory)));
  }
}
