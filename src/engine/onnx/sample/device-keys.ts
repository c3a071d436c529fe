/** Keys and values in the memory of a device (GPU): of prompts being prefilled, of the prefix cache, and of the rows of a batch. */
import { type Dim, Graph, join, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { type DeviceMemory, type DeviceTensor, MAX_BINDING_BYTES } from "../runtime/device-memory.ts";
import type { ProgramCache } from "../runtime/program-cache.ts";
import { joinTables, loadRuntime, Program, tableOf, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import type { KeysRoom } from "./keys-room.ts";
import { type BatchKeys, type PromptKeys, toCapacity } from "./place.ts";
import { BLOCK_TOKENS, type KeysMemory, type StoredBlock } from "./prefix-cache.ts";
import { cacheFetches, cachePairs } from "./sampler-graph.ts";
import { first, getOrThrow, itemAt } from "../../../base/util/values.ts";

/**
 * Min sliding window of a device, and max tokens of a piece after other tokens in layers with a window: with a window shorter than the
 * piece, the attention kernel of ONNX Runtime 1.30 is wrong.
 */
export const MIN_DEVICE_WINDOW = BLOCK_TOKENS;

/** Caches in memory at a time: a run reads one, and writes another one with the next token. */
const COPIES = 2;

/** Keys and values of all layers by output name, `[rows, kv, C, d]`. */
type Layers = ReadonlyMap<string, DeviceTensor>;

/** Takes ownership of the keys and values among the outputs of a run. */
function adoptLayers(memory: DeviceMemory, config: ModelConfig, results: Tensors): Layers {
  return new Map(cachePairs(config).map(({ output }) => [output, memory.adopt(results[output]!)]));
}

/** Returns keys and values as the graph inputs of the next run. */
function pastFeeds(config: ModelConfig, layers: Layers): Tensors {
  return tableOf(cachePairs(config).map(({ output, input }) => [input, getOrThrow(layers, output).tensor] as const));
}

function holdAll(layers: Layers): Layers {
  return new Map([...layers].map(([name, tensor]) => [name, tensor.hold()]));
}

function bytesOf(layers: Layers | null): number {
  return [...(layers?.values() ?? [])].reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Rounds a number of rows up, so that graphs run with few distinct shapes: to a power of two up to 8, then to a multiple of 8.
 *
 * @param round - `Math.floor` to round down instead. @default `Math.ceil`
 */
export function paddedRows(count: number, round: (x: number) => number = Math.ceil): number {
  return count <= 8 ? 2 ** round(Math.log2(count)) : round(count / 8) * 8;
}

function releaseAll(layers: Layers | null): void {
  for (const tensor of layers?.values() ?? []) tensor.release();
}

/** Returns the test for outputs of a prefill or decode graph that stay on the device: keys and values. */
export function residentKeys(config: ModelConfig): (output: string) => boolean {
  const names = new Set(cachePairs(config).map(({ output }) => output));
  return (output) => names.has(output);
}

/**
 * Gathers rows of caches, all rows of the first cache before the rows of the second, into new tensors. A cache is padded to the capacity,
 * or cut to it.
 */
type Gather = (parts: readonly Layers[], rows: readonly number[], capacity: number) => Promise<Layers>;

/** Returns the function that gathers rows of caches on a device. @param programs - Compiled graphs, shared by all caches. */
export function gatherer(memory: DeviceMemory, config: ModelConfig, programs: ProgramCache): Gather {
  const outputs = cachePairs(config).map(({ output }) => output);
  return async (parts, rows, capacity) => {
    const { Tensor } = await loadRuntime();
    const program = await programs.get(JSON.stringify([config, parts.length]), () =>
      Program.compile(gatherGraph(config, parts.length), "gather-cache", { threads: 1, device: memory.device, resident: () => true }),
    );
    const integers = (values: readonly number[]) => new Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);
    const feeds: Tensors = { index: integers(rows) };
    parts.forEach((layers, part) => {
      feeds[`pads${part}`] = integers([0, 0, 0, 0, 0, 0, capacity - capacityOf(layers), 0]);
      for (const output of outputs) feeds[`${part}_${output}`] = getOrThrow(layers, output).tensor;
    });
    return adoptLayers(memory, config, await program.run(feeds, outputs));
  };
}

/** Returns the shape `[rows, kv, C, d]` that the tensors of all layers have. */
function dimsOf(layers: Layers): readonly number[] {
  return first([...layers.values()]).tensor.dims;
}

function capacityOf(layers: Layers): number {
  return itemAt(dimsOf(layers), 2);
}

/** Keys and values of prompts in the prefix cache: all tokens of all prompts that were computed together. */
class StoredLayers implements KeysMemory {
  readonly layers: Layers;
  readonly bytes: number;

  constructor(layers: Layers) {
    this.layers = layers;
    this.bytes = bytesOf(layers);
  }

  hold(): void {
    holdAll(this.layers);
  }

  release(): void {
    releaseAll(this.layers);
  }
}

/** Block in the tensors of its prompt, which also hold all blocks before it. */
interface DeviceBlock extends StoredBlock {
  readonly memory: StoredLayers;
  readonly slot: number;
}

/** Keys and values of prompts being prefilled; they grow with every piece. */
export class DevicePromptKeys implements PromptKeys {
  readonly minSelected = 2;
  readonly #memory: DeviceMemory;
  readonly #config: ModelConfig;
  readonly #TensorClass: TensorConstructor;
  readonly #slots: number;
  readonly #gather: Gather;
  readonly fetches: Readonly<Record<string, null>>;
  #layers: Layers | null = null;
  #stored: StoredLayers | null = null;

  constructor(memory: DeviceMemory, config: ModelConfig, TensorClass: TensorConstructor, slots: number, gather: Gather) {
    this.#memory = memory;
    this.#config = config;
    this.#TensorClass = TensorClass;
    this.#slots = slots;
    this.#gather = gather;
    this.fetches = cacheFetches(config);
  }

  get kind(): PromptKeys["kind"] {
    return this.#layers === null ? "prompt" : "continuation";
  }

  get maxPiece(): number {
    return this.kind === "continuation" && this.#config.window !== null ? MIN_DEVICE_WINDOW : Infinity;
  }

  feeds(_start: number, end: number): Tensors {
    const ints = (values: Int32Array) => new this.#TensorClass("int32", values, [values.length]);
    return {
      ...(this.#layers === null ? {} : pastFeeds(this.#config, this.#layers)),
      last_places: ints(new Int32Array(this.#slots).fill(end - 1)),
      total: ints(Int32Array.of(end)),
    };
  }

  update(results: Tensors): void {
    releaseAll(this.#layers);
    this.#layers = adoptLayers(this.#memory, this.#config, results);
    this.#stored = new StoredLayers(this.#layers);
  }

  /** Returns another holder of the keys and values so far. */
  hold(): Layers {
    return holdAll(this.#layers!);
  }

  /**
   * Starts with the tensors that hold the last block. They are used without a copy if they belong to a single prompt and have at most one
   * more block, because a graph reads only the tokens before its own, and returns tensors that end with its own. Otherwise the slot is
   * copied up to the last block.
   */
  async load(slots: readonly (readonly StoredBlock[])[]): Promise<void> {
    const blocks = first(slots);
    const { memory, slot } = blocks.at(-1) as DeviceBlock;
    const length = blocks.length * BLOCK_TOKENS;
    const isWhole = dimsOf(memory.layers)[0] === 1 && capacityOf(memory.layers) <= length + BLOCK_TOKENS;
    this.#layers = isWhole ? holdAll(memory.layers) : await this.#gather([memory.layers], [slot], length);
  }

  /** Returns the block in the latest tensors, so that the cache holds the tensors of earlier pieces and prompts no longer. */
  store(slot: number): DeviceBlock {
    return { memory: this.#stored!, slot };
  }

  release(): void {
    releaseAll(this.#layers);
    this.#layers = null;
  }
}

/** Prompts that were prefilled together, with keys and values that have not been copied into the batch's cache yet. */
interface Source {
  readonly prompt: DevicePromptKeys;
  readonly layers: Layers;
}

/** Row of the cache: a row of the current tensors, or a slot of a prompt that has not been copied yet. */
interface RowSource {
  /** Prompt that has not been copied yet; null = the current tensors. */
  readonly from: Source | null;
  /** Slot of the prompt, or row of the current tensors. */
  readonly index: number;
}

/**
 * Keys and values of the rows of one batch. Changes are collected, and one program per prompt copies rows, drops rows that ended and
 * extends the capacity before the next token.
 */
export class DeviceBatchKeys implements BatchKeys {
  readonly #memory: DeviceMemory;
  readonly #config: ModelConfig;
  readonly #gather: Gather;
  readonly #room: KeysRoom;
  #layers: Layers | null = null;
  /** Source of each row, by slot. */
  #rows: RowSource[] = [];
  /** Prompts that were not copied yet. */
  #sources: Source[] = [];
  #slots = 0;
  #capacity = 0;
  /** Capacity that the next {@link feeds} provides. */
  #wantedCapacity = 0;

  constructor(memory: DeviceMemory, config: ModelConfig, gather: Gather, room: KeysRoom) {
    this.#memory = memory;
    this.#config = config;
    this.#gather = gather;
    this.#room = room;
  }

  /** Counts the cache of a run {@link COPIES} times, and limits the rows so that every GPU can bind their logits. */
  roomFor(rows: number, length: number): number {
    const { layers, kvHeads, headSize, vocabularySize } = this.#config;
    const rowBytes = COPIES * 4 * 2 * layers * kvHeads * headSize * toCapacity(length);
    const bytes = this.#room.bytesFor(bytesOf(this.#layers), rowBytes * paddedRows(rows));
    const limit = Math.min(bytes / rowBytes, MAX_BINDING_BYTES / (4 * vocabularySize));
    return Math.min(rows, paddedRows(Math.max(1, limit), Math.floor));
  }

  /** Sets the length of all rows. The cache shrinks when its longest row has ended. */
  reserve(_slots: number, length: number): void {
    this.#wantedCapacity = toCapacity(length);
  }

  load(slot: number, prompt: PromptKeys, index: number): void {
    // All prompts of a device's batch are in the memory of the device.
    const keys = prompt as DevicePromptKeys;
    let from = this.#sources.find((source) => source.prompt === keys);
    if (from === undefined) this.#sources.push((from = { prompt: keys, layers: keys.hold() }));
    this.#rows[slot] = { from, index };
  }

  async feeds(TensorClass: TensorConstructor, _start: number, rows: number, lengths: Int32Array): Promise<Tensors> {
    await this.#rearrange(rows);
    const lastPositions = Int32Array.from({ length: rows }, (_, row) => lengths[row] ?? 0);
    return joinTables<Tensor>(pastFeeds(this.#config, this.#layers!), {
      last_places: new TensorClass("int32", lastPositions, [rows]),
      total: new TensorClass("int32", Int32Array.of(Math.max(...lastPositions) + 1), [1]),
    });
  }

  append(results: Tensors): void {
    releaseAll(this.#layers);
    this.#layers = adoptLayers(this.#memory, this.#config, results);
  }

  copy(from: number, to: number): void {
    this.#rows[to] = itemAt(this.#rows, from);
  }

  release(): void {
    releaseAll(this.#layers);
    this.#layers = null;
    for (const { layers } of this.#sources) releaseAll(layers);
    this.#sources = [];
  }

  /** Brings the tensors into the shape `[slots, kv, capacity, d]` with every row in its place. */
  async #rearrange(slots: number): Promise<void> {
    const rows = Array.from({ length: slots }, (_, slot): RowSource => this.#rows[slot] ?? { from: null, index: 0 });
    const isInPlace = rows.every(({ from, index }, slot) => from === null && (index === slot || this.#rows[slot] === undefined));
    if (this.#sources.length === 0 && isInPlace && slots === this.#slots && this.#capacity === this.#wantedCapacity) return;
    // Rows of the current tensors first, then the slots of each prompt in turn.
    let available = rows.map(({ from, index }) => (from === null && this.#layers !== null ? index : 0));
    if (this.#sources.length === 0) await this.#merge(null, available);
    for (let source = this.#sources[0]; source !== undefined; source = this.#sources[0]) {
      const before = this.#layers === null ? 0 : this.#slots;
      const own = source;
      await this.#merge(
        own,
        rows.map(({ from, index }, slot) => (from === own ? before + index : before === 0 ? 0 : itemAt(available, slot))),
      );
      this.#sources.shift();
      releaseAll(source.layers);
      available = available.map((_, slot) => slot);
    }
    this.#rows = rows.map((_, slot) => ({ from: null, index: slot }));
  }

  /** Gathers rows of the current tensors, followed by the slots of a source, into new tensors of the wanted capacity. */
  async #merge(source: Source | null, index: readonly number[]): Promise<void> {
    const parts = [this.#layers, source?.layers ?? null].filter((each) => each !== null);
    const gathered = await this.#gather(parts, index, this.#wantedCapacity);
    releaseAll(this.#layers);
    this.#layers = gathered;
    this.#slots = index.length;
    this.#capacity = this.#wantedCapacity;
  }
}

/** Builds the graph that pads `parts` caches to one capacity, joins them and gathers rows by `index`. */
function gatherGraph(config: ModelConfig, parts: number): Graph {
  const graph = new Graph();
  const { kvHeads, headSize } = config;
  const index = graph.input("index", ["slots"], "int64");
  const pads = Array.from({ length: parts }, (_, part) => graph.input(`pads${part}`, [8], "int64"));
  const record = (op: string, inputs: readonly Value[], rows: Dim, attributes = {}) =>
    graph.recordOne({ op, inputs, attributes, output: { shape: [rows, kvHeads, "capacity", headSize] } });
  for (const { output } of cachePairs(config)) {
    const padded = pads.map((pad, part) =>
      record("Pad", [graph.input(`${part}_${output}`, [`rows${part}`, kvHeads, `capacity${part}`, headSize]), pad], `rows${part}`),
    );
    graph.output(output, record("Gather", [join(padded, 0, "rows"), index], "slots", { axis: { int: 0 } }));
  }
  return graph;
}
