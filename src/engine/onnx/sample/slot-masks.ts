/** Masks of a batch's cache: the positions of each slot that its row attends to. */
import { MASKED } from "../graph/index.ts";

/** Masks `[slots, C]`, 0 where the next token of a row attends to a position and {@link MASKED} elsewhere. */
export class SlotMasks {
  readonly #window: number;
  readonly #capacity: number;
  readonly #full: Float32Array;
  /** Empty without a window. */
  readonly #windowed: Float32Array;

  /**
   * @param window - Max tokens that a token attends to in layers with a sliding window, itself included; Infinity without such layers.
   * @param capacity - Positions of a slot, C.
   */
  constructor(window: number, slots = 0, capacity = 0) {
    this.#window = window;
    this.#capacity = capacity;
    this.#full = new Float32Array(slots * capacity).fill(MASKED);
    this.#windowed = this.hasWindow ? this.#full.slice() : new Float32Array(0);
  }

  /** Mask of the layers without a window, `rows` slots from slot `start` on: a view. */
  full(start: number, rows: number): Float32Array {
    return this.#full.subarray(start * this.#capacity, (start + rows) * this.#capacity);
  }

  /** Mask of the layers with a window, `rows` slots from slot `start` on: a view. */
  windowed(start: number, rows: number): Float32Array {
    return this.#windowed.subarray(start * this.#capacity, (start + rows) * this.#capacity);
  }

  /** Returns masks of more slots or of a larger capacity, with the first `rows` slots. */
  resized(slots: number, capacity: number, rows: number): SlotMasks {
    const next = new SlotMasks(this.#window, slots, capacity);
    this.#masks.forEach((mask, i) => {
      for (let row = 0; row < rows; row++)
        next.#masks[i]!.set(mask.subarray(row * this.#capacity, (row + 1) * this.#capacity), row * capacity);
    });
    return next;
  }

  /** Sets the number of tokens of a slot. */
  load(slot: number, length: number): void {
    const [start, end] = [slot * this.#capacity, (slot + 1) * this.#capacity];
    for (const mask of this.#masks) mask.fill(0, start, start + length).fill(MASKED, start + length, end);
    if (this.hasWindow) this.#windowed.fill(MASKED, start, start + this.#firstAttended(length));
  }

  /** Adds the token at `position` of a slot, which is the token after the last one. */
  append(slot: number, position: number): void {
    const start = slot * this.#capacity;
    for (const mask of this.#masks) mask[start + position] = 0;
    const first = this.#firstAttended(position + 1);
    if (first > 0 && this.hasWindow) this.#windowed[start + first - 1] = MASKED;
  }

  /** Copies a slot over another. */
  copy(from: number, to: number): void {
    const size = this.#capacity;
    for (const mask of this.#masks) mask.copyWithin(to * size, from * size, (from + 1) * size);
  }

  /** Returns the number of tokens of the row that used a slot last. */
  lengthOf(slot: number): number {
    const length = this.#full.subarray(slot * this.#capacity, (slot + 1) * this.#capacity).indexOf(MASKED);
    return length < 0 ? this.#capacity : length;
  }

  /** Whether some layers have a sliding window. */
  get hasWindow(): boolean {
    return this.#window < Infinity;
  }

  get #masks(): readonly Float32Array[] {
    return this.hasWindow ? [this.#full, this.#windowed] : [this.#full];
  }

  /** Returns the first position that the token after `length` tokens attends to in layers with a window. */
  #firstAttended(length: number): number {
    return Math.max(0, Math.min(length, length - this.#window + 1));
  }
}
