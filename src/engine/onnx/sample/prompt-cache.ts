import type { ModelConfig } from "../model/config.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import type { PromptKeys } from "./place.ts";
import { BLOCK_TOKENS, type KeysMemory, type StoredBlock } from "./prefix-cache.ts";
import { cacheNames } from "./sampler-graph.ts";

/** Keys and values of one layer, both `[slots, kv, C, d]`. */
interface LayerCache {
  readonly keys: Float32Array;
  readonly values: Float32Array;
}

/** Copy of a block's keys and values in all layers. */
interface HostBlock extends StoredBlock {
  readonly data: Float32Array;
}

/**
 * Keys and values of prompts being prefilled. The arrays are both inputs and outputs of a graph, over the same memory: the graph reads the
 * existing tokens and adds the new tokens next to them.
 */
export class PromptCache implements PromptKeys {
  readonly kind = "prompt";
  readonly maxPiece = Infinity;
  readonly #config: ModelConfig;
  readonly layers: readonly LayerCache[];
  /** Tokens that each slot has room for, `C`. */
  readonly capacity: number;
  readonly fetches: Tensors = {};
  readonly #TensorClass: TensorConstructor;
  readonly #slots: number;
  readonly #past: Tensors = {};

  constructor(config: ModelConfig, TensorClass: TensorConstructor, slots: number, capacity: number) {
    this.#config = config;
    this.#TensorClass = TensorClass;
    this.#slots = slots;
    this.capacity = capacity;
    const { kvHeads, headSize } = config;
    const size = slots * kvHeads * capacity * headSize;
    this.layers = Array.from({ length: config.layers }, () => ({ keys: new Float32Array(size), values: new Float32Array(size) }));
    const tensor = (data: Float32Array) => new TensorClass("float32", data, [slots, kvHeads, capacity, headSize]);
    this.layers.forEach(({ keys, values }, layer) => {
      const names = cacheNames(layer);
      this.#past[names.pastKeys] = this.fetches[names.keys] = tensor(keys);
      this.#past[names.pastValues] = this.fetches[names.values] = tensor(values);
    });
  }

  feeds(_start: number, end: number): Tensors {
    const ints = (values: Int32Array) => new this.#TensorClass("int32", values, [values.length]);
    return { ...this.#past, last_places: ints(new Int32Array(this.#slots).fill(end - 1)), total: ints(Int32Array.of(end)) };
  }

  update(): void {}

  release(): void {}

  load(blocks: readonly StoredBlock[]): void {
    (blocks as readonly HostBlock[]).forEach(({ data }, index) => {
      this.#eachLine(0, index * BLOCK_TOKENS, (line, at) => line.set(data.subarray(at, at + line.length)));
    });
  }

  /** Returns the known block, which has the same bits, or a copy. */
  store(slot: number, start: number, known: StoredBlock | null): HostBlock {
    if (known !== null) return known as HostBlock;
    const { kvHeads, headSize, layers } = this.#config;
    const data = new Float32Array(2 * layers * kvHeads * BLOCK_TOKENS * headSize);
    this.#eachLine(slot, start, (line, at) => data.set(line, at));
    return { data, memory: collected(data.byteLength) };
  }

  /** Calls `visit` with each head's span of the block that starts at a token, and the span's offset in the concatenation of all spans. */
  #eachLine(slot: number, start: number, visit: (line: Float32Array, at: number) => void): void {
    const { kvHeads, headSize: d } = this.#config;
    const count = BLOCK_TOKENS;
    let at = 0;
    for (const { keys, values } of this.layers) {
      for (const all of [keys, values]) {
        for (let head = 0; head < kvHeads; head++, at += count * d) {
          const from = ((slot * kvHeads + head) * this.capacity + start) * d;
          visit(all.subarray(from, from + count * d), at);
        }
      }
    }
  }
}

/** Returns memory that the garbage collector frees. */
function collected(bytes: number): KeysMemory {
  return { bytes, hold: () => {}, release: () => {} };
}
