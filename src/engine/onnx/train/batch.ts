/** From families of rows to batches: rectangles that run through a gradient graph together. */
import type { Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { MIN_ROWS, MIN_SLICE, MOST_THREADS } from "../thread-bits.ts";
import { type Family, findFamilies } from "./families.ts";
import { paddedTime } from "./query-blocks.ts";

/** Rows of one padded length, padding included. */
export interface Rectangle {
  readonly count: number;
  readonly time: number;
}

/** Families that run together. */
export interface Batch {
  readonly families: readonly Family[];
  /** What families share, a row for each: `[G, P]`. Null where they are rows that share nothing. */
  readonly prompts: Rectangle | null;
  /** All lanes of all families, `[M, L]`. */
  readonly lanes: Rectangle;
}

/** How rows are cut into batches. */
export interface BatchLimits {
  /** Most padded tokens in a batch of several rows that share nothing. */
  readonly maxTokens: number;
  /** Most tokens in a family, and most padded ones in a batch of several families that share. */
  readonly maxSharing: number;
  /** Most trained tokens in a batch of several families, however many they share: each has logits over the whole vocabulary. */
  readonly maxTrained: number;
  /** Fewest rows in a rectangle: attention is a product per row and key head, and these must be as many as there may be threads. */
  readonly minRows: number;
  /** What one query looking at one key costs, in tokens: attention costs the square of a row's length. */
  readonly pairCost: number;
}

/**
 * Limits by a model's shape. A batch keeps some 10 hidden and 5 inner vectors per layer and token for its gradient; small
 * batches stay in the processor's caches, large models need larger ones, because each batch adds to every gradient once.
 */
export function batchLimits({ hiddenSize, innerSize, layers, kvHeads, headSize, vocabularySize }: ModelConfig): BatchLimits {
  const layerBytes = 4 * (10 * hiddenSize + 5 * innerSize);
  const affordable = ACTIVATION_BYTES / (layers * layerBytes);
  const maxTokens = Math.min(Math.max(2 ** Math.floor(Math.log2(affordable)), 512), 1024);
  return {
    maxTokens,
    maxSharing: maxTokens,
    // Behind the attention of the last layer only trained tokens go on, up to logits, their probabilities and their gradient.
    maxTrained: Math.min(Math.max(Math.floor(ACTIVATION_BYTES / (layerBytes + 3 * 4 * vocabularySize)), 512), 2048),
    // Narrow heads have inner dimensions so short that they are summed in one piece however a product is cut.
    minRows: headSize < 128 ? 1 : Math.ceil(4 / kvHeads),
    pairCost: 1 / (3 * hiddenSize),
  };
}

/** What the activations of a batch may take, and again those of its trained tokens, as long as that leaves 512 of them. */
const ACTIVATION_BYTES = 1e9;

/**
 * A matrix product whose result is narrow and has few rows is cut differently for each thread count, and its last bits
 * with it. With at least this many rows the cut is along rows, and the bits do not depend on threads (up to 4).
 */
export const MIN_PRODUCT_ROWS = 320;

/** From this width on a result is cut into slices that sum as the whole does. */
const WIDE = MOST_THREADS * MIN_SLICE;

/**
 * How many trained tokens a batch is filled up to, so that no bit of what follows the last attention depends on threads: two of a
 * model that is wide throughout, else as many as products need rows. Each has logits over the whole vocabulary.
 */
export function fewestTrained({ hiddenSize, innerSize, heads, headSize, vocabularySize }: ModelConfig, hasAdapter: boolean): number {
  const isWide = Math.min(hiddenSize, innerSize, heads * headSize, vocabularySize) >= WIDE;
  // An adapter's rank is narrow.
  return isWide && !hasAdapter ? MIN_ROWS : MIN_PRODUCT_ROWS;
}

/** What a batch costs besides its tokens, in tokens: starting a graph and adding into the accumulators. */
const BATCH_OVERHEAD = 128;

/** What a batch costs, in tokens; also of one that is still to be filled up. */
export function costOf(shape: Pick<Batch, "prompts" | "lanes">): number {
  return Math.max(positionsIn(shape), MIN_PRODUCT_ROWS) + BATCH_OVERHEAD;
}

/**
 * Places that tables of positions must have: rows are filled up beyond a model's context, and what is there is masked but looked up.
 */
export function placesNeeded({ contextLength }: ModelConfig): number {
  return Math.max(paddedTime(contextLength), paddedTime(MIN_PRODUCT_ROWS));
}

/** Token positions of a batch, padding included. */
export function positionsIn({ prompts, lanes }: Pick<Batch, "prompts" | "lanes">): number {
  return (prompts ? prompts.count * prompts.time : 0) + lanes.count * lanes.time;
}

/**
 * Cuts rows into batches within the limits, families of like shape together, so that padding and the number of batches cost
 * least in all. A pure function of the rows, so that the order of summation, and with it every
 * bit of the gradient, is fixed when they are.
 */
export function planBatches(rows: readonly Row[], limits: BatchLimits): Batch[] {
  const families = findFamilies(rows, limits).sort(
    (a, b) => a.laneLength - b.laneLength || a.shared - b.shared || a.members[0]! - b.members[0]!,
  );
  const alone = families.filter(({ shared }) => shared === 0);
  const sharing = families.filter(({ shared }) => shared > 0);
  return [...cut(alone, limits.maxTokens, limits), ...cut(sharing, limits.maxSharing, limits)];
}

/** The cheapest way to cut sorted families into batches of consecutive ones. */
function cut(families: readonly Family[], maxTokens: number, { maxTrained, minRows }: BatchLimits): Batch[] {
  // cheapest[i]: the least cost of the first i families, and where the last batch of that plan begins.
  const cheapest = [{ cost: 0, start: 0 }];
  for (let end = 1; end <= families.length; end++) {
    const shape = new Shape();
    let best = { cost: Infinity, start: end - 1 };
    for (let start = end - 1; start >= 0; start--) {
      shape.add(families[start]!);
      if (start < end - 1 && (positionsIn(shape) > maxTokens || shape.trained > maxTrained)) break;
      const cost = cheapest[start]!.cost + costOf(shape);
      if (cost < best.cost) best = { cost, start };
    }
    cheapest.push(best);
  }
  const batches: Batch[] = [];
  for (let end = families.length; end > 0; end = cheapest[end]!.start) {
    const members = families.slice(cheapest[end]!.start, end);
    const shape = new Shape();
    for (const family of members) shape.add(family);
    batches.push({ families: members, ...filledUp(shape, minRows) });
  }
  return batches.reverse();
}

/** The rectangles that hold families, as they are added. */
class Shape {
  prompts: Rectangle | null = null;
  lanes: Rectangle = { count: 0, time: 0 };
  trained = 0;

  add({ shared, lanes, laneLength, trained }: Family): void {
    if (shared > 0) this.prompts = { count: (this.prompts?.count ?? 0) + 1, time: Math.max(this.prompts?.time ?? 0, paddedTime(shared)) };
    this.lanes = { count: this.lanes.count + lanes, time: Math.max(this.lanes.time, paddedTime(laneLength)) };
    this.trained += trained;
  }
}

/** The same with at least {@link MIN_PRODUCT_ROWS} positions in all: more rows, or one longer row where that is less. */
function filledUp({ prompts, lanes }: Shape, minRows: number): Pick<Batch, "prompts" | "lanes"> {
  if (prompts) {
    const filled = { ...prompts, count: Math.max(prompts.count, minRows) };
    const missing = MIN_PRODUCT_ROWS - filled.count * filled.time;
    return { prompts: filled, lanes: { ...lanes, count: Math.max(lanes.count, minRows, Math.ceil(missing / lanes.time)) } };
  }
  const { count, time } = lanes;
  const filled = Math.max(count, minRows, Math.ceil(MIN_PRODUCT_ROWS / time));
  const long = paddedTime(MIN_PRODUCT_ROWS);
  const isLonger = count === 1 && minRows === 1 && long < filled * time;
  return { prompts, lanes: isLonger ? { count: 1, time: Math.max(time, long) } : { count: filled, time } };
}
