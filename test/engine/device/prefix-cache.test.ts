/** Prefix cache in the memory of the device `webgpu`, where an adapter is installed. */
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createOnnxEngine, type SampledToken } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { devicePrefixCacheBytes, type SamplerSettings } from "../../../src/engine/onnx/sample/options.ts";
import type { SamplingPlace } from "../../../src/engine/onnx/sample/place.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { params, startSampler } from "./sampling.ts";

const base = { id: "shipped", directory: join(import.meta.dirname, "../../../models/whetstone-tiny") };
const { layers, kvHeads, headSize } = await readModelConfig(base.directory);
/** Bytes of the keys and values of a token. */
const TOKEN_BYTES = 2 * layers * kvHeads * headSize * Float32Array.BYTES_PER_ELEMENT;

/** Returns a prompt. Prompts of one `family` are equal up to token `shared`; after it, they depend on `index`. */
const promptOf = (length: number, family = 0, index = 0, shared = Infinity) =>
  Int32Array.from({ length }, (_, t) => (family * 37 + t * 17 + ((3 * t) % 7) + (t >= shared ? index * 5 : 0)) % 500);

async function start(options: Partial<SamplerSettings> = {}) {
  const memory = new DeviceMemory(webgpu());
  const { place, weights } = onDevice(memory, new DeviceBases(memory, positionsNeeded));
  const runs: { readonly rows: number; readonly time: number }[] = [];
  const watched = Object.assign(Object.create(place) as SamplingPlace, {
    run(input: Parameters<SamplingPlace["run"]>[0]) {
      const rows = input.pasts.length;
      if (input.kind === "prompt" || input.kind === "continuation") runs.push({ rows, time: input.tokens.length / rows });
      return place.run(input);
    },
  });
  const { sampler, sample } = await startSampler({ place: watched, weights }, base, null, () => {}, options);
  /** Returns the number of prompt tokens computed since the last call, padding included. */
  const computed = () => runs.splice(0).reduce((sum, { rows, time }) => sum + rows * time, 0);
  return { memory, runs, sampler, sample, computed };
}

const cachedOf = ([first]: readonly SampledToken[]) => first!.cachedTokens;

