/** A row's output depends on its own values alone, also where a neighbor's weights, adapter or cache are not finite. */
import { fc } from "@fast-check/vitest";
import { beforeAll, expect, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { readBaseWeights } from "../../../../src/engine/onnx/model/weights.ts";
import type { SampledToken } from "../../../../src/engine/port.ts";
import { base, Harness, numbers, params } from "./harness.ts";

const RANK = 2;
/** Policies with finite weights. All but "base" share a batch with the poisoned adapters. */
const HEALTHY = ["base", "adapter-1", "adapter-2"] as const;
const POISONED = ["poisoned-adapter", "poisoned-weights"] as const;
/** Values that no weight of a usable model has; the finite ones overflow within a layer. */
const POISON = [NaN, Infinity, -Infinity, 3e38, -1e30] as const;

interface Request {
  readonly policy: (typeof HEALTHY)[number] | (typeof POISONED)[number];
  readonly prompt: number;
  readonly maxTokens: number;
}

let weights: Float32Array;
let adapters: readonly Float32Array[];
beforeAll(async () => {
  const config = await readModelConfig(base.directory);
  weights = await readBaseWeights(base.directory, baseLayout(config));
  const { length } = adapterLayout(config, RANK);
  adapters = [1, 2, 3].map((seed) => Float32Array.from({ length }, (_, i) => 0.1 * Math.sin(seed * i)));
});

/** Every `stride`-th value replaced. */
function poison(flat: Float32Array, value: number, stride: number): Float32Array {
  const poisoned = flat.slice();
  for (let i = stride - 1; i < poisoned.length; i += stride) poisoned[i] = value;
  return poisoned;
}

async function start(value: number, stride: number): Promise<Harness> {
  const harness = new Harness();
  const { sampler } = harness;
  const lora = { rank: RANK, alpha: RANK };
  await sampler.loadPolicy("base", base, undefined);
  for (const at of [0, 1]) await sampler.addPolicy(`adapter-${at + 1}`, base, { flat: adapters[at]!, lora });
  await sampler.addPolicy("poisoned-adapter", base, { flat: poison(adapters[2]!, value, stride), lora });
  await sampler.addPolicy("poisoned-weights", base, { flat: poison(weights, value, stride), lora: null });
  return harness;
}

const promptOf = (length: number) => Int32Array.from({ length }, (_, t) => (length * 31 + t * 17) % 500);
const run = (harness: Harness, { policy, prompt, maxTokens }: Request) =>
  harness.run(promptOf(prompt), params(prompt, { maxTokens, temperature: prompt % 2 }), policy);

/** Each request by itself, in a sampler that computes nothing else. */
const alone = new Map<string, Promise<SampledToken[]>>();
function expected(request: Request): Promise<SampledToken[]> {
  const key = JSON.stringify(request);
  const known = alone.get(key) ?? start(0, 1).then((harness) => run(harness, request));
  alone.set(key, known);
  return known;
}

const request = fc.record<Request>({
  policy: fc.constantFrom(...HEALTHY, ...POISONED),
  prompt: fc.constantFrom(3, 17, 40, 63, 100),
  maxTokens: fc.constantFrom(2, 12),
});
/** Runs through all waves: without a row the batch of the adapters would be dropped with its cache. */
const KEEPER: Request = { policy: "adapter-1", prompt: 17, maxTokens: 80 };

test(
  "finite rows are bit-identical to sampling alone, during and after non-finite rows in the same batch",
  { timeout: 180_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...POISON),
        fc.constantFrom(1, 7, 1009),
        fc.array(fc.array(request, { minLength: 1, maxLength: 4 }), { minLength: 2, maxLength: 4 }),
        async (value, stride, waves) => {
          const harness = await start(value, stride);
          const keeper = run(harness, KEEPER);
          for (const wave of waves) {
            const results = await Promise.allSettled(wave.map((each) => run(harness, each)));
            for (const [at, each] of wave.entries()) {
              const result = results[at]!;
              if (POISONED.some((name) => name === each.policy)) {
                // Either the poison did not reach the logits, or the request fails: no token without a log-probability.
                if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "E_NON_FINITE" });
                else for (const { logprob } of result.value) expect(logprob).toSatisfy(Number.isFinite);
              } else if (result.status === "rejected") throw result.reason;
              else expect(numbers(result.value)).toEqual(numbers(await expected(each)));
            }
          }
          expect(numbers(await keeper)).toEqual(numbers(await expected(KEEPER)));
        },
      ),
      { numRuns: 6, seed: 3 },
    );
  },
);
