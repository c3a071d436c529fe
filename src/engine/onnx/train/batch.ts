/** From ragged rows to the rectangular inputs of a gradient graph. */
import type { Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { queryBlocks } from "./masks.ts";

/**
 * Rows that share a beginning, laid out behind each other: the shared tokens once, then what each row has of its own (its
 * branch). A branch sees the shared tokens and itself, at the positions it has in its own row, so every row's result is
 * what it would be alone, and a prompt that a group of rollouts shares is computed once.
 */
export interface PackedRow {
  /** Indices into the caller's rows. */
  readonly members: readonly number[];
  /** Tokens that all members share, `P`. */
  readonly shared: number;
  /** Where each member's branch begins. */
  readonly starts: readonly number[];
  /** Tokens in all. */
  readonly length: number;
  /** Trained tokens of all members; rows that are equal add some without adding to the length. */
  readonly trained: number;
}

/** Packed rows that run together. */
export interface Batch {
  readonly rows: readonly PackedRow[];
  /** Row count including padding, `B`. */
  readonly batch: number;
  /** Padded length, `T`. */
  readonly time: number;
}

/** How rows are cut into batches. */
export interface BatchLimits {
  /** Most padded tokens in a batch of several rows, and most tokens in a row by packing. */
  readonly maxTokens: number;
  /** Most trained tokens in a batch of several rows, however many they share: each has logits over the whole vocabulary. */
  readonly maxTrained: number;
  /** Fewest rows in a batch: attention is a product per row and key head, and these must be as many as there may be threads. */
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
  return {
    maxTokens: Math.min(Math.max(2 ** Math.floor(Math.log2(affordable)), 512), 1024),
    // Behind the attention of the last layer only trained tokens go on, up to logits, their probabilities and their gradient.
    maxTrained: Math.min(Math.max(Math.floor(ACTIVATION_BYTES / (layerBytes + 3 * 4 * vocabularySize)), 512), 2048),
    // Narrow heads have inner dimensions so short that they are summed in one piece however a product is cut.
    minRows: headSize < 128 ? 1 : Math.ceil(4 / kvHeads),
    pairCost: 1 / (3 * hiddenSize),
  };
}

/** What the activations of a batch may take, and again those of its trained tokens, as long as that leaves 512 of them. */
const ACTIVATION_BYTES = 1e9;

/** Padded lengths are multiples of this for each block of queries: few distinct shapes, and aligned rows. */
const TIME_STEP = 8;

/** Shorter shared beginnings are not worth a wider mask. */
const MIN_SHARED = 8;

/**
 * A matrix product whose result is narrow and has few rows is cut differently for each thread count, and its last bits
 * with it. With at least this many rows the cut is along rows, and the bits do not depend on threads (up to 4).
 */
export const MIN_PRODUCT_ROWS = 320;

/** What one more batch costs besides its tokens, in tokens: starting a graph and adding into the accumulators. */
const BATCH_OVERHEAD = 128;

/**
 * Cuts rows into batches within the limits, rows of like length together, so that padding and the number of batches cost
 * least in all. A pure function of the rows, so that the order of summation, and with it every
 * bit of the gradient, is fixed when they are.
 */
export function planBatches(rows: readonly Row[], limits: BatchLimits): Batch[] {
  const { maxTokens, maxTrained } = limits;
  const packed = packRows(rows, limits).sort((a, b) => a.length - b.length || a.members[0]! - b.members[0]!);
  // cheapest[i]: the least cost of the first i rows, and where the last batch of that plan begins.
  const cheapest = [{ cost: 0, start: 0 }];
  for (let end = 1; end <= packed.length; end++) {
    const time = paddedTime(packed[end - 1]!);
    let best = { cost: Infinity, start: end - 1 };
    let trained = 0;
    for (let start = end - 1; start >= 0; start--) {
      const count = end - start;
      trained += packed[start]!.trained;
      if (count > 1 && (count * time > maxTokens || trained > maxTrained)) break;
      const cost = cheapest[start]!.cost + Math.max(count * time, MIN_PRODUCT_ROWS) + BATCH_OVERHEAD;
      if (cost < best.cost) best = { cost, start };
    }
    cheapest.push(best);
  }
  const batches: Batch[] = [];
  for (let end = packed.length; end > 0; end = cheapest[end]!.start) {
    const members = packed.slice(cheapest[end]!.start, end);
    batches.push({ rows: members, ...fillUp(members.length, paddedTime(members.at(-1)!), limits.minRows) });
  }
  return batches.reverse();
}

/** Rows and length with at least {@link MIN_PRODUCT_ROWS} positions in all: more rows, or one longer row where that is less. */
function fillUp(count: number, time: number, minRows: number): { batch: number; time: number } {
  const batch = Math.max(count, minRows, Math.ceil(MIN_PRODUCT_ROWS / time));
  const long = paddedTime({ length: MIN_PRODUCT_ROWS });
  return count === 1 && minRows === 1 && long < batch * time ? { batch: 1, time: Math.max(time, long) } : { batch, time };
}

function paddedTime({ length }: Pick<PackedRow, "length">): number {
  const step = TIME_STEP * queryBlocks(length).count;
  return Math.max(step, Math.ceil(length / step) * step);
}

/** Packs neighbours that share a beginning, as long as that costs less than leaving them apart; rows of a group are neighbours. */
function packRows(rows: readonly Row[], { maxTokens, maxTrained, pairCost }: BatchLimits): PackedRow[] {
  const cost = (length: number) => length * (1 + length * pairCost);
  const packed: PackedRow[] = [];
  for (let first = 0; first < rows.length;) {
    const members = [first];
    const head = rows[first]!;
    // The last token of a row predicts nothing and is never an input.
    let shared = head.tokens.length - 1;
    let total = shared;
    // Of all members, what they share counted for each.
    let inputs = shared;
    let trained = trainedTokens(head);
    for (let next = first + 1; next < rows.length; next++) {
      const row = rows[next]!;
      const length = row.tokens.length - 1;
      const common = Math.min(shared, commonPrefix(head.tokens, row.tokens));
      const joined = inputs + length - members.length * common;
      const more = trained + trainedTokens(row);
      if (common < MIN_SHARED || joined > maxTokens || more > maxTrained || cost(joined) >= cost(total) + cost(length)) break;
      shared = common;
      total = joined;
      inputs += length;
      trained = more;
      members.push(next);
    }
    let start = shared;
    const starts = members.map((index) => {
      const at = start;
      start += rows[index]!.tokens.length - 1 - shared;
      return at;
    });
    packed.push({ members, shared, starts, length: total, trained });
    first += members.length;
  }
  return packed;
}

/** Tokens that two rows have in common at the start, their last tokens left out. */
function commonPrefix(a: Int32Array, b: Int32Array): number {
  const limit = Math.min(a.length, b.length) - 1;
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}

/** Where token `t` of a member stands in its packed row. */
function placeOf(row: PackedRow, member: number, t: number): number {
  return t < row.shared ? t : row.starts[member]! + t - row.shared;
}

/** The trained tokens of a batch, one entry each, padded with weightless entries. */
export interface Selection {
  /** Flat row `b·T + t` whose hidden state predicts the token. Branches that start together share the first one. */
  readonly selected: BigInt64Array;
  readonly targets: BigInt64Array;
  readonly weights: Float32Array;
  readonly advantages: Float32Array;
  readonly old: Float32Array;
  readonly known: Float32Array;
  /** Entries before the padding. */
  readonly count: number;
}

/** Token ids and positions, each `[B, T]`. */
export function tokenInputs(
  rows: readonly Row[],
  { rows: packed, batch, time }: Batch,
): { tokens: BigInt64Array; positions: BigInt64Array } {
  const tokens = new BigInt64Array(batch * time);
  const positions = new BigInt64Array(batch * time);
  packed.forEach((row, b) => {
    row.members.forEach((index, member) => {
      const source = rows[index]!.tokens;
      for (let t = member === 0 ? 0 : row.shared; t < source.length - 1; t++) {
        const at = b * time + placeOf(row, member, t);
        tokens[at] = BigInt(source[t]!);
        positions[at] = BigInt(t);
      }
    });
  });
  return { tokens, positions };
}

/** Gathers what is trained in a batch; visits rows in order, then members, then time. */
export function selectTrained(rows: readonly Row[], batch: Batch): Selection {
  const count = batch.rows.reduce((sum, { trained }) => sum + trained, 0);
  const size = Math.max(count, MIN_PRODUCT_ROWS);
  const selection: Selection = {
    selected: new BigInt64Array(size),
    targets: new BigInt64Array(size),
    weights: new Float32Array(size),
    advantages: new Float32Array(size),
    old: new Float32Array(size),
    known: new Float32Array(size),
    count,
  };
  let at = 0;
  forEachTrained(rows, batch, (row, t, place) => {
    const old = row.logprobs?.[t] ?? NaN;
    selection.selected[at] = BigInt(place);
    selection.targets[at] = BigInt(row.tokens[t]!);
    selection.weights[at] = row.weights[t]!;
    selection.advantages[at] = row.advantages?.[t] ?? 0;
    selection.old[at] = Number.isNaN(old) ? 0 : old;
    selection.known[at] = Number.isNaN(old) ? 0 : 1;
    at++;
  });
  return selection;
}

/** Visits the trained tokens of a batch in the order of a {@link Selection}. */
export function forEachTrained(
  rows: readonly Row[],
  { rows: packed, time }: Batch,
  visit: (row: Row, t: number, place: number, index: number) => void,
): void {
  packed.forEach((one, b) => {
    one.members.forEach((index, member) => {
      const row = rows[index]!;
      for (let t = 1; t < row.tokens.length; t++) if (row.weights[t] !== 0) visit(row, t, b * time + placeOf(one, member, t - 1), index);
    });
  });
}

/** Tokens with a non-zero weight. */
export function trainedTokens(row: Row): number {
  let count = 0;
  for (let t = 1; t < row.weights.length; t++) if (row.weights[t] !== 0) count++;
  return count;
}
