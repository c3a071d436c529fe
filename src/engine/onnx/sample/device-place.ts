/** Sampling on a device (GPU), with weights, adapters and caches in its memory. */
import { UnsupportedError } from "../../../base/errors.ts";
import type { DevicePrecision } from "../../engine-info.ts";
import { concat, expandTo, Graph, mul, reshape } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { type DeviceBases, storedInputs } from "../model/device-bases.ts";
import { type Adapter, adapterLayout, baseLayout, cutLayout, type Layout } from "../model/parameters.ts";
import { readAdapterOrWeights } from "../model/state.ts";
import type { DeviceMemory, DeviceTensor } from "../runtime/device-memory.ts";
import { DeviceVector } from "../runtime/device-vector.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { joinTables, loadRuntime, Program, tableOf, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import { hasExactAttention } from "./attention-check.ts";
import { deviceGraph } from "./device-graphs.ts";
import { DeviceBatchKeys, DevicePromptKeys, gatherer, MIN_DEVICE_WINDOW, paddedRows, residentKeys } from "./device-keys.ts";
import { Forward, type ForwardInput, type ForwardKind } from "./forward.ts";
import { KeysRoom } from "./keys-room.ts";
import type { PlacedStack, PlacedWeights, SamplerPlace, SamplingPlace, WeightsSource } from "./place.ts";
import { first } from "../../../base/util/values.ts";

/** Trained weights in a device's memory; the receiver releases the vector. */
export interface DeviceTrained {
  readonly weights: DeviceVector;
  readonly lora: Adapter | null;
}

/** Weights that a batch runs on. */
interface OnDevice extends PlacedWeights {
  readonly precision: DevicePrecision;
  readonly weights: DeviceVector;
  readonly rotary: DeviceVector;
}

/** Weights of a fully trained model. */
interface OwnWeights extends OnDevice {
  readonly release: () => void;
}

/** Adapter in the memory of a device. */
interface DeviceAdapter extends Adapter {
  readonly weights: DeviceVector;
  readonly layout: Layout;
}

/** Min tokens of a piece: they take about as long as the launch of a run, with 0.5 B parameters on an H100 some 15 ms. */
const MIN_PIECE = 256;
/** Max tokens of a piece of a prompt: the scores of a piece are `heads × tokens × keys`. */
const MAX_PIECE = 512;
/** Max tokens of a piece on a device whose attention over more tokens is wrong, see {@link hasExactAttention}. */
const MAX_SAFE_PIECE = 16;

/**
 * Inputs of prefill and decode graphs that are packed into one transfer: all from the process's memory except `positions`, because their
 * operator needs int64.
 */
const HOSTED: ReadonlySet<string> = new Set([
  "tokens",
  "adapter",
  "last",
  "last_places",
  "uniforms",
  "inverse_temperatures",
  "first_blocks",
]);

/**
 * Creates the place of a sampler on a device, and its source of weights.
 *
 * @param room - Room for the keys and values of running requests. @default room in 8 GB without another user
 */
export function onDevice(memory: DeviceMemory, bases: DeviceBases, room = new KeysRoom(memory)): SamplerPlace<DeviceTrained> {
  return { place: devicePlace(memory, room), weights: deviceWeights(memory, bases) };
}

function deviceWeights(memory: DeviceMemory, bases: DeviceBases): WeightsSource<DeviceTrained, OnDevice, DeviceAdapter> {
  return {
    async base(directory, config) {
      requireWindow(config);
      return bases.lease(directory);
    },
    async own(_directory, config, { weights }): Promise<OwnWeights> {
      requireWindow(config);
      const rotary = await bases.rotary(config);
      const release = () => {
        weights.release();
        rotary.release();
      };
      return { config, precision: "float32", weights, rotary: rotary.value, release };
    },
    adapter: (config, { weights }, lora) => ({ ...lora, weights, layout: adapterLayout(config, lora.rank) }),
    async read(state, base, config) {
      const { flat, lora } = await readAdapterOrWeights(state, base, config);
      const layout = lora ? adapterLayout(config, lora.rank) : storedLayout(memory, config);
      return { weights: await DeviceVector.upload(memory, layout.parameters, flat), lora };
    },
    free: (held) => ("release" in held ? (held as OwnWeights).release() : held.weights.release()),
    discard: ({ weights }) => weights.release(),
  };
}

/** @throws UnsupportedError `E_UNSUPPORTED` for a sliding window that the device cannot compute. */
function requireWindow({ window }: ModelConfig): void {
  if (window === null || window.size >= MIN_DEVICE_WINDOW) return;
  throw new UnsupportedError(
    `Expected "sliding_window" to be at least ${MIN_DEVICE_WINDOW} on the device "webgpu", got ${window.size}: use the device "cpu"`,
  );
}

/** Returns the layout of a model's weights in a device's memory. */
function storedLayout({ maxPieceBytes }: DeviceMemory, config: ModelConfig): Layout {
  return cutLayout(baseLayout(config), maxPieceBytes);
}

