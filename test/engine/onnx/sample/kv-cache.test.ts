import { expect, test } from "vitest";
import type { ModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { loadRuntime } from "../../../../src/engine/onnx/runtime.ts";
import { KvCache } from "../../../../src/engine/onnx/sample/kv-cache.ts";

const [kv, d] = [2, 8];
const config = { kvHeads: kv, headSize: d, layers: 2 } as ModelConfig;

/** A number for each element of the keys (`part` 0) or values (1) of a token. */
const element = (layer: number, part: number, slot: number, token: number, head: number, i: number) =>
  ((((layer * 2 + part) * 8 + slot) * 128 + token) * kv + head) * d + i;

test("rows keep their tokens while slots and capacity grow, in place and in new memory", async () => {
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
    cache.append(results, Int32Array.from(lengths), rows);
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
      cache.reserve(slots, Math.max(...lengths) + 1);
      append(slots);
    }
    const feeds = cache.feeds(Tensor, slots);
    const capacity = feeds["past_k0"]!.dims[3]!;
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
              expect(data(`past_k${layer}`)[(row * d + i) * capacity + token]).toBe(element(layer, 0, slot, token, head, i));
              expect(data(`past_v${layer}`)[(row * capacity + token) * d + i]).toBe(element(layer, 1, slot, token, head, i));
            }
    }
  }
  expect(cache.feeds(Tensor, 5)["past_k0"]!.dims[3]).toBe(256);
});
