/** Key-value cache of a batch in the process's memory; `DeviceBatchKeys` (device-keys.ts) is the counterpart on a GPU. */
import type { ModelConfig } from "../model/config.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import { freeBuffers } from "../../../base/util/free-buffers.ts";
import { type BatchKeys, type LayerCache, toCapacity } from "./place.ts";
import type { PromptCache } from "./prompt-cache.ts";
import { cacheNames } from "./sampler-graph.ts";
import { SlotMasks } from "./slot-masks.ts";
import { itemAt } from "../../../base/util/values.ts";

/**
 * Max bytes to allocate ahead for the length that rows may reach. Memory that is allocated but not written to costs nothing, but a cache
 * that grows by a copy needs the memory of both.
 */
const MAX_AHEAD_BYTES = 2 ** 31;

/**
 * Keys and values of the rows of one batch; rows `0 … count − 1` are in use. The arrays are graph inputs without a copy: adjacent rows are a
 * view.
 *
 * Positions without a token hold zeros. Masking adds to a score and multiplies a value by 0, so a NaN, an infinity or a huge number left by
 * an earlier row would reach the row that uses the slot now.
 */
export class KvCache implements BatchKeys {
  readonly #config: ModelConfig;
  readonly #rowSize: (capacity: number) => number;
  #slots = 0;
  #capacity = 0;
  /** Number of slots that may hold data: the slots of the rows in use and, until the arrays change, of rows that ended. */
  #written = 0;
  /** Keys and values, `[slots, kv, C, d]` each. */
  #layers: LayerCache[] = [];
  #masks: SlotMasks;

  constructor(config: ModelConfig) {
    this.#config = config;
    this.#masks = new SlotMasks(config.window?.size ?? Infinity);
    this.#rowSize = (capacity) => config.kvHeads * config.headSize * capacity;
  }

  /** Every number of rows: the cache grows until the memory of the process is full. */
  roomFor(rows: number): number {
    return rows;
  }

