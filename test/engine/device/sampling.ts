/** Requests to a sampler as promises. */
import type { SampledToken, SamplingParams } from "../../../src/engine/index.ts";
import type { BaseSource } from "../../../src/engine/onnx/model/config.ts";
import type { Adapter } from "../../../src/engine/onnx/model/parameters.ts";
import type { SamplerSettings } from "../../../src/engine/onnx/sample/options.ts";
import type { SamplerPlace } from "../../../src/engine/onnx/sample/place.ts";
import { Sampler } from "../../../src/engine/onnx/sample/sampler.ts";
import { deferred } from "../../../src/base/util/deferred.ts";

/** Returns the parameters of a request for 4 tokens at temperature 1. */
export function params(seed: number, more: Partial<SamplingParams> = {}): SamplingParams {
  return { maxTokens: 4, temperature: 1, topP: 1, topK: 0, seed: BigInt(seed), stopTokenIds: [], topLogprobs: 0, ...more };
}

/** Starts a sampler with one policy; null = the base model unchanged. `onToken` is called for every token. */
export async function startSampler<T extends { readonly lora: Adapter | null }>(
  place: SamplerPlace<T>,
  base: BaseSource,
  trained: T | null = null,
  onToken: (token: SampledToken) => void = () => {},
  options: Partial<SamplerSettings> = {},
) {
  const running = new Map<number, { readonly tokens: SampledToken[]; readonly finished: ReturnType<typeof deferred<SampledToken[]>> }>();
  const sampler = new Sampler<T>(
    { threads: 1, ...options },
    (events) => {
      for (const { request, token } of events) {
        const { tokens, finished } = running.get(request)!;
        tokens.push(token);
        onToken(token);
        if (token.finish !== undefined) finished.resolve(tokens);
      }
    },
    (requests, error) => requests.forEach((request) => running.get(request)!.finished.reject(error)),
    place,
  );
  await sampler.addPolicy("p", base, trained);
  let next = 0;
  return {
    sampler,
    sample(prompt: Int32Array, sampling: SamplingParams, policy = "p"): Promise<SampledToken[]> {
      const finished = deferred<SampledToken[]>();
      running.set(next, { tokens: [], finished });
      sampler.add(next++, policy, prompt, sampling);
      return finished.promise;
    },
  };
}
