/** Buffers in the memory of a device (GPU) that one run after another writes its outputs to, instead of allocating them anew. */
import { type DeviceMemory, DeviceTensor } from "./device-memory.ts";
import { withShape } from "./program.ts";
import { first } from "../../../base/util/values.ts";

/** Shapes of tensors, by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** Tensors in buffers of a pool, by name. Releasing a tensor returns its buffer. */
export type PooledTensors = Map<string, DeviceTensor>;

/** Requested tensor. */
interface Request {
  readonly name: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Sizes of buffers per power of two: a buffer is at most a sixteenth larger than requested, and serves slightly larger shapes. */
const SIZES_PER_OCTAVE = 16;

/** Pool of float32 buffers of many sizes. */
export class BufferPool {
  readonly #memory: DeviceMemory;
  readonly #maxBytes: number;
  /** Buffers that no tensor uses, from the smallest to the largest. */
  #free: DeviceTensor[] = [];
  #bytes = 0;

  /** @param maxBytes - Max bytes of the buffers that stay allocated. */
  constructor(memory: DeviceMemory, maxBytes: number) {
    this.#memory = memory;
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all buffers, used or not. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Acquires tensors. Each gets the smallest sufficient free buffer, the largest tensor first, or else a new buffer. Before the pool
   * exceeds its limit, it releases free buffers that are too small for the remaining tensors.
   *
   * @param isOptional - If true, omits the tensors that would need a new buffer beyond the limit. If false, allocates the buffer; beyond
   *   the limit, returned buffers are freed. @default false
   * @returns Tensors of undefined content.
   * @throws EngineError `E_ENGINE` if the device has no room for a new buffer.
   */
  async acquire(shapes: Shapes, isOptional = false): Promise<PooledTensors> {
    const requests = [...shapes]
      .map(([name, shape]): Request => ({ name, shape, bytes: 4 * shape.reduce((size, dim) => size * dim, 1) }))
      .toSorted((a, b) => b.bytes - a.bytes);
    const taken: PooledTensors = new Map();
    const missing = requests.filter(({ name, shape, bytes }) => {
      const index = this.#free.findIndex((buffer) => buffer.bytes >= bytes);
      if (index >= 0) taken.set(name, this.#lend(first(this.#free.splice(index, 1)), shape));
      return index < 0;
    });
    try {
      for (const { name, shape, bytes } of missing) {
        const size = roundedUp(bytes);
        if (this.#makeRoom(size) || !isOptional) taken.set(name, this.#lend(await this.#create(size), shape));
      }
    } catch (error) {
      releaseAll(taken);
      throw error;
    }
    return taken;
  }

  /** Releases all buffers, used ones when they are returned. */
  clear(): void {
    const free = this.#free;
    this.#free = [];
    for (const buffer of free) this.#release(buffer);
  }

  /** Returns a tensor in a buffer. */
  #lend(buffer: DeviceTensor, shape: readonly number[]): DeviceTensor {
    const free = this.#free;
    return new DeviceTensor(withShape(buffer.tensor, shape), () => {
      // `clear` replaces the list of free buffers.
      const isKept = free === this.#free && this.#bytes <= this.#maxBytes;
      if (!isKept) return this.#release(buffer);
      const index = free.findIndex(({ bytes }) => bytes >= buffer.bytes);
      free.splice(index < 0 ? free.length : index, 0, buffer);
    });
  }

  /** Releases free buffers until the limit permits `bytes` more; returns whether it does. */
  #makeRoom(bytes: number): boolean {
    while (this.#bytes + bytes > this.#maxBytes) {
      const smallest = this.#free.shift();
      if (smallest === undefined) return false;
      this.#release(smallest);
    }
    return true;
  }

  async #create(bytes: number): Promise<DeviceTensor> {
    this.#bytes += bytes;
    try {
      return await this.#memory.zeros([bytes / 4]);
    } catch (error) {
      this.#bytes -= bytes;
      throw error;
    }
  }

  #release(buffer: DeviceTensor): void {
    this.#bytes -= buffer.bytes;
    buffer.release();
  }
}

/** Releases tensors. */
export function releaseAll(tensors: PooledTensors): void {
  for (const tensor of tensors.values()) tensor.release();
}

/** Rounds bytes up to one of {@link SIZES_PER_OCTAVE} sizes per power of two, a multiple of 4. */
function roundedUp(bytes: number): number {
  const step = Math.max(2 ** Math.floor(Math.log2(bytes)) / SIZES_PER_OCTAVE, 4);
  return Math.ceil(bytes / step) * step;
}
