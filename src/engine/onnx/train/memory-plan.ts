/**
 * Memory plan of a batch: the one rule that decides, from the bytes of a batch, which of its intermediate values a gradient graph keeps.
 * The numbers are measured in `docs/notebook/2026-11-22-memory-of-training.md`.
 */
import type { ModelConfig } from "../model/config.ts";
import { DEFAULT_DEVICE_MEMORY, MAX_BINDING_BYTES } from "../runtime/device-memory.ts";
import { MIN_PRODUCT_ROWS, WIDE } from "../runtime/thread-limits.ts";
import { PADDING_STEP } from "./query-blocks.ts";

/** Memory plan: a property that a graph is compiled for, so there are few different plans. */
export interface MemoryPlan {
  /** Slices of the trained tokens, which pass through the output head one after the other. */
  readonly headSlices: number;
  /**
   * Whether the backward pass completes each layer, weight gradients included, before it starts the layer below. Gated activations are
   * then recomputed, and adapters are not merged with their matrices.
   */
  readonly isOrdered: boolean;
  /** Number of layers, from the first, that keep only their input and are recomputed in the backward pass. */
  readonly recomputedLayers: number;
}

/** Plan of a batch that fits into memory whole. */
export const WHOLE: MemoryPlan = { headSlices: 1, isOrdered: false, recomputedLayers: 0 };

/** Sizes of a batch that determine its memory. */
export interface BatchSize {
  /** Token positions, padding included. */
  readonly positions: number;
  /** Trained tokens, padding included. */
  readonly entries: number;
}

/** Memory that a batch may take, by place. */
export interface MemoryBudget {
  /** Max bytes of logits in one piece. */
  readonly logitsBytes: number;
  /** Max trained tokens in a slice. In shorter slices, reading the head's weights takes longer than the products. */
  readonly sliceRows: number;
  /** Max bytes of the logits of a slice; no limit on the processor. */
  readonly sliceBytes: number;
  /** Max bytes of kept activations in a batch without order. */
  readonly unorderedBytes: number;
  /** Max bytes of kept activations in a batch without recomputed layers. */
  readonly keptBytes: number;
}

/** Budget of the processor, whose caches favor small batches. */
export const PROCESSOR_BUDGET: MemoryBudget = {
  logitsBytes: 2 ** 26,
  sliceRows: 256,
  sliceBytes: Infinity,
  unorderedBytes: 2 ** 28,
  keptBytes: 544 * 2 ** 20,
};

/** Budget of a device. */
export interface DeviceBudget extends MemoryBudget {
  /** Max tokens of a batch. */
  readonly maxTokens: number;
  /** Max bytes of the buffers that stay allocated for kept activations between runs; 0 for none. */
  readonly pooledBytes: number;
  /** Min bytes of a kept activation with such a buffer. The runtime keeps enough of its own smaller buffers. */
  readonly minPooledBytes: number;
  /**
   * Max bytes of the buffers that stay allocated for gradients between runs. Models with larger gradients keep no buffers between steps.
   */
  readonly pooledGradientBytes: number;
}

/** Max tokens of a batch with the default memory or more. */
const MAX_TOKENS = 4096;

/**
 * Returns the budget of a device. Kept activations are proportional to the memory: with 0.5 B weights and an adapter, a batch takes
 * less than 8 GB in all with the budget of 8 GB.
 *
 * @param memory - Memory of the device in bytes. @default 8 GB
 */
export function deviceBudget(memory = DEFAULT_DEVICE_MEMORY): DeviceBudget {
  const factor = memory / DEFAULT_DEVICE_MEMORY;
  // 3.5 GiB of 8 GB.
  const keptBytes = 7 * 2 ** 29 * factor;
  return {
    logitsBytes: MAX_BINDING_BYTES,
    sliceRows: 256,
    sliceBytes: MAX_BINDING_BYTES,
    unorderedBytes: 2 ** 30,
    keptBytes,
    pooledBytes: keptBytes,
    minPooledBytes: 2 ** 20,
    pooledGradientBytes: memory / 8,
    maxTokens: MAX_TOKENS * Math.min(factor, 1),
  };
}

/** Number of steps in which the share of recomputed layers grows, so that there are few graphs: the share is a multiple of an eighth. */
const RECOMPUTED_PARTS = 8;

/**
 * Returns the plan of a batch.
 *
 * @param positions - Token positions of the batch, padding included.
 * @param entries - Trained tokens of the batch, padding included.
 */
export function memoryPlan(config: ModelConfig, positions: number, entries: number, budget: MemoryBudget = PROCESSOR_BUDGET): MemoryPlan {
  const keptBytes = positions * keptBytesPerToken(config);
  const headSlices = slicesOf(config, entries, budget);
  const excess = Math.max(0, 1 - budget.keptBytes / keptBytes);
  return {
    headSlices,
    isOrdered: headSlices > 1 || keptBytes > budget.unorderedBytes,
    recomputedLayers: Math.ceil((Math.ceil(excess * RECOMPUTED_PARTS) / RECOMPUTED_PARTS) * config.layers),
  };
}

/** Returns the bytes that an ordered backward pass keeps per token: some 10 hidden and 2 inner vectors per layer. */
export function keptBytesPerToken({ layers, hiddenSize, innerSize }: ModelConfig): number {
  return 4 * layers * (10 * hiddenSize + 2 * innerSize);
}

/** Returns the number of slices, a power of two, so that batches of many sizes run through few graphs. */
function slicesOf({ hiddenSize, vocabularySize }: ModelConfig, entries: number, budget: MemoryBudget): number {
  if (4 * entries * vocabularySize <= budget.logitsBytes) return 1;
  const slicesFor = (rows: number) => 2 ** Math.ceil(Math.log2(entries / rows));
  // Entries are padded to a multiple of the step, and so are these rows.
  const affordable = Math.max(1, Math.floor(budget.sliceBytes / (4 * vocabularySize * PADDING_STEP))) * PADDING_STEP;
  // Products with a narrow result need more rows, so that their bits do not depend on the thread count.
  const wanted = hiddenSize < WIDE ? 2 ** Math.floor(Math.log2(entries / MIN_PRODUCT_ROWS)) : slicesFor(budget.sliceRows);
  return Math.max(1, wanted, slicesFor(affordable));
}
