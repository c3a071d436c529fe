/** Memory of a device (GPU): tensors with reference counts, and programs that fill and read them. */
import { EngineError } from "../../../base/errors.ts";
import { type DType, Graph, type Value } from "../graph/index.ts";
import type { StoredFormats } from "../graph/lower.ts";
import type { Device } from "./device.ts";
import { float16Tensor, loadRuntime, Program, type Tensor, type Tensors, withShape } from "./program.ts";
import { getOrInsert, messageOf } from "../../../base/util/values.ts";

/** Default of the memory of a device in bytes. WebGPU does not report the memory of an adapter. */
export const DEFAULT_DEVICE_MEMORY = 8e9;

/** Tensor in a device's memory, freed when its last holder has released it. */
export class DeviceTensor {
  readonly tensor: Tensor;
  readonly bytes: number;
  readonly #onFree: () => void;
  #holders = 1;

  constructor(tensor: Tensor, onFree: () => void) {
    this.tensor = tensor;
    this.bytes = (tensor.type === "float16" ? 2 : 4) * tensor.size;
    this.#onFree = onFree;
  }

  /** Adds a holder. */
  hold(): this {
    this.#holders++;
    return this;
  }

  /** Removes a holder. */
  release(): void {
    if (--this.#holders > 0) return;
    this.#onFree();
  }
}

/** Max bytes of a tensor that every WebGPU adapter can bind. The runtime does not report the limit of the adapter, which may be larger. */
export const MAX_BINDING_BYTES = 2 ** 27;

/** Allocations of a device: float32, and float16 for stored weights. */
export class DeviceMemory {
  readonly device: Device;
  /**
   * Max bytes of a piece of an embedding or an output head, counted as float32 even if the piece is stored as float16, because products
   * read a float32 copy.
   */
  readonly maxPieceBytes: number;
  readonly #programs = new Map<string, Promise<Program>>();
  #bytes = 0;

  /** @param maxPieceBytes - Max bytes of a piece of an embedding or an output head. @default 128 MiB */
  constructor(device: Device, maxPieceBytes = MAX_BINDING_BYTES) {
    this.device = device;
    this.maxPieceBytes = maxPieceBytes;
  }

  /** Bytes of all tensors that are held. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Takes ownership of a resident output of a program.
   *
   * @param shape - Shape of the tensor, with as many elements as the output. @default the shape of the output
   */
  adopt(output: Tensor, shape?: readonly number[]): DeviceTensor {
    const tensor = shape === undefined ? output : withShape(output, shape);
    const held = new DeviceTensor(tensor, () => {
      output.dispose();
      this.#bytes -= held.bytes;
    });
    this.#bytes += held.bytes;
    return held;
  }

  /** Copies data to the device: float32, or the bits of float16. @throws EngineError `E_ENGINE` if the device has no room for it. */
  async upload(data: Float32Array | Uint16Array, shape: readonly number[]): Promise<DeviceTensor> {
    const { Tensor } = await loadRuntime();
    const isHalf = data instanceof Uint16Array;
    const x = isHalf ? float16Tensor(Tensor, data, shape) : new Tensor("float32", data, shape);
    return this.#allocate(data.byteLength, isHalf ? "upload-float16" : "upload", shape.length, { x });
  }

  /** Copies a tensor to the process's memory, as float32. */
  async download({ tensor }: DeviceTensor): Promise<Float32Array> {
    const program = await this.#program(tensor.type === "float16" ? "download-float16" : "download", tensor.dims.length);
    return (await program.run({ x: tensor }, ["y"]))["y"]!.data as Float32Array;
  }

  /** Returns zeros, written on the device. @throws EngineError `E_ENGINE` if the device has no room for them. */
  async zeros(shape: readonly number[]): Promise<DeviceTensor> {
    const { Tensor } = await loadRuntime();
    const bytes = 4 * shape.reduce((a, b) => a * b, 1);
    return this.#allocate(bytes, "zeros", shape.length, {
      shape: new Tensor("int64", BigInt64Array.from(shape, BigInt), [shape.length]),
    });
  }

  async #allocate(bytes: number, kind: keyof typeof PROGRAMS, rank: number, feeds: Tensors): Promise<DeviceTensor> {
    const program = await this.#program(kind, rank);
    try {
      return this.adopt((await program.run(feeds, ["y"]))["y"]!);
    } catch (cause) {
      const megabytes = (count: number) => `${Math.ceil(count / 2 ** 20)} MiB`;
      throw new EngineError(
        `The device could not allocate ${megabytes(bytes)}; ${megabytes(this.#bytes)} are in use. ${messageOf(cause)}`,
        { cause },
      );
    }
  }

  #program(kind: keyof typeof PROGRAMS, rank: number): Promise<Program> {
    return getOrInsert(this.#programs, `${kind} ${rank}`, () => {
      const graph = new Graph();
      const { build, isResident, stored }: MemoryProgram = PROGRAMS[kind];
      const shape = Array.from({ length: rank }, (_, i) => `d${i}`);
      graph.output("y", build(graph, shape));
      return Program.compile(graph, kind, { threads: 1, device: this.device, resident: () => isResident, stored });
    });
  }
}

/** Returns the builder of a graph that copies its input `x`. */
const copy =
  (dtype: DType) =>
  (graph: Graph, shape: readonly string[]): Value =>
    graph.input("x", shape, dtype);

/** Builds zeros in the shape that is the input `shape`. */
const zeros = (graph: Graph, shape: readonly string[]): Value =>
  graph.recordOne({ op: "Expand", inputs: [graph.scalar(0), graph.input("shape", [shape.length], "int64")], output: { shape } });

/** Program that fills or reads memory. */
interface MemoryProgram {
  readonly build: (graph: Graph, shape: readonly string[]) => Value;
  /** Whether the output stays on the device. */
  readonly isResident: boolean;
  /** Inputs that are not float32 on the device. @default none */
  readonly stored?: StoredFormats;
}

/** Programs that fill or read memory, by name. */
const PROGRAMS = {
  upload: { build: copy("float32"), isResident: true },
  "upload-float16": { build: copy("float16"), isResident: true },
  download: { build: copy("float32"), isResident: false },
  "download-float16": { build: copy("float32"), isResident: false, stored: new Map([["x", "float16"]]) },
  zeros: { build: zeros, isResident: true },
} satisfies Record<string, MemoryProgram>;
