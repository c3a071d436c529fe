/** Descriptions that an engine gives of itself: features, base models, workers. Part of the Engine port. */

/** Features and limits of an engine. */
export interface Capabilities {
  /** Name of the engine for logs and the service's description. */
  readonly name: string;
  /** Identifiers accepted as `base`. */
  readonly baseModels: readonly string[];
  /** Whether low-rank adapters can be trained. */
  readonly lora: boolean;
  /** Whether all parameters can be trained. */
  readonly fullParameter: boolean;
  /** Whether `maxGradNorm` is supported; if not, a value above 0 is rejected. @default true */
  readonly clipsGradients?: boolean | undefined;
  /** Whether a policy loss may have an entropy bonus; if not, an `entropyCoefficient` above 0 is rejected. @default false */
  readonly entropyBonus?: boolean | undefined;
  /** Maximum of `topLogprobs`. */
  readonly maxTopLogprobs: number;
  /** Whether `SamplingParams.constraint` is supported. @default false */
  readonly constraints?: boolean | undefined;
  /** Whether `SamplingParams.cacheSalt` is supported; if not, a salt is rejected. @default true */
  readonly cacheSalts?: boolean | undefined;
  /** Whether equal inputs give bit-identical results across thread counts. */
  readonly deterministic: boolean;
}

/** Description of a base model. */
export interface BaseModelInfo {
  /** Identifier accepted as `base`. */
  readonly id: string;
  /** Directory in Hugging Face layout, from which tokenizer and chat template are read. */
  readonly directory: string;
  /** Number of token ids: rows of the embedding matrix. */
  readonly vocabularySize: number;
  /** Maximum number of tokens of prompt and output together. */
  readonly contextLength: number;
  /** Number of parameters; NaN if the engine does not know it. */
  readonly parameters: number;
}

/** Device option of an embedded engine. */
export type DeviceChoice = "auto" | "cpu" | "webgpu";

/** Values of {@link DeviceChoice}. */
export const DEVICE_CHOICES = ["auto", "cpu", "webgpu"] as const satisfies readonly DeviceChoice[];

/**
 * Type in which weights that are not trained are stored: `float16` only on a GPU; `int8` and `int4`, blocks of 32 elements with a scale
 * each, only on the processor.
 */
export type WeightPrecision = "float32" | "float16" | "int8" | "int4";

/** Precisions of weights in the memory of a GPU. */
export type DevicePrecision = Extract<WeightPrecision, "float32" | "float16">;

/** Precisions of weights in the process's memory. */
export type ProcessorPrecision = Exclude<WeightPrecision, "float16">;

/** Values of {@link WeightPrecision}. */
export const WEIGHT_PRECISIONS = ["float32", "float16", "int8", "int4"] as const satisfies readonly WeightPrecision[];

/** Number format of the products with weights when the processor samples from models of more than 16 M weights. */
export type RolloutPrecision = "float32" | "int8";

/** Values of {@link RolloutPrecision}. */
export const ROLLOUT_PRECISIONS = ["float32", "int8"] as const satisfies readonly RolloutPrecision[];

/** Device that an engine computes on. */
export interface DeviceInfo {
  /** The processor, or a GPU through WebGPU. */
  readonly name: "cpu" | "webgpu";
  /** Name of the GPU as its driver reports it; null for the processor, and if the driver reports none. */
  readonly adapter: string | null;
  /** Type in which weights that are not trained are stored. @default "float32" */
  readonly weightPrecision?: WeightPrecision | undefined;
  /** Number format of the products with weights when large models are sampled. @default "float32" */
  readonly rolloutPrecision?: RolloutPrecision | undefined;
}

/** Thread count that an engine trains with, and the throughput that it measured to choose the count. */
export interface ThreadReport {
  /** Thread count in use. While auto-tuning, the candidate tried next. */
  readonly threads: number;
  /** Throughput per measured thread count, in tokens per second including padding, in ascending order of threads; empty until tuned. */
  readonly rates: readonly {
    /** Measured thread count. */
    readonly threads: number;
    /** Throughput in tokens per second, padding included. */
    readonly tokensPerSecond: number;
  }[];
}

/** Extent of the check of a base model. */
export interface VerifyBaseOptions {
  /** Whether the values of the weights are checked; if not, only names, types and shapes. @default true */
  readonly readsWeights?: boolean | undefined;
  /** Whether the tokenizer encodes long test texts, to find regular expressions that take too long. @default true */
  readonly encodesTexts?: boolean | undefined;
}

/** State of one worker of an engine. */
export interface WorkerStatus {
  /** Name, unique within the engine, such as `sampler-0`. */
  readonly name: string;
  /** Work of the worker. */
  readonly role: "sampler" | "trainer";
  /** Current state; `restarting` if the worker died and its replacement has not started yet. */
  readonly state: "running" | "restarting";
  /** Number of replacements since the engine started. */
  readonly restarts: number;
  /** Milliseconds until the replacement starts; 0 while running. */
  readonly restartsInMs: number;
}
