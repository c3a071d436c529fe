/** Wrapper of onnxruntime-node: loads it, compiles graphs and runs them. No other module imports onnxruntime-node. */
import type * as Ort from "onnxruntime-node";
import { EngineError, EngineMissingError } from "../../../base/errors.ts";
import { freeBuffers } from "../../../base/util/free-buffers.ts";
import { type Graph, writeOnnx } from "../graph/index.ts";
import { liveNodes } from "../graph/graph.ts";
import { PACKED_INPUT, packedNames, type StoredFormats } from "../graph/lower.ts";
import { requireShortCommandLine } from "./command-line.ts";
import { cpu, type Device } from "./device.ts";
import { createOptimized } from "./optimized-graphs.ts";
import { dropProfile, newProfile, readPlacement } from "./placement.ts";
import { messageOf } from "../../../base/util/values.ts";

export type Tensor = Ort.Tensor;
/** Input tensors or preallocated output tensors, by name. */
export type Tensors = Record<string, Tensor>;

/**
 * Returns an object with the given members; of equal names, the last is kept. It has no prototype, so it is a hash table: to an object
 * literal or `Object.fromEntries`, each member would add a hidden class, which takes milliseconds for hundreds of them.
 */
export function tableOf<T>(entries: Iterable<readonly [string, T]>): Record<string, T> {
  const table = Object.create(null) as Record<string, T>;
  for (const [name, value] of entries) table[name] = value;
  return table;
}

/** Joins tables; of equal names, the last is kept. See {@link tableOf}. */
export function joinTables<T>(...tables: readonly Readonly<Record<string, T>>[]): Record<string, T> {
  return Object.assign(tableOf<T>([]), ...tables) as Record<string, T>;
}

/** Constructor of tensors, which wrap an array without a copy. */
export type TensorConstructor = Awaited<ReturnType<typeof loadRuntime>>["Tensor"];

let loading: Promise<typeof Ort> | undefined;

/**
 * Loads onnxruntime-node, once per thread.
 *
 * @throws ConfigError `E_CONFIG` for a command line that ends the process, see {@link requireShortCommandLine}.
 * @throws EngineMissingError `E_ENGINE_MISSING` if the native binary is missing or does not load.
 */
export async function loadRuntime(): Promise<typeof Ort> {
  if (loading === undefined) requireShortCommandLine();
  loading ??= import("onnxruntime-node").catch((cause: unknown) => {
    loading = undefined;
    throw new EngineMissingError(
      "The embedded engine needs onnxruntime-node, which could not be loaded. Run: npm install --ignore-scripts onnxruntime-node@1.30.0",
      { cause },
    );
  });
  return loading;
}

/** Returns a tensor of another shape on the memory of a resident output, without a copy. It cannot be used after the output is disposed. */
export function withShape(tensor: Tensor, dims: readonly number[]): Tensor {
  const TensorClass = tensor.constructor as TensorConstructor;
  return TensorClass.fromGpuBuffer(tensor.gpuBuffer, { dataType: tensor.type as Ort.Tensor.GpuBufferDataTypes, dims });
}

/**
 * Creates a float16 tensor from its bits.
 *
 * Where JavaScript has Float16Array (Node 24), the constructor converts bits to one, whose bytes the native binding of ONNX Runtime 1.30
 * cannot read: it would report that there is no data. So the tensor gets the bits back.
 */
export function float16Tensor(TensorClass: TensorConstructor, bits: Uint16Array, dims: readonly number[]): Tensor {
  return Object.assign(new TensorClass("float16", bits, dims), { cpuData: bits });
}

/** Values of inputs that are constants of a program, by name. */
export type Constants = ReadonlyMap<string, Float32Array | Uint8Array>;

/** Settings of a compiled graph. */
export interface ProgramOptions {
  /** Threads per operator. */
  readonly threads: number;
  /**
   * Whether the runtime allocates one block for all intermediates of an input shape that it has seen before, in addition to the memory
   * of the first run with that shape. @default true
   */
  readonly memoryPattern?: boolean | undefined;
  /** Device that computes the graph. @default the processor */
  readonly device?: Device | undefined;
  /**
   * Outputs that stay in the device's memory; all others are returned in the process's memory. Without effect on the processor, whose
   * memory is the process's. @default none
   */
  readonly resident?: ((output: string) => boolean) | undefined;
  /**
   * Inputs that every run takes from the process's memory: float32, or integers below 2^24 for operators that accept int32. A device
   * receives them in one transfer. @default none
   */
  readonly hosted?: ((input: string) => boolean) | undefined;
  /** float32 inputs of the graph that runs feed in another form: see `LoweredInputs.stored` in graph/lower.ts. @default none */
  readonly stored?: StoredFormats | undefined;
  /**
   * Inputs of the graph with the same values in all runs, which become part of the compiled graph: the runtime rearranges the matrices of
   * products once, in a copy of its own. Runs do not feed them. @default none
   */
  readonly constants?: Constants | undefined;
}

