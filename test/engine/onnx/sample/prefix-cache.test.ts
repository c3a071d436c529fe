import { describe, expect, test } from "vitest";
import { BLOCK_TOKENS, type KeysMemory, PrefixCache, type StoredBlock } from "../../../../src/engine/onnx/sample/prefix-cache.ts";

const BLOCK_BYTES = 40;
const policy = { name: "policy" };
const prompt = (length: number, first = 0) => Int32Array.from({ length }, (_, t) => (t === 0 ? first : t));

/** Memory that counts its holders. */
class CountedMemory implements KeysMemory {
  readonly bytes: number;
  holders = 0;

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  hold(): void {
    this.holders++;
  }

  release(): void {
    this.holders--;
  }
}

interface TestBlock extends StoredBlock {
  readonly start: number;
}

/** Returns the known block, or a block with memory of its own, as the processor does. */
const read = (start: number, known: TestBlock | null): TestBlock => known ?? { start, memory: new CountedMemory(BLOCK_BYTES) };
const starts = (blocks: readonly TestBlock[]) => blocks.map(({ start }) => start);
const newCache = (maxBytes: number) => new PrefixCache<TestBlock>(maxBytes);

describe("prefix cache", () => {
  test("finds whole blocks in order, and never the whole prompt", () => {
    const cache = newCache(1e6);
    cache.keep(policy, null, prompt(40), 40, read);
    expect(starts(cache.find(policy, null, prompt(40)))).toEqual([0, BLOCK_TOKENS]);
    expect(starts(cache.find(policy, null, prompt(2 * BLOCK_TOKENS)))).toEqual([0]);
    expect(starts(cache.find(policy, null, prompt(2 * BLOCK_TOKENS + 1)))).toEqual([0, BLOCK_TOKENS]);
    expect(cache.find(policy, null, prompt(40, 7))).toEqual([]);
  });

  test("stores computed blocks and reads no block twice", () => {
    const cache = newCache(1e6);
    const reads: number[] = [];
    const noted = (start: number, known: TestBlock | null) => {
      if (known === null) reads.push(start);
      return read(start, known);
    };
    cache.keep(policy, null, prompt(70), 32, noted);
    cache.keep(policy, null, prompt(70), 64, noted);
    cache.keep(policy, null, prompt(50), 64, noted);
    expect(reads).toEqual([0, 16, 32, 48]);
  });

  test("shares blocks only between equal salts and policies", () => {
    const cache = newCache(1e6);
    cache.keep(policy, "salt", prompt(40), 40, read);
    expect(cache.find(policy, "salt", prompt(40))).toHaveLength(2);
    expect(cache.find(policy, "other", prompt(40))).toEqual([]);
    expect(cache.find(policy, null, prompt(40))).toEqual([]);
    expect(cache.find({ name: "policy" }, "salt", prompt(40))).toEqual([]);
  });

  test("evicts the least recently used prompt first, its last blocks first", () => {
    const cache = newCache(4 * BLOCK_BYTES);
    cache.keep(policy, null, prompt(49, 1), 48, read);
    cache.keep(policy, null, prompt(17, 2), 16, read);
    expect(cache.bytes).toBe(4 * BLOCK_BYTES);
    cache.keep(policy, null, prompt(17, 3), 16, read);
    expect(cache.bytes).toBe(4 * BLOCK_BYTES);
    expect(cache.find(policy, null, prompt(49, 1))).toHaveLength(2);
    cache.keep(policy, null, prompt(17, 4), 16, read);
    // The prompt found last is younger than prompt 2, which goes.
    expect(cache.find(policy, null, prompt(17, 2))).toEqual([]);
    expect(cache.find(policy, null, prompt(49, 1))).toHaveLength(2);
  });

  test("removes the tree of a salt with its last block, and creates none for a prompt without a block", () => {
    const cache = newCache(2 * BLOCK_BYTES);
    for (let i = 0; i < 50; i++) {
      cache.keep(policy, `short ${i}`, prompt(BLOCK_TOKENS - 1), BLOCK_TOKENS - 1, read);
      cache.keep(policy, `salt ${i}`, prompt(20), 20, read);
      cache.keep({ name: "another" }, `salt ${i}`, prompt(20), 20, read);
    }
    expect(cache.trees).toBe(2);
    expect(cache.find(policy, "salt 49", prompt(20))).toHaveLength(1);
    cache.keep(policy, "salt 49", prompt(33), 32, read);
    expect(cache.trees).toBe(1);
    cache.forget(policy);
    expect([cache.trees, cache.bytes]).toEqual([0, 0]);
  });

  test("forgets all blocks of a policy, and stores nothing with size 0", () => {
    const cache = newCache(1e6);
    cache.keep(policy, "a", prompt(40), 40, read);
    cache.keep(policy, "b", prompt(40), 40, read);
    cache.forget(policy);
    expect(cache.bytes).toBe(0);
    expect(cache.find(policy, "a", prompt(40))).toEqual([]);
    const none = newCache(0);
    none.keep(policy, null, prompt(40), 40, read);
    expect(none.find(policy, null, prompt(40))).toEqual([]);
  });

  describe("with one memory for all blocks of a prompt, as on a device", () => {
    const inOne = (memory: KeysMemory) => (start: number) => ({ start, memory });

    test("counts the memory once and holds it until its last block is evicted", () => {
      const cache = newCache(100);
      const memory = new CountedMemory(60);
      cache.keep(policy, null, prompt(49, 1), 48, inOne(memory));
      expect([cache.bytes, memory.holders]).toEqual([60, 1]);
      const other = new CountedMemory(60);
      cache.keep(policy, null, prompt(49, 2), 48, inOne(other));
      expect([cache.bytes, memory.holders, other.holders]).toEqual([60, 0, 1]);
      expect(cache.find(policy, null, prompt(49, 1))).toEqual([]);
      expect(starts(cache.find(policy, null, prompt(49, 2)))).toEqual([0, 16, 32]);
      cache.forget(policy);
      expect([cache.bytes, cache.trees, other.holders]).toEqual([0, 0, 0]);
    });

    test("releases the memory of a prompt that a longer one begins with, unless another block is in it", () => {
      const cache = newCache(1000);
      const [short, long, other] = [60, 80, 70].map((bytes) => new CountedMemory(bytes)) as [CountedMemory, CountedMemory, CountedMemory];
      cache.keep(policy, null, prompt(32), 32, inOne(short));
      cache.keep(policy, null, prompt(64), 64, inOne(long));
      expect([cache.bytes, short.holders, long.holders]).toEqual([80, 0, 1]);
      const fork = prompt(48);
      fork[40] = 7;
      cache.keep(policy, null, fork, 48, inOne(other));
      expect([cache.bytes, long.holders, other.holders]).toEqual([150, 1, 1]);
      expect(cache.find(policy, null, prompt(49)).map(({ memory }) => memory)).toEqual([other, other, long]);
    });

    test("stores no block of a memory that exceeds the limit, and evicts none for it", () => {
      const cache = newCache(100);
      const [small, large] = [new CountedMemory(100), new CountedMemory(101)];
      cache.keep(policy, null, prompt(33, 1), 32, inOne(small));
      cache.keep(policy, null, prompt(49, 1), 48, inOne(large));
      cache.keep(policy, "salt", prompt(49, 2), 48, inOne(large));
      expect([cache.bytes, cache.trees, small.holders, large.holders]).toEqual([100, 1, 1, 0]);
      expect(cache.find(policy, null, prompt(49, 1))).toHaveLength(2);
    });
  });
});
