/**
 * Merging of the symbols (token ids) of a word. The pair with the lowest rank merges first; of several pairs with this rank, the leftmost.
 *
 * @source Hugging Face `tokenizers` 0.23, `models/bpe/word.rs`.
 */
import type { MergeTable } from "./merge-table.ts";

/** Max symbols of a word that is merged by scanning all pairs for each merge, in quadratic time; longer words use a heap. */
const SCANNED_SYMBOLS = 40;

/** Factor in the keys of the heap, rank × factor + position: greater than any position, as a text in memory is shorter. */
const KEY_FACTOR = 2 ** 28;

/**
 * Merges the symbols `symbols[0..count)` in place.
 *
 * @returns the number of remaining symbols, at the start of `symbols`.
 */
export function mergeWord(symbols: Int32Array, count: number, merges: MergeTable): number {
  if (count < 2) return count;
  return count <= SCANNED_SYMBOLS ? mergeShort(symbols, count, merges) : mergeLong(symbols, count, merges);
}

/** Rank of a pair that does not merge. */
const NO_RANK = 0x7fff_ffff;
// Slot in the merge table (-1 = none) and rank of the pair at each position, reused for every word. The pair at a position consists of
// the symbols there and at the next position.
const slots = new Int32Array(SCANNED_SYMBOLS);
const ranks = new Int32Array(SCANNED_SYMBOLS);

/** Merges by scanning the ranks of all pairs for each merge. */
function mergeShort(symbols: Int32Array, count: number, merges: MergeTable): number {
  const findPair = (at: number): void => {
    const slot = merges.find(symbols[at]!, symbols[at + 1]!);
    slots[at] = slot;
    ranks[at] = slot < 0 ? NO_RANK : merges.rank(slot);
  };
  let length = count;
  for (let at = 0; at + 1 < length; at++) findPair(at);
  for (;;) {
    let lowestRank = NO_RANK;
    let merging = -1;
    for (let at = 0; at + 1 < length; at++) {
      if (ranks[at]! < lowestRank) {
        lowestRank = ranks[at]!;
        merging = at;
      }
    }
    if (merging < 0) return length;
    symbols[merging] = merges.merged(slots[merging]!);
    symbols.copyWithin(merging + 1, merging + 2, length);
    slots.copyWithin(merging + 1, merging + 2, length - 1);
    ranks.copyWithin(merging + 1, merging + 2, length - 1);
    length--;
    // The merged symbol has new pairs with both neighbors.
    if (merging > 0) findPair(merging - 1);
    if (merging + 1 < length) findPair(merging);
  }
}

/** Merges by a heap of the pairs' ranks. */
function mergeLong(symbols: Int32Array, count: number, merges: MergeTable): number {
  // The remaining symbols are a linked list; -1 in `symbols` marks a symbol that was merged into its left neighbor.
  const next = new Int32Array(count);
  const previous = new Int32Array(count);
  const heap = new MinHeap(count);
  const push = (at: number): void => {
    const slot = merges.find(symbols[at]!, symbols[next[at]!]!);
    if (slot >= 0) heap.push(merges.rank(slot) * KEY_FACTOR + at);
  };
  for (let at = 0; at < count; at++) {
    next[at] = at + 1 < count ? at + 1 : -1;
    previous[at] = at - 1;
  }
  for (let at = 0; at + 1 < count; at++) push(at);
  for (let key = heap.pop(); key >= 0; key = heap.pop()) {
    // A key remains in the heap when its pair changes, so it counts only if the position still has a pair of the same rank.
    const left = key % KEY_FACTOR;
    const right = symbols[left]! < 0 ? -1 : next[left]!;
    if (right < 0) continue;
    const slot = merges.find(symbols[left]!, symbols[right]!);
    if (slot < 0 || merges.rank(slot) !== Math.floor(key / KEY_FACTOR)) continue;
    symbols[left] = merges.merged(slot);
    symbols[right] = -1;
    const afterPair = next[right]!;
    next[left] = afterPair;
    if (afterPair >= 0) {
      previous[afterPair] = left;
      push(left);
    }
    if (previous[left]! >= 0) push(previous[left]!);
  }
  let length = 0;
  for (let at = 0; at >= 0; at = next[at]!) symbols[length++] = symbols[at]!;
  return length;
}

/** Binary heap of non-negative numbers. */
class MinHeap {
  #keys: Float64Array;
  #size = 0;

  constructor(capacity: number) {
    this.#keys = new Float64Array(Math.max(capacity, 16));
  }

  push(key: number): void {
    if (this.#size === this.#keys.length) {
      const larger = new Float64Array(this.#size * 2);
      larger.set(this.#keys);
      this.#keys = larger;
    }
    const keys = this.#keys;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (keys[parent]! <= key) break;
      keys[at] = keys[parent]!;
      at = parent;
    }
    keys[at] = key;
  }

  /** Removes and returns the smallest number; -1 if the heap is empty. */
  pop(): number {
    if (this.#size === 0) return -1;
    const keys = this.#keys;
    const smallest = keys[0]!;
    this.#size--;
    const last = keys[this.#size]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#size) break;
      if (child + 1 < this.#size && keys[child + 1]! < keys[child]!) child++;
      if (keys[child]! >= last) break;
      keys[at] = keys[child]!;
      at = child;
    }
    keys[at] = last;
    return smallest;
  }
}
