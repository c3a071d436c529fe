/** Keys and values of prompts in the process's memory; `DevicePromptKeys` (device-keys.ts) is the counterpart on a GPU. */
import type { ModelConfig } from "../model/config.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import type { LayerCache, PromptKeys } from "./place.ts";
import { BLOCK_TOKENS, type KeysMemory, type StoredBlock } from "./prefix-cache.ts";
import { cacheNames } from "./sampler-graph.ts";
import { first } from "../../../base/util/values.ts";

/** Copy of a block's keys and values in all layers. */
interface HostBlock extends StoredBlock {
  /** Keys, then values of each layer in turn, each `[kv, BLOCK_TOKENS, d]`. */
  readonly data: Float32Array;
}

/**
 * Keys and values of prompts being prefilled. The arrays are both inputs and outputs of a graph, over the same memory: the graph reads the
 * existing tokens and adds the new tokens next to them.
 */
export class PromptCache implements PromptKeys {
  readonly maxPiece = Infinity;
  readonly minSelected = 0;
  readonly #config: ModelConfig;
  readonly #TensorClass: TensorConstructor;
  readonly #slots: number;
  readonly #maxCapacity: number;
  /** Keys and values, both `[slots, kv, C, d]`. */
  #layers: readonly LayerCache[] = [];
  #capacity = 0;
  /** Whether the first tokens of several slots were loaded. */
  #continuesSeveral = false;
  /** The arrays as graph inputs, by name; `#fetches` has the same arrays as outputs. */
  #past: Tensors = {};
  #fetches: Tensors = {};

  /**
   * @param maxCapacity - Tokens of each slot; memory is allocated as tokens are added, because the binding copies all of it after a run.
   */
  constructor(config: ModelConfig, TensorClass: TensorConstructor, slots: number, maxCapacity: number) {
    this.#config = config;
    this.#TensorClass = TensorClass;
    this.#slots = slots;
    this.#maxCapacity = maxCapacity;
  }

  get kind(): "prompt" | "continuation" {
    return this.#continuesSeveral ? "continuation" : "prompt";
  }

  get layers(): readonly LayerCache[] {
    return this.#layers;
  }

  /** Tokens that each slot has room for now, `C`. */
  get capacity(): number {
    return this.#capacity;
  }

  get fetches(): Tensors {
    return this.#fetches;
  }

  feeds(_start: number, end: number): Tensors {
    this.#reserve(end);
    const ints = (values: Int32Array) => new this.#TensorClass("int32", values, [values.length]);
    return { ...this.#past, last_places: ints(new Int32Array(this.#slots).fill(end - 1)), total: ints(Int32Array.of(end)) };
  }

  /** Does nothing: the graph has written the new tokens into the arrays. */
  update(): void {}

  /** Does nothing: the garbage collector frees the arrays. */
  release(): void {}

  load(slots: readonly (readonly StoredBlock[])[]): void {
    this.#reserve(first(slots).length * BLOCK_TOKENS);
    this.#continuesSeveral = slots.length > 1;
    (slots as readonly (readonly HostBlock[])[]).forEach((blocks, slot) => {
      blocks.forEach(({ data }, index) => {
        this.#eachLine(slot, index * BLOCK_TOKENS, (line, offset) => line.set(data.subarray(offset, offset + line.length)));
      });
    });
  }

  /** Returns the known block, which has the same bits, or a copy. */
  store(slot: number, start: number, known: StoredBlock | null): HostBlock {
    if (known !== null) return known as HostBlock;
    const { kvHeads, headSize, layers } = this.#config;
    const data = new Float32Array(2 * layers * kvHeads * BLOCK_TOKENS * headSize);
    this.#eachLine(slot, start, (line, offset) => data.set(line, offset));
    return { data, memory: collected(data.byteLength) };
  }

  /** Makes room for `length` tokens in each slot, at least twice the present room, and keeps the tokens. */
  #reserve(length: number): void {
    const before = this.#capacity;
    if (length <= before) return;
    const { kvHeads, headSize: d, layers } = this.#config;
    const capacity = Math.min(this.#maxCapacity, Math.max(length, 2 * before));
    const lines = this.#slots * kvHeads;
    const moved = (from: Float32Array | undefined) => {
      const to = new Float32Array(lines * capacity * d);
      if (from !== undefined)
        for (let line = 0; line < lines; line++) to.set(from.subarray(line * before * d, (line + 1) * before * d), line * capacity * d);
      return to;
    };
    this.#layers = Array.from({ length: layers }, (_, layer) => {
      const { keys, values } = this.#layers[layer] ?? {};
      return { keys: moved(keys), values: moved(values) };
    });
    this.#capacity = capacity;
    const tensor = (data: Float32Array) => new this.#TensorClass("float32", data, [this.#slots, kvHeads, capacity, d]);
    this.#past = {};
    this.#fetches = {};
    this.#layers.forEach(({ keys, values }, layer) => {
      const names = cacheNames(layer);
      this.#past[names.pastKeys] = this.#fetches[names.keys] = tensor(keys);
      this.#past[names.pastValues] = this.#fetches[names.values] = tensor(values);
    });
  }

  /** Calls `visit` with each head's span of the block that starts at a token, and the span's offset in the concatenation of all spans. */
  #eachLine(slot: number, start: number, visit: (line: Float32Array, offset: number) => void): void {
    const { kvHeads, headSize: d } = this.#config;
    const count = BLOCK_TOKENS;
    let offset = 0;
    for (const { keys, values } of this.#layers) {
      for (const all of [keys, values]) {
        for (let head = 0; head < kvHeads; head++, offset += count * d) {
          const from = ((slot * kvHeads + head) * this.#capacity + start) * d;
          visit(all.subarray(from, from + count * d), offset);
        }
      }
    }
  }
}

/** Returns memory that the garbage collector frees. */
function collected(bytes: number): KeysMemory {
  return { bytes, hold: () => {}, release: () => {} };
}
