/** Merges of a BPE model as a hash table from pairs of token ids, in shared memory. */
import { sharedInts, tableSize } from "./text-table.ts";

/** Number of integers of a slot: left id + 1 (0 = free slot), right id, rank, id of the merged token. */
const SLOT = 4;

/** Array of a {@link MergeTable}, on a `SharedArrayBuffer`: {@link SLOT} integers per slot; the number of slots is a power of two. */
export type MergeTableData = Int32Array;

/** Merges by the ids of their two tokens: an open-addressing hash table. */
export class MergeTable {
  readonly data: MergeTableData;
  readonly #mask: number;

  /** @param data - Array of another table, or the number of merges of a new one. */
  constructor(data: MergeTableData | number) {
    this.data = typeof data === "number" ? sharedInts(SLOT * tableSize(data)) : data;
    this.#mask = this.data.length / SLOT - 1;
  }

  /** Adds a merge; a pair that occurs again has its last rank. */
  set(left: number, right: number, rank: number, merged: number): void {
    const { data } = this;
    let at = this.#start(left, right);
    while (data[at] !== 0 && !(data[at] === left + 1 && data[at + 1] === right)) at = this.#next(at);
    data[at] = left + 1;
    data[at + 1] = right;
    data[at + 2] = rank;
    data[at + 3] = merged;
  }

  /** Returns the slot of a merge, as the index of its first integer; -1 if the pair does not merge. */
  find(left: number, right: number): number {
    const { data } = this;
    for (let at = this.#start(left, right); ; at = this.#next(at)) {
      const key = data[at]!;
      if (key === 0) return -1;
      if (key === left + 1 && data[at + 1] === right) return at;
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
  #start(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e37_79b1) ^ Math.imul(right, 0x85eb_ca6b);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b_3c6d);
    return ((hash ^ (hash >>> 13)) & this.#mask) * SLOT;
  }

  /** Returns the slot after a slot; the first one after the last one. */
  #next(at: number): number {
    return ((at / SLOT + 1) & this.#mask) * SLOT;
  }
}
