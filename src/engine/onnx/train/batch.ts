/** From ragged rows to the rectangular inputs of a gradient graph. */
import type { Row } from "../../port.ts";

/** Rows that run together. */
export interface Batch {
  /** Indices into the caller's rows. */
  readonly rows: readonly number[];
  /** Row count including padding, `B`. */
  readonly batch: number;
  /** Padded length, `T`. */
  readonly time: number;
}

/** Padded lengths are multiples of this: few distinct shapes, and aligned rows. */
const TIME_STEP = 8;

/**
 * A matrix product whose result is narrow and has few rows is cut differently for each thread count, and its last bits
 * with it. With at least this many rows the cut is along rows, and the bits do not depend on threads (up to 4).
 */
export const MIN_PRODUCT_ROWS = 320;

/**
 * Packs rows into batches of at most `maxTokens` padded tokens, longest with longest. A pure function of the lengths, so
 * that the order of summation, and with it every bit of the gradient, is fixed when the rows are.
 */
export function planBatches(rows: readonly Row[], maxTokens: number): Batch[] {
  const order = rows.map((_, index) => index).sort((a, b) => rows[a]!.tokens.length - rows[b]!.tokens.length || a - b);
  const batches: Batch[] = [];
  let current: number[] = [];
  const timeOf = (index: number) => Math.max(TIME_STEP, Math.ceil((rows[index]!.tokens.length - 1) / TIME_STEP) * TIME_STEP);
  const flush = () => {
    if (current.length === 0) return;
    const time = timeOf(current.at(-1)!);
    batches.push({ rows: current, time, batch: Math.max(current.length, 2, Math.ceil(MIN_PRODUCT_ROWS / time)) });
    current = [];
  };
  for (const index of order) {
    if (current.length > 0 && (current.length + 1) * timeOf(index) > maxTokens) flush();
    current.push(index);
  }
  flush();
  return batches;
}

/** The trained tokens of a batch, one entry each, padded with weightless entries. */
export interface Selection {
  /** Flat row `b·T + t` whose hidden state predicts the token. */
  readonly selected: BigInt64Array;
  readonly targets: BigInt64Array;
  readonly weights: Float32Array;
  readonly advantages: Float32Array;
  readonly old: Float32Array;
  readonly known: Float32Array;
  /** Entries before the padding. */
  readonly count: number;
}

/** Token ids and positions, each `[B, T]`. The last token of a row predicts nothing and is left out. */
export function tokenInputs(rows: readonly Row[], { rows: members, batch, time }: Batch): { tokens: BigInt64Array; positions: BigInt64Array } {
  const tokens = new BigInt64Array(batch * time);
  const positions = new BigInt64Array(batch * time);
  for (let b = 0; b < batch; b++) {
    const row = members[b] === undefined ? undefined : rows[members[b]!]!;
    for (let t = 0; t < time; t++) {
      positions[b * time + t] = BigInt(t);
      if (row && t < row.tokens.length - 1) tokens[b * time + t] = BigInt(row.tokens[t]!);
    }
  }
  return { tokens, positions };
}

/** Gathers what is trained in a batch; visits tokens in row order, then time. */
export function selectTrained(rows: readonly Row[], { rows: members, time }: Batch): Selection {
  const count = members.reduce((sum, index) => sum + trainedTokens(rows[index]!), 0);
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
  members.forEach((index, b) => {
    const row = rows[index]!;
    for (let t = 1; t < row.tokens.length; t++) {
      if (row.weights[t] === 0) continue;
      const old = row.logprobs?.[t] ?? NaN;
      selection.selected[at] = BigInt(b * time + t - 1);
      selection.targets[at] = BigInt(row.tokens[t]!);
      selection.weights[at] = row.weights[t]!;
      selection.advantages[at] = row.advantages?.[t] ?? 0;
      selection.old[at] = Number.isNaN(old) ? 0 : old;
      selection.known[at] = Number.isNaN(old) ? 0 : 1;
      at++;
    }
  });
  return selection;
}

/** Tokens with a non-zero weight. */
export function trainedTokens(row: Row): number {
  let count = 0;
  for (let t = 1; t < row.weights.length; t++) if (row.weights[t] !== 0) count++;
  return count;
}

/** The causal mask for `copies` stacked blocks of queries, `[copies·T, T]`. */
export function causalMask(time: number, copies: number): Float32Array {
  const mask = new Float32Array(copies * time * time);
  for (let row = 0; row < copies * time; row++) mask.fill(MASKED, row * time + (row % time) + 1, (row + 1) * time);
  return mask;
}

/** Added to a score that must not count: its exponential is exactly 0. */
export const MASKED = -1e9;