/** Compiled graph. `run` blocks the calling thread during the computation, so it must be called in a worker. */
export class Program {
  /** Names of the inputs that a run must feed: inputs that no output depends on are not among them. */
  readonly inputNames: readonly string[];
  readonly #session: Ort.InferenceSession;
  /** Names of the inputs of the lowered graph, in which packed inputs are replaced. */
  readonly #sent: readonly string[];
  readonly #name: string;
  readonly #device: Device;
  /** Inputs that are sent to the device as one flat input. */
  readonly #packed: readonly string[];
  /** Whether some outputs stay in the memory of a device. */
  readonly #hasResident: boolean;
  /** Outputs of all runs of a program with resident outputs; null before the first. */
  #fetched: string | null = null;
  /** Path prefix of the profile of the first run; null if it has been read, or none is needed. */
  #profile: string | null;

  private constructor(
    session: Ort.InferenceSession,
    name: string,
    device: Device,
    packed: readonly string[],
    hasResident: boolean,
    profile: string | null,
  ) {
    this.#session = session;
    this.#sent = session.inputNames;
    const replacements = new Set(packed.flatMap((each) => Object.values(packedNames(each))).concat(PACKED_INPUT));
    this.inputNames = packed.length === 0 ? this.#sent : [...packed, ...this.#sent.filter((each) => !replacements.has(each))];
    this.#name = name;
    this.#device = device;
    this.#packed = packed;
    this.#hasResident = hasResident;
    this.#profile = profile;
  }

  /** Compiles a graph. @throws EngineError `E_ENGINE` if the runtime rejects the graph. */
  static async compile(graph: Graph, name: string, options: ProgramOptions): Promise<Program> {
    const { device = cpu, resident = () => false, hosted = () => false, constants = new Map() as Constants } = options;
    const ort = await loadRuntime();
    const packed = device.packsInputs ? packedInputs(graph, hosted) : [];
    const lowered = device.lower(graph, { packed, stored: options.stored });
    const outputs = [...graph.outputs.keys()].filter(resident);
    const profile = device.onPlacement === null ? null : await newProfile();
    try {
      const { extra: { session: ofSession = {}, ...extra } = {}, ...ofDevice } = device.sessionOptions(
        outputs,
        (options.stored?.size ?? 0) > 0,
      );
      const bytes = writeOnnx(lowered, name, new Set(constants.keys()));
      const settings: Ort.InferenceSession.SessionOptions = {
        ...ofDevice,
        externalData: Array.from(constants, ([path, values]) => ({ path, data: bytesOf(values) })),
        ...(profile === null ? {} : { enableProfiling: true, profileFilePrefix: profile }),
        intraOpNumThreads: options.threads,
        interOpNumThreads: 1,
        executionMode: "sequential",
        graphOptimizationLevel: "all",
        // Without the arena, every intermediate is newly mapped memory, which takes a fifth of a step's processor time.
        enableCpuMemArena: true,
        enableMemPattern: options.memoryPattern ?? true,
        logSeverityLevel: 3,
        // A spinning thread would occupy a core that samplers, trainer and server share.
        extra: { ...extra, session: { ...(ofSession as object), intra_op: { allow_spinning: "0" } } },
      };
      const create = (graph: Uint8Array, all: Ort.InferenceSession.SessionOptions) => ort.InferenceSession.create(graph, all);
      // An optimized graph would include the external data.
      const isCached = device.name === "cpu" && constants.size === 0;
      const session = await (isCached ? createOptimized(create, bytes, settings) : create(bytes, settings));
      return new Program(session, name, device, packed, device.packsInputs && outputs.length > 0, profile);
    } catch (cause) {
      if (profile !== null) await dropProfile(profile);
      throw new EngineError(`The graph "${name}" did not compile: ${messageOf(cause)}`, { cause });
    }
  }

