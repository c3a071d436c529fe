import { fc } from "@fast-check/vitest";
import { expect, test } from "vitest";
import type { ModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { loadRuntime } from "../../../../src/engine/onnx/runtime/program.ts";
import { KvCache } from "../../../../src/engine/onnx/sample/kv-cache.ts";
import { PromptCache } from "../../../../src/engine/onnx/sample/prompt-cache.ts";

const [kv, d] = [2, 8];
const config = { kvHeads: kv, headSize: d, layers: 2 } as ModelConfig;

/** A number for each element of the keys (`part` 0) or values (1) of a token. */
const element = (layer: number, part: number, slot: number, token: number, head: number, i: number) =>
  ((((layer * 2 + part) * 8 + slot) * 128 + token) * kv + head) * d + i;

test("rows keep their tokens while slots and capacity grow", async () => {
  const { Tensor } = await loadRuntime();
  const cache = new KvCache(config);
  const lengths = [0, 0, 0, 0, 0];
  const append = (rows: number) => {
    const results = Object.fromEntries(
      [0, 1].flatMap((layer) =>
        ["k", "v"].map((name, part) => {
          const data = new Float32Array(rows * kv * d);
          for (let slot = 0; slot < rows; slot++)
            for (let head = 0; head < kv; head++)
              for (let i = 0; i < d; i++) data[(slot * kv + head) * d + i] = element(layer, part, slot, lengths[slot]!, head, i);
          return [`${name}${layer}`, new Tensor("float32", data, [rows, kv, 1, d])];
        }),
      ),
    );
    cache.append(results, Int32Array.from(lengths), 0, rows);
    for (let slot = 0; slot < rows; slot++) lengths[slot]!++;
  };
  for (const [slots, tokens] of [
    [2, 60],
    [3, 5],
    [3, 70],
    [5, 3],
    [5, 64],
  ] as const) {
    for (let token = 0; token < tokens; token++) {
      cache.reserve(slots, Math.max(...lengths) + 1, lengths.filter((length) => length > 0).length);
      append(slots);
    }
    const feeds = cache.feeds(Tensor, 0, slots);
    const capacity = feeds["past_k0"]!.dims[2]!;
    const data = (name: string) => feeds[name]!.data as Float32Array;
    for (let slot = 0; slot < slots; slot++) {
      const mask = data("past_mask").subarray(slot * capacity, (slot + 1) * capacity);
      expect([...mask.subarray(0, lengths[slot])].every((each) => each === 0)).toBe(true);
      expect([...mask.subarray(lengths[slot])].every((each) => each < -1e8)).toBe(true);
      for (let token = 0; token < lengths[slot]!; token++)
        for (const layer of [0, 1])
          for (let head = 0; head < kv; head++)
            for (let i = 0; i < d; i++) {
              const row = slot * kv + head;
              expect(data(`past_k${layer}`)[(row * capacity + token) * d + i]).toBe(element(layer, 0, slot, token, head, i));
              expect(data(`past_v${layer}`)[(row * capacity + token) * d + i]).toBe(element(layer, 1, slot, token, head, i));
            }
    }
  }
  expect(cache.feeds(Tensor, 0, 5)["past_k0"]!.dims[2]).toBe(256);
});

test("a range of rows is appended to and read like the same rows of the whole cache", async () => {
  const { Tensor } = await loadRuntime();
  const results = (rows: number, value: number) =>
    Object.fromEntries(
      [0, 1].flatMap((layer) =>
        ["k", "v"].map((name) => [
          `${name}${layer}`,
          new Tensor(
            "float32",
            Float32Array.from({ length: rows * kv * d }, (_, i) => value + i / 1000),
            [rows, kv, 1, d],
          ),
        ]),
      ),
    );
  const [whole, parts] = [0, 1].map(() => {
    const cache = new KvCache({ ...config, window: { size: 3 } } as ModelConfig);
    cache.reserve(5, 8, 0);
    for (let token = 0; token < 4; token++) cache.append(results(5, token + 1), new Int32Array(5).fill(token), 0, 5);
    return cache;
  }) as [KvCache, KvCache];
  const positions = Int32Array.from([4, 4, 4]);
  parts.append(results(3, 9), positions, 2, 3);
  const untouched = whole.feeds(Tensor, 0, 2);
  for (const [name, { data }] of Object.entries(parts.feeds(Tensor, 0, 2))) expect(data, name).toEqual(untouched[name]!.data);
  const [range, all] = [parts.feeds(Tensor, 2, 3), parts.feeds(Tensor, 0, 5)];
  for (const [name, { data, dims }] of Object.entries(range)) {
    expect(dims[0]).toBe(3);
    expect([...(data as Float32Array)], name).toEqual([...(all[name]!.data as Float32Array)].slice((2 / 5) * all[name]!.data.length));
  }
  const capacity = range["past_v0"]!.dims[2]!;
  expect([...(range["past_v0"]!.data as Float32Array).subarray(4 * d, 5 * d)]).toEqual(
    [...Array(d).keys()].map((i) => Math.fround(9 + i / 1000)),
  );
  expect([...(range["window_mask"]!.data as Float32Array).subarray(0, capacity)].flatMap((each, at) => (each === 0 ? [at] : []))).toEqual([
    3, 4,
  ]);
});

/** A change of the cache: a prompt into a new or a used slot, a token for the first rows, one row over another, the end of the last rows. */
const change = fc.oneof(
  fc.record({
    kind: fc.constant("load" as const),
    slot: fc.nat(3),
    length: fc.integer({ min: 1, max: 150 }),
    longest: fc.integer({ min: 1, max: 600 }),
  }),
  fc.record({ kind: fc.constant("append" as const), rows: fc.integer({ min: 1, max: 4 }) }),
  fc.record({ kind: fc.constant("copy" as const), from: fc.nat(3), to: fc.nat(3) }),
  fc.record({ kind: fc.constant("end" as const), rows: fc.integer({ min: 1, max: 3 }) }),
);

test("positions without a token hold zeros after any sequence of loads, appends, copies and removals", async () => {
  const { Tensor } = await loadRuntime();
  const filled = (size: number) => new Float32Array(size).fill(NaN);
  fc.assert(
    fc.property(fc.array(change, { minLength: 4, maxLength: 30 }), (changes) => {
      const cache = new KvCache(config);
      const lengths: number[] = [];
      for (const each of changes) {
        if (each.kind === "load") {
          const slot = Math.min(each.slot, lengths.length);
          const size = kv * each.length * d;
          const layers = [0, 1].map(() => ({ keys: filled(size), values: filled(size) }));
          cache.reserve(Math.max(slot + 1, lengths.length), each.length + 1, lengths.length, each.longest);
          cache.load(slot, { capacity: each.length, layers } as unknown as PromptCache, 0, each.length);
          lengths[slot] = each.length;
        } else if (each.kind === "append") {
          const rows = Math.min(each.rows, lengths.length);
          if (rows === 0) continue;
          cache.reserve(lengths.length, Math.max(...lengths) + 1, lengths.length);
          const names = [0, 1].flatMap((layer) => [`k${layer}`, `v${layer}`]);
          const results = Object.fromEntries(names.map((name) => [name, new Tensor("float32", filled(rows * kv * d), [rows, kv, 1, d])]));
          cache.append(results, Int32Array.from(lengths), 0, rows);
          for (let slot = 0; slot < rows; slot++) lengths[slot]!++;
        } else if (each.kind === "end") {
          lengths.splice(Math.max(0, lengths.length - each.rows));
        } else if (each.from < lengths.length && each.to < lengths.length) {
          cache.copy(each.from, each.to);
          lengths[each.to] = lengths[each.from]!;
        }
      }
      if (lengths.length === 0) return;
      const feeds = cache.feeds(Tensor, 0, lengths.length);
      const capacity = feeds["past_k0"]!.dims[2]!;
      for (const name of ["past_k0", "past_v0", "past_k1", "past_v1"]) {
        (feeds[name]!.data as Float32Array).forEach((value, i) => {
          const slot = Math.floor(i / (kv * d * capacity));
          const token = Math.floor(i / d) % capacity;
          const expected = token < lengths[slot]! ? NaN : 0;
          if (!Object.is(value, expected)) throw new Error(`${name}, slot ${slot}, token ${token} of ${lengths[slot]}: ${value}`);
        });
      }
    }),
    { numRuns: 300, seed: 1 },
  );
});

test("keys of prompts stay in place while their memory grows up to the length of the prompt", async () => {
  const { Tensor } = await loadRuntime();
  const cache = new PromptCache(config, Tensor, 2, 80);
  const capacities: number[] = [];
  for (let end = 16; end <= 80; end += 16) {
    const feeds = cache.feeds(end - 16, end);
    // The graph writes the new tokens into the memory of its outputs, which is the memory of its inputs.
    for (const [layer, { keys, values }] of cache.layers.entries()) {
      expect(cache.fetches[`k${layer}`]!.data).toBe(feeds[`past_k${layer}`]!.data);
      for (let slot = 0; slot < 2; slot++)
        for (let head = 0; head < kv; head++)
          for (let token = end - 16; token < end; token++)
            for (let i = 0; i < d; i++)
              [keys, values].forEach(
                (all, part) => (all[((slot * kv + head) * cache.capacity + token) * d + i] = element(layer, part, slot, token, head, i)),
              );
    }
    capacities.push(cache.capacity);
  }
  expect(capacities).toEqual([16, 32, 64, 64, 80]);
  for (const [layer, { keys, values }] of cache.layers.entries()) {
    const expected = (part: number) =>
      [0, 1].flatMap((slot) =>
        [0, 1].flatMap((head) =>
          Array.from({ length: 80 }, (_, token) => Array.from({ length: d }, (_, i) => element(layer, part, slot, token, head, i))).flat(),
        ),
      );
    expect([...keys]).toEqual(expected(0));
    expect([...values]).toEqual(expected(1));
  }
});
