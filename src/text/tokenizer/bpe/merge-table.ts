/** Merges of a BPE model as a hash table from pairs of token ids, in shared memory. */
import { sharedInts, tableSize } from "./text-table.ts";

/** Number of integers of a slot, in this order: left id + 1 (0 = free slot), right id, rank, id of the merged token. */
const SLOT = 4;

/** Array of a {@link MergeTable}, on a `SharedArrayBuffer`: {@link SLOT} integers per slot; the number of slots is a power of two. */
export type MergeTableData = Int32Array;

/** Merges by the ids of their two tokens: an open-addressing hash table. */
export class MergeTable {
  readonly data: MergeTableData;
  /** Number of slots minus 1. */
  readonly #mask: number;

  /** @param data - Array of another table, or the number of merges of a new one. */
  constructor(data: MergeTableData | number) {
    this.data = typeof data === "number" ? sharedInts(SLOT * tableSize(data)) : data;
    this.#mask = this.data.length / SLOT - 1;
  }

  /** Adds a merge; a pair that occurs again has its last rank. */
  set(left: number, right: number, rank: number, merged: number): void {
    const { data } = this;
    let slot = this.#firstSlot(left, right);
    while (data[slot] !== 0 && !(data[slot] === left + 1 && data[slot + 1] === right)) slot = this.#nextSlot(slot);
    data[slot] = left + 1;
    data[slot + 1] = right;
    data[slot + 2] = rank;
    data[slot + 3] = merged;
  }

  /** Returns the slot of a merge, as the index of its first integer; -1 if the pair does not merge. */
  find(left: number, right: number): number {
    const { data } = this;
    for (let slot = this.#firstSlot(left, right); ; slot = this.#nextSlot(slot)) {
      const key = data[slot]!;
      if (key === 0) return -1;
      if (key === left + 1 && data[slot + 1] === right) return slot;
    }
  }

  /** Returns the rank of the merge in a slot. Lower ranks merge first. */
  rank(slot: number): number {
    return this.data[slot + 2]!;
  }

  /** Returns the id of the token that the merge in a slot produces. */
  merged(slot: number): number {
    return this.data[slot + 3]!;
  }

  /** Returns the slot at which the search for a pair begins. */
  #firstSlot(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e37_79b1) ^ Math.imul(right, 0x85eb_ca6b);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b_3c6d);
    return ((hash ^ (hash >>> 13)) & this.#mask) * SLOT;
  }

  /** Returns the slot after a slot; the first one after the last one. */
  #nextSlot(slot: number): number {
    return ((slot / SLOT + 1) & this.#mask) * SLOT;
  }
}