  /**
   * Runs the graph. Inputs are read in place, not copied.
   *
   * @param fetches - Names of outputs, or a map from output name to a preallocated tensor or null. A preallocated tensor is written in
   *   place; in a device's memory, only if the program has no resident outputs.
   * @returns Outputs by name, except preallocated ones.
   * @throws EngineError `E_ENGINE` if the run fails, or fetches other outputs than an earlier run of a program with resident outputs: the
   *   runtime would return outputs under wrong names.
   */
  async run(feeds: Tensors, fetches: readonly string[] | Readonly<Record<string, Tensor | null>>): Promise<Tensors> {
    if (this.#hasResident) this.#requireSameOutputs(Array.isArray(fetches) ? fetches : Object.keys(fetches));
    try {
      const sent = this.#packed.length === 0 ? feeds : pack(this.#packed, feeds, (await loadRuntime()).Tensor);
      const results = (await this.#session.run(sent, fetches as Ort.InferenceSession.FetchesType)) as Tensors;
      const inputs = this.#sent.map((name) => sent[name]!);
      this.#device.count(inputs, Object.values(results));
      if (this.#profile !== null) await this.#reportPlacement(this.#profile);
      return Array.isArray(fetches) ? results : withoutCopies(results, fetches as Readonly<Record<string, Tensor | null>>);
    } catch (cause) {
      const message = messageOf(cause).trim();
      throw new EngineError(`The engine failed to run a graph: ${message}${this.#device.remedyOf(message)}`, { cause });
    }
  }

  #requireSameOutputs(names: readonly string[]): void {
    const fetched = names.join();
    this.#fetched ??= fetched;
    if (fetched !== this.#fetched)
      throw new EngineError(`Expected every run of the graph "${this.#name}" to fetch ${this.#fetched}, got ${fetched}`);
  }

  /** Reports where the nodes of the first run were computed. */
  async #reportPlacement(profile: string): Promise<void> {
    this.#profile = null;
    this.#session.endProfiling();
    this.#device.onPlacement!({ program: this.#name, ...(await readPlacement(profile)) });
  }

  /** Frees the compiled graph and its memory. */
  async release(): Promise<void> {
    await this.#session.release();
    if (this.#profile !== null) await dropProfile(this.#profile);
    this.#profile = null;
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array | Uint8Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Returns the inputs that are packed into one: none if there is only one. */
function packedInputs(graph: Graph, hosted: (input: string) => boolean): string[] {
  const used = new Set(liveNodes(graph).flatMap((node) => node.inputs));
  const names = graph.inputs.filter((input) => used.has(input) && hosted(input.name)).map(({ name }) => name);
  return names.length === 1 ? [] : names;
}

/** Joins inputs into the flat input of a lowered graph, and adds their positions in it and their shapes. */
function pack(names: readonly string[], feeds: Tensors, TensorClass: TensorConstructor): Tensors {
  const sent: Tensors = joinTables(feeds);
  const integers = (...values: readonly number[]) => new TensorClass("int64", BigInt64Array.from(values, BigInt), [values.length]);
  const flat = new Float32Array(names.reduce((size, name) => size + feeds[name]!.size, 0));
  let offset = 0;
  for (const name of names) {
    const { data, dims, size } = feeds[name]!;
    const { start, end, shape } = packedNames(name);
    flat.set(data instanceof BigInt64Array ? Array.from(data, Number) : (data as Float32Array | Int32Array), offset);
    sent[start] = integers(offset);
    sent[end] = integers(offset + size);
    sent[shape] = integers(...dims);
    delete sent[name];
    offset += size;
  }
  sent[PACKED_INPUT] = new TensorClass("float32", flat, [flat.length]);
  return sent;
}

/**
 * Min bytes of copies that are freed at once. Of a small model, the copies of some runs are affordable, and freed memory must be mapped
 * anew.
 */
const MIN_FREED_BYTES = 2 ** 23;

/**
 * Removes the copies of preallocated outputs in the process's memory, which the binding makes after every run, and frees large ones. Left
 * to the garbage collector, the copies of several runs are in memory at once: gigabytes, where every parameter of a large model is trained.
 */
function withoutCopies(results: Tensors, fetches: Readonly<Record<string, Tensor | null>>): Tensors {
  const kept: Tensors = {};
  const copies: Tensor[] = [];
  for (const [name, tensor] of Object.entries(results)) {
    if (fetches[name] === null) kept[name] = tensor;
    else copies.push(tensor);
  }
  freeLarge(copies);
  return kept;
}

/**
 * Frees the memory of outputs that are no longer used, if they are in the process's memory and large together. Small ones are left to the
 * garbage collector.
 */
export function freeLarge(tensors: readonly Tensor[]): void {
  const buffers = tensors.filter(({ location }) => location === "cpu").map(({ data }) => (data as Float32Array).buffer as ArrayBuffer);
  if (buffers.reduce((sum, { byteLength }) => sum + byteLength, 0) >= MIN_FREED_BYTES) freeBuffers(buffers);
}