function expectEqual(actual: readonly SampledToken[], expected: readonly SampledToken[]): void {
  expect(actual.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
  actual.forEach(({ logprob }, t) => expect(logprob).toBeCloseTo(expected[t]!.logprob, 4));
}

describe.skipIf(missingAdapter !== null)(
  `prefix cache on the device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test("a later request computes only the tokens after the shared prefix, with the results of a cold cache", async () => {
      const [warm, cold] = [await start(), await start({ prefixCacheBytes: 0 })];
      const turns = [
        { prompt: promptOf(52), cached: 0 },
        // The next turn of a conversation, in the tensors of the turn before; the last token of a prompt is always computed.
        { prompt: promptOf(83), cached: 48 },
        { prompt: promptOf(80), cached: 64 },
        { prompt: promptOf(83), cached: 80 },
        // A beginning of the tensors of a longer prompt.
        { prompt: promptOf(60, 0, 1, 40), cached: 32 },
        { prompt: promptOf(90, 0, 1, 40), cached: 48 },
        { prompt: promptOf(97), cached: 80 },
      ];
      for (const [seed, { prompt, cached }] of turns.entries()) {
        const actual = await warm.sample(prompt, params(seed));
        expect([cachedOf(actual), warm.computed()]).toEqual([cached, Math.ceil(prompt.length / 16) * 16 - cached]);
        const expected = await cold.sample(prompt, params(seed));
        expect([cachedOf(expected), cold.computed()]).toEqual([0, Math.ceil(prompt.length / 16) * 16]);
        expectEqual(actual, expected);
      }
    });

    test("choices share a prompt, and prompts that were computed together are continued one by one", async () => {
      const [warm, cold] = [await start(), await start({ prefixCacheBytes: 0 })];
      const requests = [1, 2].flatMap((family) => [1, 2, 3].map((seed) => ({ family, seed })));
      const sampled = await Promise.all(requests.map(({ family, seed }) => warm.sample(promptOf(16, family), params(seed))));
      expect(warm.runs).toEqual([{ rows: 2, time: 16 }]);
      expect(sampled.map(cachedOf)).toEqual(requests.map(() => 0));
      warm.computed();
      const continued = await Promise.all(requests.map(({ family, seed }) => warm.sample(promptOf(30, family), params(seed))));
      expect(warm.runs).toEqual([
        { rows: 1, time: 16 },
        { rows: 1, time: 16 },
      ]);
      expect(continued.map(cachedOf)).toEqual(requests.map(() => 16));
      for (const [i, { family, seed }] of requests.entries()) {
        expectEqual(sampled[i]!, await cold.sample(promptOf(16, family), params(seed)));
        expectEqual(continued[i]!, await cold.sample(promptOf(30, family), params(seed)));
      }
    });

    test("requests with another salt or other weights share no prefix", async () => {
      const { sampler, sample, computed } = await start();
      await sampler.loadPolicy("q", base, undefined);
      const prompt = promptOf(40);
      const salted = (cacheSalt: string) => params(1, { cacheSalt });
      for (const [options, policy] of [
        [params(1), "p"],
        [salted("a"), "p"],
        [salted("b"), "p"],
        [params(1), "q"],
      ] as const) {
        expect(cachedOf(await sample(prompt, options, policy))).toBe(0);
        expect(computed()).toBe(48);
      }
      expect(cachedOf(await sample(prompt, salted("a")))).toBe(32);
      expect(cachedOf(await sample(prompt, params(1), "q"))).toBe(32);
    });

    test("the cache holds the latest tensors of a conversation, and releases them with the policy", async () => {
      const { memory, sampler, sample } = await start();
      await sampler.loadPolicy("q", base, undefined);
      await sample(promptOf(40), params(1));
      const { bytes } = memory;
      await sample(promptOf(52), params(1));
      expect(memory.bytes).toBe(bytes + 16 * TOKEN_BYTES);
      await sample(promptOf(40), params(1), "q");
      expect(memory.bytes).toBe(bytes + 64 * TOKEN_BYTES);
      sampler.releasePolicy("p");
      expect(memory.bytes).toBe(bytes);
      sampler.releasePolicy("q");
      expect(memory.bytes).toBe(0);
    });

    test("the least recently used tensors are released above the limit, and too large ones are not kept", async () => {
      const { memory, sampler, sample } = await start({ prefixCacheBytes: 96 * TOKEN_BYTES });
      const cached = async (length: number, family: number) => cachedOf(await sample(promptOf(length, family), params(1)));
      await cached(40, 1);
      const { bytes } = memory;
      for (const family of [2, 3, 4]) {
        expect(await cached(40, family)).toBe(0);
        expect(memory.bytes).toBe(bytes + 48 * TOKEN_BYTES);
      }
      expect([await cached(40, 3), await cached(40, 4), await cached(40, 2)]).toEqual([32, 32, 0]);
      // 112 tokens, of which at most the pieces before the limit are kept.
      await cached(110, 5);
      expect(memory.bytes).toBe(bytes + (96 - 48) * TOKEN_BYTES);
      sampler.releasePolicy("p");
      expect(memory.bytes).toBe(0);
    });

    test("a canceled prompt leaves its first pieces in the cache, and no other memory", async () => {
      const { memory, runs, sampler, sample } = await start({ maxPrefillTokens: 16 });
      sampler.add(99, "p", promptOf(80), params(1));
      while (runs.length < 2) await new Promise(setImmediate);
      sampler.cancel(99);
      expect(cachedOf(await sample(promptOf(80), params(1)))).toBeGreaterThanOrEqual(16);
      sampler.releasePolicy("p");
      expect(memory.bytes).toBe(0);
    });

    test("the engine reports cached tokens, and none with `prefixCacheBytes: 0`", async () => {
      for (const [prefixCacheBytes, expected] of [
        [undefined, 32],
        [0, 0],
      ] as const) {
        const engine = await createOnnxEngine({ baseModels: { base: base.directory }, device: "webgpu", prefixCacheBytes });
        onTestFinished(() => engine.close());
        const policy = await engine.loadPolicy({ base: "base" });
        const counts: (number | undefined)[] = [];
        for (const seed of [1, 2])
          for await (const { cachedTokens } of engine.sample(policy, promptOf(40), params(seed, { maxTokens: 1 })))
            counts.push(cachedTokens);
        expect(counts).toEqual([0, expected]);
      }
    });
  },
);

test("on a device, the cache takes an eighth of the memory by default", () => {
  expect([devicePrefixCacheBytes(), devicePrefixCacheBytes(24e9)]).toEqual([1e9, 3e9]);
});
