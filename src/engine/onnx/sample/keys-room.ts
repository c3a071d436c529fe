/** Room in a device's memory for the keys and values of running requests. */
import { DEFAULT_DEVICE_MEMORY, type DeviceMemory } from "../runtime/device-memory.ts";

/** Another user of the memory, which comes first. */
export interface MemoryUser {
  /** Bytes that it is about to allocate. */
  readonly pendingBytes: number;
  /** Frees the memory that it does not use now. */
  freeBuffers(): void;
}

/** Part of the memory for the other values of a run. */
const RESERVE = 1 / 8;
/** Part of the memory for keys and values, however much the other user takes, so that requests do not wait for its end. */
const MIN_SHARE = 1 / 8;

/** Decides how many bytes the keys and values of a batch may take. */
export class KeysRoom {
  readonly #memory: DeviceMemory;
  readonly #size: number;
  readonly #other: MemoryUser | null;

  /**
   * @param size - Size of the memory in bytes. @default 8 GB
   * @param other - Other user of the memory. @default none
   */
  constructor(memory: DeviceMemory, size = DEFAULT_DEVICE_MEMORY, other: MemoryUser | null = null) {
    this.#memory = memory;
    this.#size = size;
    this.#other = other;
  }

  /**
   * Returns the bytes that a batch may take: at least an eighth of the memory, else seven eighths less all other values. If that is too
   * little, first frees what the other user can spare.
   *
   * @param held - Bytes that the batch takes now.
   * @param wanted - Bytes that the batch needs.
   */
  bytesFor(held: number, wanted: number): number {
    if (this.#free(held) < wanted) this.#other?.freeBuffers();
    return Math.max(this.#free(held), MIN_SHARE * this.#size);
  }

  #free(held: number): number {
    return (1 - RESERVE) * this.#size - (this.#memory.bytes - held) - (this.#other?.pendingBytes ?? 0);
  }
}
