/** Sampling on the processor. */
import type { ProcessorPrecision, RolloutPrecision } from "../../engine-info.ts";
import type { Graph } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import type { ModelInputs } from "../model/model-inputs.ts";
import { rotaryFeeds } from "../model/rope.ts";
import { isLarge } from "../model/size.ts";
import { storedFeeds } from "../model/stored-weights.ts";
import { Program, type Tensors } from "../runtime/program.ts";
import { type LoadedAdapter, stackAdapters, type StackedAdapters } from "./adapters.ts";
import { cachingAttention, FIXED } from "./caching-attention.ts";
import { decodeGraph } from "./decode-graph.ts";
import { Forward, type ForwardPlace, type ProgramKind } from "./forward.ts";
import { KvCache } from "./kv-cache.ts";
import { type HostPolicyWeights, type HostTrained, hostWeights } from "./host-weights.ts";
import type { AdapterUse, SamplerPlace, SamplingPlace } from "./place.ts";
import { BLOCK_TOKENS } from "./prefix-cache.ts";
import { preparedGraph } from "./prepared-graph.ts";
import { PromptCache } from "./prompt-cache.ts";
import { samplerGraph } from "./sampler-graph.ts";
import { decodeThreads, minDecodeRows, promptThreads } from "./thread-counts.ts";
import { declareWeights, preparedMatrices } from "./prepared.ts";
import { MIN_ROWS, productRows } from "../runtime/thread-limits.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** Min length of a cached prefix that is worth a separate prefill, in tokens. */
const MIN_SHARED_PREFIX = 2 * BLOCK_TOKENS;

/**
 * Builds the prefill graph: `T` new tokens of each of `B` prompts, after tokens that are already in the cache of {@link cachingAttention}.
 * In the graph `prompt`, only a single prompt may have such tokens; in the graph `continuation`, several may.
 */
function promptGraph(kind: "prompt" | "continuation", config: ModelConfig, adapters: AdapterUse): Graph {
  const dims = { batch: "batch", time: "time", rows: "rows", owners: "owners" };
  const attend = (inputs: ModelInputs) => cachingAttention(inputs, { ...FIXED, isByRow: kind === "continuation" });
  return samplerGraph(config, adapters, dims, (graph) => declareWeights(graph, config, false), attend);
}

/** Builds the graph of a program. */
function graphOf(
  kind: ProgramKind,
  config: ModelConfig,
  { adapters, isPrepared }: { readonly adapters: AdapterUse; readonly isPrepared: boolean },
): Graph {
  if (kind === "prepared") return preparedGraph(config, adapters);
  if (kind === "draw") throw new TypeError("The processor draws tokens outside of graphs");
  return kind === "decode" ? decodeGraph(config, adapters, isPrepared) : promptGraph(kind, config, adapters);
}

/** Returns the threads inside one op of a program. */
function threadsOf(kind: ProgramKind, config: ModelConfig, hasAdapters: boolean, maxThreads: number): number {
  const [decoding, prompts] = [decodeThreads, promptThreads].map((threads) => threads(config, hasAdapters, maxThreads)) as [number, number];
  if (kind === "prepared") return Math.min(decoding, prompts);
  return kind === "decode" ? decoding : prompts;
}

/**
 * Creates the graphs of the processor.
 *
 * @param maxThreads - Max threads inside one op.
 * @param precision - Number format of the decode graphs of large models and of models in blocks. @default "float32"
 */
export function hostGraphs(maxThreads: number, precision: RolloutPrecision = "float32"): ForwardPlace<HostPolicyWeights> {
  const constants = new WeakMap<HostPolicyWeights, Tensors>();
  return {
    // Rounded rows need matrices in blocks, which prompts do not read.
    programOf: (kind, { matrices }) => (matrices !== null && (kind !== "decode" || precision === "float32") ? "prepared" : kind),
    async compile(kind, { config, matrices }, adapters) {
      const graph = graphOf(kind, config, { adapters, isPrepared: matrices !== null });
      const threads = threadsOf(kind, config, adapters !== "none", maxThreads);
      if (matrices === null) return Program.compile(graph, kind, { threads });
      const program = await matrices.use(async (stored) =>
        Program.compile(graph, kind, { threads, ...(await preparedMatrices(config, stored, kind === "decode" ? precision : "float32")) }),
      );
      matrices.free();
      return program;
    },
    isPrepared: ({ matrices }) => matrices !== null,
    hasFixedOutputs: false,
    constants(TensorClass, weights) {
      return getOrInsert(constants, weights, () => {
        const { config, fed, rotary } = weights;
        return { ...rotaryFeeds(TensorClass, config, rotary), ...storedFeeds(TensorClass, fed) };
      });
    },
  };
}

/** Number formats of a sampler. */
export interface HostPrecisions {
  /** Number format of the decode graphs of large models and of models in blocks. @default "float32" */
  readonly rollouts?: RolloutPrecision | undefined;
  /** Type in which base models are stored. @default "float32" */
  readonly weights?: ProcessorPrecision | undefined;
}

/**
 * Creates the place of a sampler on the processor, and its source of weights.
 *
 * @param maxThreads - Max threads inside one op.
 */
export function onHost(maxThreads: number, { rollouts = "float32", weights }: HostPrecisions = {}): SamplerPlace<HostTrained> {
  const forward = new Forward(hostGraphs(maxThreads, rollouts));
  return { place: hostPlace(forward, maxThreads, rollouts), weights: hostWeights((unused) => forward.forget(unused), weights) };
}

function hostPlace(forward: Forward<HostPolicyWeights>, maxThreads: number, precision: RolloutPrecision): SamplingPlace {
  return {
    batchRows(count, weights, hasAdapters) {
      const { config, matrices, fed } = weights as HostPolicyWeights;
      // A product of a single row with a constant in float32 or 8 bits has the same bits as a product of several rows.
      const hasSingleRows = matrices !== null && (precision === "int8" || [...fed.blocks.values()].every(({ bits }) => bits === 8));
      if (!hasSingleRows) return productRows(Math.max(MIN_ROWS, count));
      return Math.max(hasAdapters ? MIN_ROWS : minDecodeRows(config, maxThreads), count);
    },
    open: () => Promise.resolve(),
    prepare: (kind, weights, ...more) => forward.prepare(kind, weights as HostPolicyWeights, ...more),
    run: (input) => forward.run(input as Parameters<typeof forward.run>[0]),
    drawsTokens: false,
    decodesParts: true,
    minPiece: BLOCK_TOKENS,
    maxPiece: Infinity,
    minSharedPrefix: MIN_SHARED_PREFIX,
    continuesSeveral: true,
    // A cache of a large model may take as much memory as its weights, which training needs when no request runs.
    keepsIdleKeys: ({ config }) => !isLarge(config),
    freeIdle: () => forward.freeIdle(),
    newPromptKeys: (TensorClass, config, slots, capacity) => new PromptCache(config, TensorClass, slots, capacity),
    newBatchKeys: (config) => new KvCache(config),
    stack: (config, adapters, previous) => stackAdapters(config, adapters as readonly LoadedAdapter[], previous as StackedAdapters | null),
  };
}
