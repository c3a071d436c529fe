/** Place where a sampler computes, the processor or a device (GPU): the memory of weights and caches, and the programs that run on them. */
import type { Lease } from "../../../base/util/leases.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import type { ForwardInput, ForwardKind, ForwardOutput } from "./forward.ts";
import type { StoredBlock } from "./prefix-cache.ts";

/** Weights that a batch runs on, in the memory of a place. */
export interface PlacedWeights {
  readonly config: ModelConfig;
}

/** Keys and values of prompts that are prefilled together, one slot per prompt. Prompts are computed in pieces, one piece per run. */
export interface PromptKeys {
  /** Graph that computes the next piece. */
  readonly kind: "prompt" | "continuation";
  /** Max tokens of the next piece that the graph computes exactly. */
  readonly maxPiece: number;
  /** Number of tokens for which the graph computes a distribution even if the caller needs none. */
  readonly minSelected: 0 | 2;
  /** Returns the graph inputs for the tokens `[start, end)` of all slots. */
  feeds(start: number, end: number): Tensors;
  /** Graph outputs for the cache, by name: a tensor to write in place, or null to allocate one. */
  readonly fetches: Readonly<Record<string, Tensors[string] | null>>;
  /** Takes the outputs of a run. */
  update(results: Tensors): void;
  /**
   * Fills each slot with the blocks that {@link store} returned for the first tokens of its prompt, as many for each slot.
   *
   * @param slots - Blocks of each slot; several slots only where the place {@link SamplingPlace.continuesSeveral}.
   */
  load(slots: readonly (readonly StoredBlock[])[]): void | Promise<void>;
  /**
   * Returns the block of the prefix cache that starts at token `start` of a slot, after {@link update} with its tokens.
   *
   * @param known - The same block as the cache has it; null if the cache does not have it.
   */
  store(slot: number, start: number, known: StoredBlock | null): StoredBlock;
  /** Frees the memory. Further calls have no effect. */
  release(): void;
}

/** Keys and values of the rows (running requests) of one batch; rows `0 … count − 1` are in use. */
export interface BatchKeys {
  /** Returns how many of `rows` rows of `length` tokens there is memory for, at least one. */
  roomFor(rows: number, length: number): number;
  /**
   * Makes room for `slots` rows of `length` tokens and keeps the first `rows` rows.
   *
   * @param longest - Length that rows may reach later. @default length
   */
  reserve(slots: number, length: number, rows: number, longest?: number): void;
  /** Copies the first `length` tokens of a prompt's slot `source` into a row. The prompt's keys may be released afterwards. */
  load(slot: number, prompt: PromptKeys, source: number, length: number): void;
  /**
   * Returns the graph inputs of `rows` rows from row `start` on.
   *
   * @param start - 0 unless the place decodes parts of a batch ({@link SamplingPlace.decodesParts}).
   * @param lengths - Tokens of each of these rows that are in the cache.
   */
  feeds(TensorClass: TensorConstructor, start: number, rows: number, lengths: Int32Array): Tensors | Promise<Tensors>;
  /**
   * Stores one new token of each of `rows` rows from row `start` on, from a graph's outputs.
   *
   * @param positions - Position of the new token in each of these rows.
   */
  append(results: Tensors, positions: Int32Array, start: number, rows: number): void;
  /** Copies a row over another. */
  copy(from: number, to: number): void;
  /** Frees the memory. Further calls have no effect. */
  release(): void;
}

/** Step of the capacities of a batch's cache, in tokens; a row's bits do not depend on the capacity. */
const CAPACITY_STEP = 64;

/** Returns the capacity for rows of a length, in tokens. */
export function toCapacity(length: number): number {
  return Math.ceil(length / CAPACITY_STEP) * CAPACITY_STEP;
}

/** Keys and values of one layer in the process's memory. */
export interface LayerCache {
  readonly keys: Float32Array;
  readonly values: Float32Array;
}

/** Adapters of the rows of a run: none, one that all rows have, or one of a stack for each row. */
export type AdapterUse = "none" | "one" | "several";