function devicePlace(memory: DeviceMemory, room: KeysRoom): SamplingPlace {
  const { device } = memory;
  const forwardOf = (precision: DevicePrecision) =>
    new Forward<OnDevice>({
      programOf: (kind) => kind,
      compile(kind, { config }, adapters) {
        const layout = storedLayout(memory, config);
        return Program.compile(deviceGraph(kind as ForwardKind, config, adapters !== "none", layout), kind, {
          threads: 1,
          device,
          resident: residentKeys(config),
          hosted: (input) => HOSTED.has(input),
          stored: storedInputs(layout, precision),
        });
      },
      isPrepared: () => false,
      hasFixedOutputs: true,
      constants: (_TensorClass, { weights, rotary }) => joinTables(weights.feeds(), rotary.feeds()),
    });
  const forward = { float32: forwardOf("float32"), float16: forwardOf("float16") };
  // A model has two graphs that rearrange caches, and one that stacks adapters for each rank and number of adapters.
  const rearranging = new ProgramCache(8);
  const stacking = new ProgramCache(16);
  let maxPiece: number | null = null;
  return {
    async open() {
      maxPiece ??= (await hasExactAttention(device)) ? MAX_PIECE : MAX_SAFE_PIECE;
    },
    batchRows: (count) => paddedRows(count),
    prepare: (kind, weights, ...more) => forward[(weights as OnDevice).precision].prepare(kind, weights as OnDevice, ...more),
    run(input) {
      const { weights } = input as ForwardInput<OnDevice>;
      return forward[weights.precision].run({ ...input, weights });
    },
    drawsTokens: true,
    // A step of all rows is short, and a part of the rows would be a copy.
    decodesParts: false,
    minPiece: MIN_PIECE,
    get maxPiece() {
      return maxPiece ?? MAX_SAFE_PIECE;
    },
    // The rest of a prompt takes a run, however short it is.
    minSharedPrefix: MIN_PIECE,
    continuesSeveral: false,
    keepsIdleKeys: () => false,
    freeIdle() {},
    newPromptKeys: (TensorClass, config, slots) =>
      new DevicePromptKeys(memory, config, TensorClass, slots, gatherer(memory, config, rearranging)),
    newBatchKeys: (config) => new DeviceBatchKeys(memory, config, gatherer(memory, config, rearranging), room),
    stack(config, adapters, previous) {
      const members = [...new Set(adapters as readonly DeviceAdapter[])];
      if (members.length === 0) return null;
      if (previous && members.every((adapter) => (previous as DeviceStack).members.includes(adapter))) return previous;
      return new DeviceStack(memory, config, members, stacking);
    },
  };
}

/**
 * Adapters of a batch as stacks `[adapters + 1, in, rank]` and `[adapters + 1, rank, out]`; entry 0 is zero, for rows without an adapter.
 */
class DeviceStack implements PlacedStack {
  readonly members: readonly DeviceAdapter[];
  readonly #memory: DeviceMemory;
  readonly #config: ModelConfig;
  readonly #programs: ProgramCache;
  #stacks: ReadonlyMap<string, DeviceTensor> | null = null;

  constructor(memory: DeviceMemory, config: ModelConfig, members: readonly DeviceAdapter[], programs: ProgramCache) {
    this.#memory = memory;
    this.#config = config;
    this.members = members;
    this.#programs = programs;
  }

  useOf(): "several" {
    return "several";
  }

  async feeds(TensorClass: TensorConstructor, owners: readonly (Adapter | null)[]): Promise<Tensors> {
    const stacks = (this.#stacks ??= await this.#build());
    const index = BigInt64Array.from(owners, (owner) => BigInt(this.members.findIndex((member) => member === owner) + 1));
    const tensors = tableOf(Array.from(stacks, ([name, { tensor }]) => [name, tensor] as const));
    return joinTables<Tensor>(tensors, { adapter: new TensorClass("int64", index, [owners.length]) });
  }

  release(): void {
    for (const stack of this.#stacks?.values() ?? []) stack.release();
    this.#stacks = null;
  }

  async #build(): Promise<ReadonlyMap<string, DeviceTensor>> {
    const { Tensor } = await loadRuntime();
    const { layout, rank } = first(this.members);
    const count = this.members.length;
    const key = JSON.stringify([this.#config, rank, count]);
    const program = await this.#programs.get(key, () =>
      Program.compile(stackGraph(layout, count), "stack-adapters", { threads: 1, device: this.#memory.device, resident: () => true }),
    );
    const feeds: Tensors = {};
    this.members.forEach(({ weights, alpha, rank }, member) => {
      const own = weights.feeds((name) => `${member}_${name}`);
      Object.assign(feeds, own);
      feeds[`factor${member}`] = new Tensor("float32", Float32Array.of(alpha / rank), []);
    });
    const names = layout.parameters.map(({ name }) => name);
    const results = await program.run(feeds, names);
    return new Map(names.map((name) => [name, this.#memory.adopt(results[name]!)]));
  }
}

/** Builds the graph that stacks the matrices of `count` adapters; the factor `alpha / rank` is folded into `B`. */
function stackGraph({ parameters }: Layout, count: number): Graph {
  const graph = new Graph();
  const factors = Array.from({ length: count }, (_, member) => graph.input(`factor${member}`, []));
  for (const { name, shape } of parameters) {
    const entries = factors.map((factor, member) => {
      const matrix = graph.input(`${member}_${name}`, shape);
      return reshape(name.endsWith("_b") ? mul(matrix, factor) : matrix, [1, ...shape]);
    });
    graph.output(name, concat([expandTo(graph.scalar(0), [1, ...shape]), ...entries], 0, count + 1));
  }
  return graph;
}
