import { describe, expect, test } from "vitest";
import { BLOCK_TOKENS, PrefixCache } from "../../../../src/engine/onnx/sample/prefix-cache.ts";

const BLOCK_BYTES = 40;
const policy = { name: "policy" };
const prompt = (length: number, first = 0) => Int32Array.from({ length }, (_, t) => (t === 0 ? first : t));
/** A block's data says where the block starts. */
const read = (start: number) => new Float32Array(BLOCK_BYTES / 4).fill(start);
const starts = (blocks: readonly Float32Array[]) => blocks.map((block) => block[0]);

describe("prefix cache", () => {
  test("finds whole blocks in order, and never the whole prompt", () => {
    const cache = new PrefixCache(1e6);
    cache.keep(policy, null, prompt(40), 40, read);
    expect(starts(cache.find(policy, null, prompt(40)))).toEqual([0, BLOCK_TOKENS]);
    expect(starts(cache.find(policy, null, prompt(2 * BLOCK_TOKENS)))).toEqual([0]);
    expect(starts(cache.find(policy, null, prompt(2 * BLOCK_TOKENS + 1)))).toEqual([0, BLOCK_TOKENS]);
    expect(cache.find(policy, null, prompt(40, 7))).toEqual([]);
  });

  test("stores computed blocks and reads no block twice", () => {
    const cache = new PrefixCache(1e6);
    const reads: number[] = [];
    const noted = (start: number) => {
      reads.push(start);
      return read(start);
    };
    cache.keep(policy, null, prompt(70), 32, noted);
    cache.keep(policy, null, prompt(70), 64, noted);
    cache.keep(policy, null, prompt(50), 64, noted);
    expect(reads).toEqual([0, 16, 32, 48]);
  });

  test("shares blocks only between equal salts and policies", () => {
    const cache = new PrefixCache(1e6);
    cache.keep(policy, "salt", prompt(40), 40, read);
    expect(cache.find(policy, "salt", prompt(40))).toHaveLength(2);
    expect(cache.find(policy, "other", prompt(40))).toEqual([]);
    expect(cache.find(policy, null, prompt(40))).toEqual([]);
    expect(cache.find({ name: "policy" }, "salt", prompt(40))).toEqual([]);
  });

  test("evicts the least recently used prompt first, its last blocks first", () => {
    const cache = new PrefixCache(4 * BLOCK_BYTES);
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
    const cache = new PrefixCache(2 * BLOCK_BYTES);
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
    const cache = new PrefixCache(1e6);
    cache.keep(policy, "a", prompt(40), 40, read);
    cache.keep(policy, "b", prompt(40), 40, read);
    cache.forget(policy);
    expect(cache.bytes).toBe(0);
    expect(cache.find(policy, "a", prompt(40))).toEqual([]);
    const none = new PrefixCache(0);
    none.keep(policy, null, prompt(40), 40, read);
    expect(none.find(policy, null, prompt(40))).toEqual([]);
  });
});
