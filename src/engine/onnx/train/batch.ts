/** Batches of prefix groups: padded blocks of rows that run through a gradient graph together. */
import type { Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { tableStart } from "../model/rope.ts";
import { isLarge } from "../model/size.ts";
import { MAX_BINDING_BYTES } from "../runtime/device-memory.ts";
import { MIN_PRODUCT_ROWS, MIN_ROWS, WIDE } from "../runtime/thread-limits.ts";
import { type BatchSize, type DeviceBudget, keptBytesPerToken, memoryPlan } from "./memory-plan.ts";
import { type PrefixGroup, findPrefixGroups } from "./prefix-groups.ts";
import { DEVICE_BLOCK, deviceQueryBlocks, LARGE_MODEL_BLOCK, largeModelQueryBlocks, paddedTime, queryBlocks } from "./query-blocks.ts";
import { first, itemAt, last } from "../../../base/util/values.ts";

/** Max bytes of a batch's activations, and of the activations of its trained tokens; both limits yield to the minimum of 512 tokens. */
const ACTIVATION_BYTES = 1e9;

/** Max bytes of the attention scores of a query block in a device's batch, whose rows have 1,024 tokens. */
const SCORE_BYTES = MAX_BINDING_BYTES;

/** Sizes of batches of a large model, relative to `maxTokens`. Each is a graph of its own, which takes seconds to compile. */
const LARGE_SIZES = [1, 2, 8] as const;

/** Max ratio of a batch to the size that it is planned as. It exceeds 1 because rows are padded after groups are formed. */
const SIZE_TOLERANCE = 1.25;

/** Cost of computing a layer again, relative to its gradient with an adapter: one product with each matrix instead of two. */
const RECOMPUTE_COST = 1 / 2;

/** Fixed cost of a batch, in tokens: starting a graph and adding into the gradient accumulators. */
const BATCH_OVERHEAD = 128;

/** Extent of a padded block: `count` rows of `time` tokens each, padding included. */
interface Extent {
  readonly count: number;
  readonly time: number;
}

/** Padded block of rows. */
export interface PaddedBlock extends Extent {
  /** Blocks that the queries of a row are cut into for attention. */
  readonly blocks: number;
}

/** Extents of a batch. */
interface Extents {
  readonly prompts: Extent | null;
  readonly packedRows: Extent;
}

/** Prefix groups that run together. */
export interface TrainBatch {
  readonly groups: readonly PrefixGroup[];
  /** Block of the shared prompts, one row per prefix group, `[G, P]`. Null if the groups are single rows that share nothing. */
  readonly prompts: PaddedBlock | null;
  /** Block of all packed rows of all groups, `[M, L]`. */
  readonly packedRows: PaddedBlock;
}

/** Limits for cutting rows into batches. */
export interface BatchLimits {
  /** Max padded tokens in a batch of several rows that share nothing. */
  readonly maxTokens: number;
  /** Max tokens in a prefix group, and max padded tokens in a batch of several groups with shared prompts. */
  readonly maxSharing: number;
  /** Max padded tokens in a batch of several groups with shared prompts, if it is below `maxSharing`. @default `maxSharing` */
  readonly maxJoined?: number | undefined;
  /**
   * Max trained tokens in a group of several rows or a batch of several groups, regardless of how many tokens they share: each trained
   * token has logits over the whole vocabulary.
   */
  readonly maxTrained: number;
  /** Min rows in a padded block: attention is one product per row and key head, and there must be at least as many products as threads. */
  readonly minRows: number;
  /** Min positions of a batch. @default {@link MIN_PRODUCT_ROWS} */
  readonly minPositions?: number | undefined;
  /** Returns the number of query blocks of a row. @default {@link queryBlocks} */
  readonly blocksOf?: ((time: number) => number) | undefined;
  /** Max length of a packed row of several continuations. @default no limit */
  readonly maxPackedLength?: number | undefined;
  /** Cost of one query-key pair, in tokens: attention cost grows with the square of a row's length. */
  readonly pairCost: number;
  /**
   * Returns the cost of a token in a batch of this many positions, relative to a small batch: large batches recompute layers. @default 1
   */
  readonly tokenCost?: ((positions: number) => number) | undefined;
  /** Returns the start of the rotary table of a row with a number of inputs; rows share a prefix only in the same table. @default 0 */
  readonly tableStartOf?: ((inputs: number) => number) | undefined;
}

/**
 * Computes the limits from a model's shape. A batch keeps some 10 hidden and 5 inner vectors per layer and token for its gradient. Small
 * batches stay in the processor's caches; large models need larger batches, because each batch adds to every gradient once. Prefix groups
 * of large models may be longer and recompute layers, if the shared prefix saves more.
 */
export function batchLimits(config: ModelConfig): BatchLimits {
  const { hiddenSize, innerSize, layers, kvHeads, headSize, vocabularySize } = config;
  const layerBytes = 4 * (10 * hiddenSize + 5 * innerSize);
  const affordable = ACTIVATION_BYTES / (layers * layerBytes);
  const maxTokens = Math.min(Math.max(2 ** Math.floor(Math.log2(affordable)), 512), 1024);
  return {
    maxTokens,
    maxSharing: isLarge(config) ? maxTokens * last(LARGE_SIZES) : maxTokens,
    // After the last layer's attention only trained tokens are computed; each keeps logits, probabilities and a gradient over the
    // vocabulary.
    maxTrained: Math.min(Math.max(Math.floor(ACTIVATION_BYTES / (layerBytes + 3 * 4 * vocabularySize)), 512), 2048),
    // With narrow heads the inner dimension is short enough to be summed in one piece, however a product is cut.
    minRows: headSize < 128 ? 1 : Math.ceil(4 / kvHeads),
    ...(isLarge(config)
      ? {
          blocksOf: largeModelQueryBlocks,
          // Only one long prompt is worth a larger graph.
          maxJoined: maxTokens * SIZE_TOLERANCE,
          // Longer rows have more query blocks, and so another graph.
          maxPackedLength: LARGE_MODEL_BLOCK,
          tokenCost: (positions: number) => recomputingCost(config, maxTokens, positions),
        }
      : {}),
    pairCost: 1 / (3 * hiddenSize),
    tableStartOf: (inputs) => tableStart(config, inputs),
  };
}

/**
 * Returns the size that a batch on the processor is planned as: of a large model, one of few sizes, because each graph takes seconds to
 * compile and holds the memory of its largest run.
 */
export function plannedSize(config: ModelConfig, size: BatchSize): BatchSize {
  if (!isLarge(config)) return size;
  const { maxTokens, maxTrained } = batchLimits(config);
  const positions = largeSize(maxTokens, size.positions);
  return { positions, entries: Math.min(positions, Math.max(size.entries, maxTrained)) };
}

/** Returns the smallest of the sizes of a large model that `positions` fit into; `positions` if they fit into none. */
function largeSize(maxTokens: number, positions: number): number {
  const fitting = LARGE_SIZES.find((size) => positions <= size * maxTokens * SIZE_TOLERANCE);
  return fitting === undefined ? positions : fitting * maxTokens;
}

/** Returns the cost of a token in a batch of a large model, relative to a batch that recomputes nothing. */
function recomputingCost(config: ModelConfig, maxTokens: number, positions: number): number {
  const { recomputedLayers } = memoryPlan(config, largeSize(maxTokens, positions), 1);
  return 1 + (RECOMPUTE_COST * recomputedLayers) / config.layers;
}

/**
 * Returns the limits on a device, whose products are fast only for thousands of rows: as many tokens as fit without recomputed layers, in
 * whole thousands. Buffers above {@link SCORE_BYTES} are allocated anew in each run, which took longer than larger products saved.
 */
export function deviceBatchLimits(config: ModelConfig, budget: DeviceBudget): BatchLimits {
  const scored = SCORE_BYTES / (4 * DEVICE_BLOCK * config.heads);
  const affordable = Math.min(budget.keptBytes / keptBytesPerToken(config), budget.maxTokens, scored);
  const maxTokens = Math.max(Math.floor(affordable / 1024) * 1024, 1024);
  return {
    ...batchLimits(config),
    maxTokens,
    maxSharing: maxTokens,
    tokenCost: undefined,
    maxPackedLength: undefined,
    maxJoined: undefined,
    // Trained tokens pass through the head in slices.
    maxTrained: maxTokens,
    minRows: 1,
    minPositions: MIN_ROWS,
    blocksOf: deviceQueryBlocks,
  };
}

/**
 * Returns the number of trained tokens that a batch is padded to, so that no bit computed after the last attention depends on the thread
 * count: {@link MIN_ROWS} for a model that is wide throughout, else {@link MIN_PRODUCT_ROWS}. Each entry, padding included, has logits over
 * the whole vocabulary.
 */
export function minTrainedEntries({ hiddenSize, innerSize, heads, headSize, vocabularySize }: ModelConfig, hasAdapter: boolean): number {
  const isWide = Math.min(hiddenSize, innerSize, heads * headSize, vocabularySize) >= WIDE;
  // An adapter's rank is narrow.
  return isWide && !hasAdapter ? MIN_ROWS : MIN_PRODUCT_ROWS;
}

/** Returns the cost of a batch in tokens, whether or not the batch is padded to `minPositions` positions yet. */
export function batchCost(shape: Extents, { minPositions = MIN_PRODUCT_ROWS, tokenCost = () => 1 }: Partial<BatchLimits> = {}): number {
  const positions = Math.max(positionsIn(shape), minPositions);
  return positions * tokenCost(positions) + BATCH_OVERHEAD;
}

/** Returns the number of positions in the rotary tables: the length of the longest padded row, which may exceed the model's context. */
export function positionsNeeded({ contextLength }: ModelConfig): number {
  return Math.max(paddedTime(contextLength), paddedTime(MIN_PRODUCT_ROWS));
}

/**
 * Returns the limits for computing log-probabilities without gradients. A batch of few tokens is not padded to {@link MIN_PRODUCT_ROWS}
 * positions and runs on one thread, if that takes less time than the padded batch on `threads` threads. The bits are the same. For more
 * tokens, returns `limits` unchanged.
 */
export function shortLimits(rows: readonly Row[], limits: BatchLimits, threads: number): BatchLimits {
  const tokens = rows.reduce((sum, row) => sum + row.tokens.length, 0);
  return tokens <= MIN_PRODUCT_ROWS / threads ? { ...limits, minPositions: MIN_ROWS, minRows: 1 } : limits;
}

/** Returns the threads inside one op of a batch on the processor: one for a batch that is not padded to {@link MIN_PRODUCT_ROWS} positions. */
export function batchThreads(batch: Extents, threads: number): number {
  return positionsIn(batch) < MIN_PRODUCT_ROWS ? 1 : threads;
}

/** Returns the token positions of a batch, padding included. */
export function positionsIn({ prompts, packedRows }: Extents): number {
  return (prompts ? prompts.count * prompts.time : 0) + packedRows.count * packedRows.time;
}

/**
 * Cuts rows into batches within the limits. Sorts prefix groups by shape and cuts the sorted list so that the total cost of padding and of
 * starting batches is minimal. A pure function of the rows and limits: the same rows give the same order of summation, and so a
 * bit-identical gradient.
 */
export function planBatches(rows: readonly Row[], limits: BatchLimits): TrainBatch[] {
  const groups = findPrefixGroups(rows, limits).sort(
    (a, b) => a.packedLength - b.packedLength || a.shared - b.shared || first(a.members) - first(b.members),
  );
  const alone = groups.filter(({ shared }) => shared === 0);
  const sharing = groups.filter(({ shared }) => shared > 0);
  const maxJoined = Math.min(limits.maxJoined ?? Infinity, limits.maxSharing);
  return [...cutIntoBatches(alone, limits.maxTokens, limits), ...cutIntoBatches(sharing, maxJoined, limits)];
}

/** Cuts sorted prefix groups into batches of consecutive groups at the lowest total cost. */
function cutIntoBatches(groups: readonly PrefixGroup[], maxTokens: number, limits: BatchLimits): TrainBatch[] {
  const starts = lastBatchStarts(groups, maxTokens, limits);
  const batches: TrainBatch[] = [];
  for (let end = groups.length; end > 0; end = itemAt(starts, end)) batches.push(batchOf(groups.slice(itemAt(starts, end), end), limits));
  return batches.reverse();
}

/**
 * Finds the cheapest cuts by dynamic programming.
 *
 * @returns For each number `n` of groups from 0 on, the start of the last batch in the cheapest cut of the first `n` groups.
 */
function lastBatchStarts(groups: readonly PrefixGroup[], maxTokens: number, limits: BatchLimits): number[] {
  const { maxTrained, blocksOf } = limits;
  /** Cost of the cheapest cut of the first `n` groups, by `n`. */
  const costs = [0];
  const starts = [0];
  for (let end = 1; end <= groups.length; end++) {
    const shape = new Shape(blocksOf);
    let best = { cost: Infinity, start: end - 1 };
    for (let start = end - 1; start >= 0; start--) {
      shape.add(itemAt(groups, start));
      // A single group is a batch even if it exceeds the limits.
      if (start < end - 1 && (positionsIn(shape) > maxTokens || shape.trained > maxTrained)) break;
      const cost = itemAt(costs, start) + batchCost(shape, limits);
      if (cost < best.cost) best = { cost, start };
    }
    costs.push(best.cost);
    starts.push(best.start);
  }
  return starts;
}

/** Returns the batch of some prefix groups. */
function batchOf(
  groups: readonly PrefixGroup[],
  { minRows, minPositions = MIN_PRODUCT_ROWS, blocksOf = queryBlocks }: BatchLimits,
): TrainBatch {
  const shape = new Shape(blocksOf);
  for (const group of groups) shape.add(group);
  const { prompts, packedRows } = padded(shape, minRows, minPositions);
  const block = (extent: Extent): PaddedBlock => ({ ...extent, blocks: blocksOf(extent.time) });
  return { groups, prompts: prompts && block(prompts), packedRows: block(packedRows) };
}

/** Extents of the padded blocks of some prefix groups, extended group by group. */
class Shape {
  prompts: Extent | null = null;
  packedRows: Extent = { count: 0, time: 0 };
  trained = 0;
  readonly #paddedTime: (length: number) => number;

  constructor(blocksOf: BatchLimits["blocksOf"] = queryBlocks) {
    this.#paddedTime = (length) => paddedTime(length, blocksOf);
  }

  add({ shared, packedRows, packedLength, trained }: PrefixGroup): void {
    if (shared > 0)
      this.prompts = { count: (this.prompts?.count ?? 0) + 1, time: Math.max(this.prompts?.time ?? 0, this.#paddedTime(shared)) };
    this.packedRows = { count: this.packedRows.count + packedRows, time: Math.max(this.packedRows.time, this.#paddedTime(packedLength)) };
    this.trained += trained;
  }
}

/**
 * Pads a shape to at least `minPositions` positions in all and `minRows` rows per block: by more rows, or by one longer row if
 * that adds fewer positions.
 */
function padded({ prompts, packedRows }: Shape, minRows: number, minPositions: number): Extents {
  if (prompts) {
    const paddedPrompts = { ...prompts, count: Math.max(prompts.count, minRows) };
    const missing = minPositions - paddedPrompts.count * paddedPrompts.time;
    return {
      prompts: paddedPrompts,
      packedRows: { ...packedRows, count: Math.max(packedRows.count, minRows, Math.ceil(missing / packedRows.time)) },
    };
  }
  const { count, time } = packedRows;
  const paddedCount = Math.max(count, minRows, Math.ceil(minPositions / time));
  const longTime = paddedTime(minPositions);
  const isLonger = count === 1 && minRows === 1 && longTime < paddedCount * time;
  return { prompts, packedRows: isLonger ? { count: 1, time: Math.max(time, longTime) } : { count: paddedCount, time } };
}
