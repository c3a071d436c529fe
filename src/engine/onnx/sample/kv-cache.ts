import type { ModelConfig } from "../model/config.ts";
import { MASKED } from "../train/batch.ts";

/** Capacities are multiples of this; a row's bits do not depend on which. */
const CAPACITY_STEP = 64;

/** Keys and values of one layer: `[slots, kv, d, C]` and `[slots, kv, C, d]`. */
export interface LayerCache {
  readonly keys: Float32Array;
  readonly values: Float32Array;
}

/**
 * The keys and values of the rows of one batch, rows `0 … count − 1` in use. The arrays are graph inputs as they lie:
 * the first rows are a prefix, so any batch size is a view.
 */
export class KvCache {
  readonly #config: ModelConfig;
  readonly #rowSize: (capacity: number) => number;
  #slots = 0;
  #capacity = 0;
  #layers: LayerCache[] = [];
  #mask = new Float32Array(0);

  constructor(config: ModelConfig) {
    this.#config = config;
    this.#rowSize = (capacity) => config.kvHeads * config.headSize * capacity;
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** Keys and values of the first `rows` rows of a layer. */
  layer(index: number, rows: number): LayerCache {
    const size = rows * this.#rowSize(this.#capacity);
    const { keys, values } = this.#layers[index]!;
    return { keys: keys.subarray(0, size), values: values.subarray(0, size) };
  }

  /** `[rows, 1, 1, C]`: 0 where a row has a token, very negative elsewhere. */
  mask(rows: number): Float32Array {
    return this.#mask.subarray(0, rows * this.#capacity);
  }

  /** Makes room for `slots` rows of `length` tokens; what is stored stays. */
  reserve(slots: number, length: number): void {
    const capacity = Math.max(this.#capacity, Math.ceil(length / CAPACITY_STEP) * CAPACITY_STEP);
    if (slots <= this.#slots && capacity === this.#capacity) return;
    const wanted = slots <= this.#slots ? this.#slots : Math.max(slots, 2 * this.#slots, 2);
    const { kvHeads, headSize: d, layers } = this.#config;
    const [oldRow, newRow] = [this.#rowSize(this.#capacity), this.#rowSize(capacity)];
    this.#layers = Array.from({ length: layers }, (_, index): LayerCache => {
      const next = { keys: new Float32Array(wanted * newRow), values: new Float32Array(wanted * newRow) };
      const old = this.#layers[index];
      if (!old) return next;
      for (let slot = 0; slot < this.#slots; slot++) {
        for (let line = 0; line < kvHeads * d; line++) {
          const from = slot * oldRow + line * this.#capacity;
          next.keys.set(old.keys.subarray(from, from + this.#capacity), slot * newRow + line * capacity);
        }
        for (let head = 0; head < kvHeads; head++) {
          const from = slot * oldRow + head * this.#capacity * d;
          next.values.set(old.values.subarray(from, from + this.#capacity * d), slot * newRow + head * capacity * d);
        }
      }
      return next;
    });
    const mask = new Float32Array(wanted * capacity).fill(MASKED);
    for (let slot = 0; slot < this.#slots; slot++)
      mask.set(this.#mask.subarray(slot * this.#capacity, (slot + 1) * this.#capacity), slot * capacity);
    this.#mask = mask;
    this.#slots = wanted;
    this.#capacity = capacity;
  }

  /** Stores `count` new tokens of a row from a graph's outputs `[B, kv, T, d]`, row `source`, at position `start`. */
  write(layer: number, slot: number, start: number, fresh: LayerCache, source: number, time: number, count: number): void {
    const { kvHeads, headSize: d } = this.#config;
    const { keys, values } = this.#layers[layer]!;
    const row = slot * this.#rowSize(this.#capacity);
    for (let head = 0; head < kvHeads; head++) {
      const from = (source * kvHeads + head) * time * d;
      values.set(fresh.values.subarray(from, from + count * d), row + (head * this.#capacity + start) * d);
      for (let t = 0; t < count; t++) {
        for (let i = 0; i < d; i++) keys[row + (head * d + i) * this.#capacity + start + t] = fresh.keys[from + t * d + i]!;
      }
    }
  }

  /** Marks positions `[0, length)` of a row as present and the rest as absent. */
  setLength(slot: number, length: number): void {
    const start = slot * this.#capacity;
    this.#mask.fill(0, start, start + length);
    this.#mask.fill(MASKED, start + length, start + this.#capacity);
  }

  /** Marks one more position as present. */
  extend(slot: number, position: number): void {
    this.#mask[slot * this.#capacity + position] = 0;
  }

  /** Copies a row over another. */
  copy(from: number, to: number): void {
    if (from === to) return;
    const size = this.#rowSize(this.#capacity);
    for (const { keys, values } of this.#layers) {
      keys.copyWithin(to * size, from * size, (from + 1) * size);
      values.copyWithin(to * size, from * size, (from + 1) * size);
    }
    this.#mask.copyWithin(to * this.#capacity, from * this.#capacity, (from + 1) * this.#capacity);
  }
}
