/**
 * Token texts by id and ids by text, as flat arrays in shared memory: threads use one table together, and sending it to a thread copies
 * nothing.
 */

/** Arrays of a {@link TextTable}, all on `SharedArrayBuffer`s. */
export interface TextTableData {
  /** UTF-8 of all texts. */
  readonly pool: Uint8Array;
  /** Shape `[ids]`: start of each token's text in `pool`; equal to its end for an id without a token. */
  readonly starts: Uint32Array;
  /** Shape `[ids]`: end of each token's text in `pool`. */
  readonly ends: Uint32Array;
  /** Open-addressing hash table: id + 1, 0 for a free slot. A power of two in length. */
  readonly slots: Int32Array;
  /** Initial value of the hash function. Random per table, so that nobody can make a file of colliding texts. */
  readonly seed: number;
}

/** Multiplier of the hash function FNV-1a with 32 bits. */
const FNV_PRIME = 0x0100_0193;

/**
 * Continues a hash (FNV-1a) by the bytes `bytes[from..to)`: the hash of a text, continued by a second text, is the hash of both together.
 */
export function hashBytes(hash: number, bytes: Uint8Array, from: number, to: number): number {
  let state = hash;
  for (let at = from; at < to; at++) state = Math.imul(state ^ bytes[at]!, FNV_PRIME);
  return state;
}

/** Mixes the bits of a hash, so that its lowest bits can select a slot. */
export function slotOf(hash: number): number {
  let mixed = hash ^ (hash >>> 15);
  mixed = Math.imul(mixed, 0x2c1b_3c6d);
  return mixed ^ (mixed >>> 12);
}

/** Returns the number of slots of a hash table for `count` entries: a power of two, at least 16 and at least `2 * count`. */
export function tableSize(count: number): number {
  let size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

/** Allocates `length` integers of 32 bits in shared memory. */
export function sharedInts(length: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(length * 4));
}

/** Read access to {@link TextTableData}. */
export class TextTable {
  readonly data: TextTableData;
  /** 1 + the largest id. */
  readonly size: number;

  constructor(data: TextTableData) {
    this.data = data;
    this.size = data.starts.length;
  }

  /** Returns the UTF-8 of a token's text; empty for an id without a token. The bytes are a view of the table. */
  text(id: number): Uint8Array {
    const { pool, starts, ends } = this.data;
    return id < this.size ? pool.subarray(starts[id], ends[id]) : pool.subarray(0, 0);
  }

  /** Returns the id of the text `bytes[from..to)`, or -1 if no token has this text. */
  find(bytes: Uint8Array, from: number, to: number): number {
    return this.findHashed(hashBytes(this.data.seed, bytes, from, to), bytes, from, to);
  }

  /** Does the same as {@link find} with a known hash of the text. */
  findHashed(hash: number, bytes: Uint8Array, from: number, to: number): number {
    const { pool, starts, ends, slots } = this.data;
    const mask = slots.length - 1;
    const length = to - from;
    for (let slot = slotOf(hash) & mask; ; slot = (slot + 1) & mask) {
      const id = slots[slot]! - 1;
      if (id < 0) return -1;
      const start = starts[id]!;
      if (ends[id]! - start === length && isEqual(pool, start, bytes, from, length)) return id;
    }
  }

  /** Returns the id of a text, or -1 if no token has this text. */
  findText(text: string): number {
    const bytes = new TextEncoder().encode(text);
    return bytes.length === 0 ? -1 : this.find(bytes, 0, bytes.length);
  }
}

/** Whether `length` bytes of `a` from `aStart` on equal the bytes of `b` from `bStart` on. */
function isEqual(a: Uint8Array, aStart: number, b: Uint8Array, bStart: number, length: number): boolean {
  for (let at = 0; at < length; at++) if (a[aStart + at] !== b[bStart + at]) return false;
  return true;
}

/** Texts with their ids, in the order of the file. */
export interface TextEntries {
  /** UTF-8 of all texts, one after the other. */
  readonly pool: Uint8Array;
  /** Used bytes of `pool`. */
  readonly poolLength: number;
  /** Shape `[count]`: end of each text in `pool`. */
  readonly ends: Uint32Array;
  /** Shape `[count]`. */
  readonly ids: Int32Array;
  readonly count: number;
}

/** Builds a table in shared memory. A text that occurs again has its last id, as in a JSON object. */
export function buildTextTable({ pool, poolLength, ends, ids, count }: TextEntries): TextTable {
  let size = 0;
  for (let at = 0; at < count; at++) size = Math.max(size, ids[at]! + 1);
  const sharedPool = new Uint8Array(new SharedArrayBuffer(poolLength));
  sharedPool.set(pool.subarray(0, poolLength));
  const data = {
    pool: sharedPool,
    starts: new Uint32Array(new SharedArrayBuffer(size * 4)),
    ends: new Uint32Array(new SharedArrayBuffer(size * 4)),
    slots: sharedInts(tableSize(count)),
    seed: Math.trunc(Math.random() * 0xffff_ffff) | 0,
  };
  let start = 0;
  for (let at = 0; at < count; at++) {
    insert(data, ids[at]!, start, ends[at]!);
    start = ends[at]!;
  }
  return new TextTable(data);
}

/** Adds the text `pool[start..end)` to the arrays of a table. Replaces the id of an equal text. */
function insert({ pool, starts, ends, slots, seed }: TextTableData, id: number, start: number, end: number): void {
  starts[id] = start;
  ends[id] = end;
  const mask = slots.length - 1;
  let slot = slotOf(hashBytes(seed, pool, start, end)) & mask;
  while (slots[slot] !== 0) {
    const otherId = slots[slot]! - 1;
    const otherStart = starts[otherId]!;
    if (ends[otherId]! - otherStart === end - start && isEqual(pool, otherStart, pool, start, end - start)) break;
    slot = (slot + 1) & mask;
  }
  slots[slot] = id + 1;
}
