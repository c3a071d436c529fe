/** Flat vectors, such as weights or moments of the optimizer, in the memory of a device (GPU). */
import type { DeviceMemory, DeviceTensor } from "./device-memory.ts";
import { tableOf, type Tensors } from "./program.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/** Values of a part: float32, or the bits of float16. */
type Stored = Float32Array | Uint16Array;

/** Named tensor of a vector: its shape, and its elements `[offset, offset + size)` in the flat vector. */
export interface NamedPart {
  readonly name: string;
  readonly offset: number;
  readonly size: number;
  readonly shape: readonly number[];
}

/** Vector in a device's memory, one tensor per part. Several holders may share a tensor, which is never changed in place. */
export class DeviceVector {
  readonly #memory: DeviceMemory;
  readonly #parts: readonly NamedPart[];
  readonly #tensors: Map<string, DeviceTensor>;

  private constructor(memory: DeviceMemory, parts: readonly NamedPart[], tensors: Map<string, DeviceTensor>) {
    this.#memory = memory;
    this.#parts = parts;
    this.#tensors = tensors;
  }

  /** Copies a flat vector to the device, part by part. @throws EngineError `E_ENGINE` if the device has no room for it. */
  static upload(memory: DeviceMemory, parts: readonly NamedPart[], flat: Float32Array): Promise<DeviceVector> {
    return DeviceVector.load(memory, parts, ({ offset, size }) => flat.subarray(offset, offset + size));
  }

  /**
   * Copies parts to the device, each as soon as it is read.
   *
   * @param cut - Returns the parts of the vector that a part of `parts` consists of. @default the part itself
   * @throws EngineError `E_ENGINE` if the device has no room for them.
   */
  static async load<P extends NamedPart>(
    memory: DeviceMemory,
    parts: readonly P[],
    read: (part: P) => Stored | Promise<Stored>,
    cut: (part: P) => readonly NamedPart[] = (part) => [part],
  ): Promise<DeviceVector> {
    const vector = new DeviceVector(memory, parts.flatMap(cut), new Map());
    try {
      for (const part of parts) {
        const values = await read(part);
        for (const { name, offset, size, shape } of cut(part)) {
          const start = offset - part.offset;
          vector.set(name, await memory.upload(values.subarray(start, start + size), shape));
        }
      }
    } catch (error) {
      vector.release();
      throw error;
    }
    return vector;
  }

  /**
   * Returns zeros, written on the device. Parts of equal shape share one tensor.
   *
   * @throws EngineError `E_ENGINE` if the device has no room for them.
   */
  static async zeros(memory: DeviceMemory, parts: readonly NamedPart[]): Promise<DeviceVector> {
    const zeros = new DeviceVector(memory, parts, new Map());
    const byShape = new Map<string, DeviceTensor>();
    try {
      for (const { name, shape } of parts) {
        const key = shape.join();
        const known = byShape.get(key);
        const zero = known?.hold() ?? (await memory.zeros(shape));
        if (known === undefined) byShape.set(key, zero);
        zeros.set(name, zero);
      }
    } catch (error) {
      zeros.release();
      throw error;
    }
    return zeros;
  }

  /** Replaces all elements with zeros. @throws EngineError `E_ENGINE` if the device has no room for them. */
  async clear(): Promise<void> {
    this.become(await DeviceVector.zeros(this.#memory, this.#parts));
  }

  /** Replaces all elements with a flat vector. @throws EngineError `E_ENGINE` if the device has no room for it. */
  async write(flat: Float32Array): Promise<void> {
    this.become(await DeviceVector.upload(this.#memory, this.#parts, flat));
  }

  /** Returns another holder of the same tensors. */
  clone(): DeviceVector {
    return new DeviceVector(this.#memory, this.#parts, new Map([...this.#tensors].map(([name, tensor]) => [name, tensor.hold()])));
  }

  /** Returns the tensor of a part. */
  get(name: string): DeviceTensor {
    return getOrThrow(this.#tensors, name);
  }

  /** Replaces the tensor of a part and takes ownership of the new one. */
  set(name: string, tensor: DeviceTensor): void {
    this.#tensors.get(name)?.release();
    this.#tensors.set(name, tensor);
  }

  /** Replaces all parts with the parts of another vector and takes ownership of them. */
  become(other: DeviceVector): void {
    for (const [name, tensor] of other.#tensors) this.set(name, tensor);
  }

  /** Returns graph inputs. @param nameOf - Name of the input of a part. @default the name of the part */
  feeds(nameOf: (name: string) => string = (name) => name): Tensors {
    return tableOf(Array.from(this.#tensors, ([name, { tensor }]) => [nameOf(name), tensor]));
  }

  /** Copies the vector into the process's memory. @param length - Length of the flat vector, padding included. */
  async download(length: number): Promise<Float32Array> {
    const flat = new Float32Array(length);
    for (const { name, offset } of this.#parts) flat.set(await this.#memory.download(this.get(name)), offset);
    return flat;
  }

  /** Releases all tensors. */
  release(): void {
    for (const tensor of this.#tensors.values()) tensor.release();
    this.#tensors.clear();
  }
}