/** Adapters of a batch as one stack. */
export interface PlacedStack {
  /** Returns how rows with these adapters are computed; null = no adapter, of padding. */
  useOf(owners: readonly (Adapter | null)[]): Exclude<AdapterUse, "none">;
  /** Returns the graph inputs of a batch in which row `b` has the adapter `owners[b]`; null = no adapter, of padding. */
  feeds(TensorClass: TensorConstructor, owners: readonly (Adapter | null)[], use: AdapterUse): Tensors | Promise<Tensors>;
  /** Frees the memory. Further calls have no effect. */
  release(): void;
}

/** Source of the weights of policies. `T` are trained weights on their way to the sampler. */
export interface WeightsSource<T extends { readonly lora: Adapter | null }, W extends PlacedWeights, A extends Adapter> {
  /** Leases the weights of a base model. */
  base(directory: string, config: ModelConfig): Promise<Lease<W>>;
  /** Takes ownership of the weights of a fully trained model. */
  own(directory: string, config: ModelConfig, trained: T): W | Promise<W>;
  /** Takes ownership of the weights of an adapter. */
  adapter(config: ModelConfig, trained: T, lora: Adapter): A;
  /** Reads weights or an adapter from a saved state. */
  read(state: string, base: string, config: ModelConfig): Promise<T>;
  /** Frees weights that {@link own} returned, or an adapter. */
  free(weights: W | A): void;
  /** Frees trained weights that became neither. */
  discard(trained: T): void;
}

/** Memory and programs of a sampler. */
export interface SamplingPlace {
  /** Returns the padded size of a batch of `count` rows. */
  batchRows(count: number, weights: PlacedWeights, hasAdapters: boolean): number;
  /** Checks the programs; called before the first request. Calls after a successful one have no effect. */
  open(): Promise<void>;
  /** Compiles a graph, so that the time of a run does not include compilation. */
  prepare(kind: ForwardKind, weights: PlacedWeights, adapters: AdapterUse, needsLogits: boolean): Promise<void>;
  /** Runs one forward pass. */
  run(input: ForwardInput): Promise<ForwardOutput>;
  /** Whether the graphs `decode` and `draw` draw tokens; they then need `draws`. If false, there is no graph `draw`. */
  readonly drawsTokens: boolean;
  /** Whether a run can decode some adjacent rows of a batch instead of all rows. */
  readonly decodesParts: boolean;
  /** Min tokens of a piece, also while rows decode: with fewer tokens, the fixed time of a run exceeds the time of its products. */
  readonly minPiece: number;
  /** Max tokens of a piece of a prompt, also of several prompts that are computed together. Known after {@link open}. */
  readonly maxPiece: number;
  /**
   * Min length of a cached prefix, in tokens, that is worth a separate prefill: with a shorter prefix, computing many prompts at once from
   * their start finishes sooner.
   */
  readonly minSharedPrefix: number;
  /** Whether several prompts with cached prefixes of the same length can be computed together. If false, one at a time. */
  readonly continuesSeveral: boolean;
  /** Whether a batch on these weights keeps the memory of its cache for the next request when the last request has ended. */
  keepsIdleKeys(weights: PlacedWeights): boolean;
  /** Frees programs that the next request can compile again. Called while no request runs. */
  freeIdle(): void;
  /** Creates the keys and values of `slots` prompts of at most `capacity` tokens. */
  newPromptKeys(TensorClass: TensorConstructor, config: ModelConfig, slots: number, capacity: number): PromptKeys;
  /** Creates the keys and values of an empty batch. */
  newBatchKeys(config: ModelConfig): BatchKeys;
  /** Stacks the distinct adapters of a batch, all of one rank; returns `previous` if it already holds all of them, null for no adapters. */
  stack(config: ModelConfig, adapters: readonly Adapter[], previous: PlacedStack | null): PlacedStack | null;
}

/** Place of a sampler and the source of its weights. */
export interface SamplerPlace<T extends { readonly lora: Adapter | null }> {
  readonly place: SamplingPlace;
  readonly weights: WeightsSource<T, PlacedWeights, Adapter>;
}
