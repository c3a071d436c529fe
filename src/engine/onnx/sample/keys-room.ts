/** Room in the memory of a device (GPU) for the keys and values of running requests. */
import { DEFAULT_DEVICE_MEMORY, type DeviceMemory } from "../runtime/device-memory.ts";

/** Other user of the memory, with precedence over keys and values: the trainer. */
export interface MemoryUser {
  /** Bytes that the user is about to allocate. */
  readonly pendingBytes: number;
  /** Frees the memory that the user does not need now. */
  freeBuffers(): void;
}

/** Share of the memory for intermediate values of runs. */
const RESERVE = 1 / 8;
/** Min share of the memory for keys and values, even if the other user takes the rest, so that requests do not wait until it ends. */
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
   * Returns the bytes that a batch may take: seven eighths of the memory less everything else in it, but at least an eighth. If the batch
   * needs more, the other user frees its unused memory first.
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
