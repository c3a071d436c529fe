/** Tokens drawn on the device `webgpu`, where an adapter is installed, next to tokens drawn by the process from whole distributions. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { SampledToken, SamplingParams } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { baseLayout } from "../../../src/engine/onnx/model/parameters.ts";
import { initialWeights } from "../../../src/engine/onnx/model/weights.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { DeviceVector } from "../../../src/engine/onnx/runtime/device-vector.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { onHost } from "../../../src/engine/onnx/sample/host-place.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { uniform } from "../../../src/base/util/rng.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { params, startSampler } from "./sampling.ts";

const base = { id: "shipped", directory: join(import.meta.dirname, "../../../models/whetstone-tiny") };
const config = await readModelConfig(base.directory);
const { vocabularySize: V } = config;

function setup() {
  const device = webgpu();
  const memory = new DeviceMemory(device);
  return { device, memory, place: onDevice(memory, new DeviceBases(memory, positionsNeeded)) };
}

const promptOf = (text: string) => Int32Array.from(Buffer.from(text));
const idsOf = (tokens: readonly SampledToken[]) => tokens.map(({ id }) => id);

/** Max difference between a random number and the border of a drawn token, as a fraction of the total weight. */
const TOLERANCE = 1e-5;

/** Checks a token against the distribution from which the processor drew its token. */
function checkDraw({ id, logprob }: SampledToken, { top }: SampledToken, { seed, temperature }: SamplingParams, index: number): void {
  expect(top).toHaveLength(V);
  const logprobs = top.toSorted((a, b) => a.id - b.id).map((entry) => entry.logprob);
  expect(Math.abs(logprob - logprobs[id]!)).toBeLessThan(1e-4);
  if (temperature === 0) {
    expect(logprobs[id]).toBeGreaterThan(top[0]!.logprob - TOLERANCE);
    return;
  }
  let total = 0;
  const sums = logprobs.map((each) => (total += Math.exp((each - top[0]!.logprob) / temperature)));
  const u = uniform(seed, index);
  expect(u).toBeLessThan(sums[id]! / total + TOLERANCE);
  expect(u).toBeGreaterThan((sums[id - 1] ?? 0) / total - TOLERANCE);
}

describe.skipIf(missingAdapter !== null)(
  `draws on the device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test("give the tokens and log-probabilities of the processor, at several temperatures", async () => {
      const prompts = ["reverse: abcd", "copy: hello", "1 + 2 ="].map(promptOf);
      const requests = [0, 0.7, 1, 1.3, 0, 0.7, 1, 1.3].map((temperature, i) => ({
        prompt: prompts[i % prompts.length]!,
        options: params(i, { temperature, maxTokens: 6 }),
      }));
      const [there, here] = await Promise.all([startSampler(setup().place, base), startSampler(onHost(1), base)]);
      const drawn = await Promise.all(requests.map(({ prompt, options }) => there.sample(prompt, options)));
      const expected = await Promise.all(requests.map(({ prompt, options }) => here.sample(prompt, { ...options, topLogprobs: V })));
      let equal = 0;
      requests.forEach(({ options }, request) => {
        for (const [index, token] of drawn[request]!.entries()) {
          const reference = expected[request]![index]!;
          checkDraw(token, reference, options, index);
          // At a border between two tokens, rounding decides; the contexts differ from there on.
          if (token.id !== reference.id) break;
          expect(token.finish).toBe(reference.finish);
          equal++;
        }
      });
      expect(equal).toBeGreaterThan(0.9 * drawn.flat().length);
    });

    test("are the same in a batch with a request that needs whole distributions", async () => {
      const { place } = setup();
      const sampler = await startSampler(place, base);
      const prompt = promptOf("reverse: abcd");
      const plain = [params(1, { maxTokens: 5 }), params(2, { maxTokens: 5, temperature: 0.7 })];
      const others = [params(3, { topP: 0.9 }), params(3, { topLogprobs: 2, maxTokens: 3 }), params(4, { allowedTokenIds: [97, 98] })];
      const options = [...plain, ...others];
      const separate: SampledToken[][] = [];
      for (const each of options) separate.push(await sampler.sample(prompt, each));
      const together = await Promise.all(options.map((each) => sampler.sample(prompt, each)));
      together.forEach((tokens, i) => {
        expect(idsOf(tokens)).toEqual(idsOf(separate[i]!));
        tokens.forEach(({ logprob }, t) => expect(logprob).toBeCloseTo(separate[i]![t]!.logprob, 4));
      });
      expect(together[3]!.every(({ top }) => top.length === 2)).toBe(true);
    });

    test("download an id and a log-probability per row and step", async () => {
      const { device, place } = setup();
      const downloaded = new Set<number>();
      const sampler = await startSampler(place, base, null, () => downloaded.add(device.transferred.downloaded));
      const steps = async (options: readonly SamplingParams[]) => {
        downloaded.clear();
        await Promise.all(options.map((each) => sampler.sample(promptOf("reverse: abcd"), each)));
        // The first token comes from the distribution after the prompt; the first round also decodes the second.
        const totals = [...downloaded];
        return totals.slice(1).map((total, step) => total - totals[step]!);
      };
      const row = 2 * Float32Array.BYTES_PER_ELEMENT;
      const plain = [params(1), params(2, { temperature: 0 }), params(3, { temperature: 2 }), params(4, { topK: V })];
      expect(await steps(plain)).toEqual([4 * row, 4 * row]);
      // Distributions as log-probabilities and probabilities of every token.
      expect(await steps([...plain.slice(1), params(5, { topK: 5 })])).toEqual([4 * row * (V + 1), 4 * row * (V + 1)]);
    });

    test("fail with E_NON_FINITE if a drawn token has no finite log-probability", async () => {
      const { memory, place } = setup();
      const directory = await mkdtemp(join(tmpdir(), "whetstone-draws-"));
      onTestFinished(() => rm(directory, { recursive: true, force: true }));
      // With a head of its own, the model has finite logits until it reads a sampled token.
      const untied = { ...(JSON.parse(await readFile(join(base.directory, "config.json"), "utf8")) as object), tie_word_embeddings: false };
      await writeFile(join(directory, "config.json"), JSON.stringify(untied));
      const own = await readModelConfig(directory);
      const layout = baseLayout(own);
      const weights = initialWeights(own, layout, Math.sin);
      const { offset, size } = layout.parameters.find(({ name }) => name === "embedding")!;
      weights.fill(NaN, offset + 4 * own.hiddenSize, offset + size);
      const trained = { weights: await DeviceVector.upload(memory, layout.parameters, weights), lora: null };
      const events: SampledToken[] = [];
      const sampler = await startSampler(place, { id: "untied", directory }, trained, (token) => events.push(token));
      await expect(sampler.sample(Int32Array.of(1, 2, 3), params(1))).rejects.toMatchObject({
        code: "E_NON_FINITE",
        message: expect.stringContaining("position 4"),
      });
      expect(events).toEqual([expect.objectContaining({ logprob: expect.closeTo(Math.log(1 / V), 0) })]);
    });
  },
);