  /**
   * Returns the graph inputs of `rows` rows from row `start` on; `past_mask` is 0 where a row has a token and very negative elsewhere. Layers
   * with a sliding window keep all keys, and read `window_mask` instead.
   */
  feeds(TensorClass: TensorConstructor, start: number, rows: number): Tensors {
    const { kvHeads, headSize: d } = this.#config;
    const capacity = this.#capacity;
    const range = [start * this.#rowSize(capacity), (start + rows) * this.#rowSize(capacity)] as const;
    const mask = (data: Float32Array) => new TensorClass("float32", data, [rows, 1, 1, capacity]);
    const feeds: Tensors = { past_mask: mask(this.#masks.full(start, rows)) };
    if (this.#masks.hasWindow) feeds["window_mask"] = mask(this.#masks.windowed(start, rows));
    this.#layers.forEach(({ keys, values }, layer) => {
      const names = cacheNames(layer);
      const tensor = (data: Float32Array) => new TensorClass("float32", data.subarray(...range), [rows, kvHeads, capacity, d]);
      feeds[names.pastKeys] = tensor(keys);
      feeds[names.pastValues] = tensor(values);
    });
    return feeds;
  }

  /**
   * Makes room for `slots` rows of `length` tokens and keeps the first `rows` rows.
   *
   * All requests wait meanwhile. So rows that ended are not moved, and rows are spread out in place if the memory is large enough, because
   * allocating memory costs more than the copy.
   *
   * @param longest - Length that rows may reach later. @default length
   */
  reserve(slots: number, length: number, rows: number, longest = length): void {
    const before = this.#capacity;
    const capacity = Math.max(before, toCapacity(length));
    if (slots <= this.#slots && capacity === before) return;
    const wanted = slots <= this.#slots ? this.#slots : Math.max(slots, 2 * this.#slots, 2);
    const { kvHeads, headSize: d, layers } = this.#config;
    const size = wanted * this.#rowSize(capacity);
    const used = rows * this.#rowSize(before);
    // Everything is allocated before anything is changed, because memory may run out.
    const masks = this.#masks.resized(wanted, capacity, rows);
    const allocated = this.#layers[0]?.keys.length ?? 0;
    if (size > allocated) {
      // Memory that is not yet written to takes no physical memory.
      const sizeAhead = wanted * this.#rowSize(toCapacity(longest));
      const newSize = Math.max(size, 2 * allocated, sizeAhead * 8 * layers <= MAX_AHEAD_BYTES ? sizeAhead : 0);
      // One array for all layers: the allocator returns only large blocks to the system when they are freed.
      const all = new Float32Array(2 * layers * newSize);
      const part = (index: number) => all.subarray(index * newSize, (index + 1) * newSize);
      const grown = Array.from({ length: layers }, (_, layer): LayerCache => ({ keys: part(2 * layer), values: part(2 * layer + 1) }));
      this.#layers.forEach((old, layer) => {
        const { keys, values } = itemAt(grown, layer);
        keys.set(old.keys.subarray(0, used));
        values.set(old.values.subarray(0, used));
      });
      this.#free();
      this.#layers = grown;
      this.#written = rows;
    }
    // Range of the elements of rows that ended.
    const ended = [rows * this.#rowSize(capacity), this.#written * this.#rowSize(before)] as const;
    for (const data of this.#arrays()) {
      spreadOut(data, rows * kvHeads, before * d, capacity * d);
      data.fill(0, ...ended);
    }
    this.#masks = masks;
    this.#slots = wanted;
    this.#capacity = capacity;
    this.#written = rows;
  }

  /** Copies the first `length` tokens of a prompt into a row and zeroes the rest of an earlier row. */
  load(slot: number, prompt: PromptCache, source: number, length: number): void {
    const { kvHeads, headSize: d } = this.#config;
    const capacity = this.#capacity;
    const before = this.#masks.lengthOf(slot);
    this.#written = Math.max(this.#written, slot + 1);
    prompt.layers.forEach((from, layer) => {
      const to = itemAt(this.#layers, layer);
      for (const part of ["keys", "values"] as const) {
        for (let head = 0; head < kvHeads; head++) {
          const start = (source * kvHeads + head) * prompt.capacity * d;
          const row = (slot * kvHeads + head) * d * capacity;
          to[part].set(from[part].subarray(start, start + length * d), row);
          if (before > length) to[part].fill(0, row + length * d, row + before * d);
        }
      }
    });
    this.#masks.load(slot, length);
  }

  /**
   * Stores one new token of each of `rows` rows from row `start` on, from a graph's outputs `[B, kv, 1, d]`.
   *
   * @param positions - Position of the new token in each of these rows.
   */
  append(results: Tensors, positions: Int32Array, start: number, rows: number): void {
    const { kvHeads, headSize: d } = this.#config;
    const capacity = this.#capacity;
    const offset = start * this.#rowSize(capacity);
    this.#written = Math.max(this.#written, start + rows);
    this.#layers.forEach(({ keys, values }, layer) => {
      const names = cacheNames(layer);
      const tokens = { start: offset, positions, rows, kvHeads, d, capacity };
      writeTokens(results[names.keys]!.data as Float32Array, keys, tokens);
      writeTokens(results[names.values]!.data as Float32Array, values, tokens);
    });
    for (let row = 0; row < rows; row++) this.#masks.append(start + row, itemAt(positions, row));
  }

  /** Frees the memory at once: caches of many rows of a large model take hundreds of megabytes. */
  release(): void {
    this.#free();
    this.#layers = [];
    this.#masks = new SlotMasks(this.#config.window?.size ?? Infinity);
    this.#slots = this.#capacity = this.#written = 0;
  }

  /** Returns the keys and the values of all layers. */
  #arrays(): Float32Array[] {
    return this.#layers.flatMap(({ keys, values }) => [keys, values]);
  }

  #free(): void {
    const [first] = this.#layers;
    if (first) freeBuffers([first.keys.buffer as ArrayBuffer]);
  }

  /** Copies a row over another. */
  copy(from: number, to: number): void {
    if (from === to) return;
    const size = this.#rowSize(this.#capacity);
    for (const data of this.#arrays()) data.copyWithin(to * size, from * size, (from + 1) * size);
    this.#masks.copy(from, to);
  }
}

/** Place of one new token of each of some rows in a cache. */
interface NewTokens {
  /** Index of the first row's first element. */
  readonly start: number;
  /** Position of the token in each row. */
  readonly positions: Int32Array;
  readonly rows: number;
  readonly kvHeads: number;
  readonly d: number;
  readonly capacity: number;
}

/**
 * Writes the keys or values of new tokens `[B, kv, 1, d]` to a cache.
 *
 * A separate function: inside the callback of a rarely called method the loop stays in the interpreter and takes about ten times as long,
 * while every stream waits.
 */
function writeTokens(from: Float32Array, to: Float32Array, { start, positions, rows, kvHeads, d, capacity }: NewTokens): void {
  for (let line = 0; line < rows * kvHeads; line++) {
    const target = start + (line * capacity + positions[Math.floor(line / kvHeads)]!) * d;
    for (let i = 0; i < d; i++) to[target + i] = from[line * d + i]!;
  }
}

/** Moves the first `lines` lines from a stride of `from` elements to a larger stride of `to` elements, in place; the new elements are 0. */
function spreadOut(data: Float32Array, lines: number, from: number, to: number): void {
  if (from === to) return;
  for (let line = lines - 1; line >= 0; line--) {
    data.copyWithin(line * to, line * from, (line + 1) * from);
    data.fill(0, line * to + from, (line + 1) * to);
  }
}
