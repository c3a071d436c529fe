/** Memory of a device: tensors with reference counts, and programs that fill and read them. */
import { EngineError } from "../../../errors.ts";
import { expandTo, Graph, type Value } from "../graph/index.ts";
import type { Device } from "./device.ts";
import { loadRuntime, Program, type Tensor } from "./program.ts";

/** Tensor in a device's memory, freed when its last holder has released it. */
export class DeviceTensor {
  readonly tensor: Tensor;
  readonly bytes: number;
  readonly #onFree: () => void;
  #holders = 1;

  constructor(tensor: Tensor, onFree: () => void) {
    this.tensor = tensor;
    this.bytes = 4 * tensor.size;
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
    this.tensor.dispose();
    this.#onFree();
  }
}

/** Allocations of a device, in float32. */
export class DeviceMemory {
  readonly device: Device;
  readonly #programs = new Map<string, Promise<Program>>();
  #bytes = 0;

  constructor(device: Device) {
    this.device = device;
  }

  /** Bytes of all tensors that are held. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Takes ownership of a resident output of a program. */
  adopt(tensor: Tensor): DeviceTensor {
    const held = new DeviceTensor(tensor, () => (this.#bytes -= held.bytes));
    this.#bytes += held.bytes;
    return held;
  }

  /** Copies data to the device. @throws EngineError `E_ENGINE` if the device has no room for it. */
  async upload(data: Float32Array, shape: readonly number[]): Promise<DeviceTensor> {
    const { Tensor } = await loadRuntime();
    return this.#allocate(data.byteLength, "upload", new Tensor("float32", data, shape));
  }

  /** Copies a tensor to the process's memory. */
  async download({ tensor }: DeviceTensor): Promise<Float32Array> {
    const program = await this.#program("download", tensor.dims.length);
    return (await program.run({ x: tensor }, ["y"]))["y"]!.data as Float32Array;
  }

  /** Returns zeros in the shape of a tensor. @throws EngineError `E_ENGINE` if the device has no room for them. */
  zerosLike({ tensor, bytes }: DeviceTensor): Promise<DeviceTensor> {
    return this.#allocate(bytes, "zeros", tensor);
  }

  async #allocate(bytes: number, kind: keyof typeof PROGRAMS, x: Tensor): Promise<DeviceTensor> {
    const program = await this.#program(kind, x.dims.length);
    try {
      return this.adopt((await program.run({ x }, ["y"]))["y"]!);
    } catch (cause) {
      const megabytes = (count: number) => `${Math.ceil(count / 2 ** 20)} MiB`;
      throw new EngineError(
        `The device could not allocate ${megabytes(bytes)}; ${megabytes(this.#bytes)} are in use. ${cause instanceof Error ? cause.message : String(cause)}`,
        { cause },
      );
    }
  }

  #program(kind: keyof typeof PROGRAMS, rank: number): Promise<Program> {
    const key = `${kind} ${rank}`;
    let program = this.#programs.get(key);
    if (program === undefined) {
      const graph = new Graph();
      const x = graph.input(
        "x",
        Array.from({ length: rank }, (_, i) => `d${i}`),
      );
      const { of, isResident } = PROGRAMS[kind];
      graph.output("y", of(x));
      program = Program.compile(graph, kind, { threads: 1, device: this.device, resident: () => isResident });
      this.#programs.set(key, program);
    }
    return program;
  }
}

/** Programs that fill or read memory. */
const PROGRAMS = {
  upload: { of: (x: Value) => x, isResident: true },
  download: { of: (x: Value) => x, isResident: false },
  zeros: { of: (x: Value) => expandTo(x.graph.scalar(0), x.shape), isResident: true },
};
