/** A sampler on the shipped model, its requests as promises. */
import { join } from "node:path";
import type { RequestGroup } from "../../../../src/base/util/request-group.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import type { HostTrained } from "../../../../src/engine/onnx/sample/host-weights.ts";
import type { SamplerSettings } from "../../../../src/engine/onnx/sample/options.ts";
import type { SamplerPlace } from "../../../../src/engine/onnx/sample/place.ts";
import type { SampledEvent } from "../../../../src/engine/onnx/sample/request.ts";
import { Sampler } from "../../../../src/engine/onnx/sample/sampler.ts";
import type { SampledToken, SamplingParams } from "../../../../src/engine/port.ts";

export const base = { id: "shipped", directory: join(import.meta.dirname, "../../../../models/whetstone-tiny") };

export const params = (seed: number, more: Partial<SamplingParams> = {}): SamplingParams => ({
  maxTokens: 12,
  temperature: 1,
  topP: 1,
  topK: 0,
  seed: BigInt(seed),
  stopTokenIds: [],
  topLogprobs: 2,
  ...more,
});

export class Harness {
  readonly sampler: Sampler<HostTrained>;
  readonly tokens = new Map<number, SampledToken[]>();
  #next = 0;
  #waiting = new Map<number, { resolve: (tokens: SampledToken[]) => void; reject: (error: unknown) => void }>();
  onToken: (event: SampledEvent) => void = () => {};

  constructor(options: Partial<SamplerSettings> = {}, place: SamplerPlace<HostTrained> = onHost(options.threads ?? 1)) {
    this.sampler = new Sampler(
      { threads: 1, ...options },
      (events) => events.forEach((event) => this.#take(event)),
      (requests, error) => requests.forEach((id) => this.#waiting.get(id)?.reject(error)),
      place,
    );
  }

  static async start(options: Partial<SamplerSettings> = {}, place?: SamplerPlace<HostTrained>): Promise<Harness> {
    const harness = new Harness(options, place);
    await harness.sampler.loadPolicy("p", base, undefined);
    return harness;
  }

  add(prompt: Int32Array, options: SamplingParams, policy = "p", group?: RequestGroup): { id: number; done: Promise<SampledToken[]> } {
    const id = this.#next++;
    this.tokens.set(id, []);
    const done = new Promise<SampledToken[]>((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.sampler.add(id, policy, prompt, options, null, group);
    return { id, done };
  }

  run(prompt: Int32Array, options: SamplingParams, policy = "p", group?: RequestGroup): Promise<SampledToken[]> {
    return this.add(prompt, options, policy, group).done;
  }

  #take(event: SampledEvent): void {
    const tokens = this.tokens.get(event.request)!;
    tokens.push(event.token);
    this.onToken(event);
    if (event.token.finish) this.#waiting.get(event.request)!.resolve(tokens);
  }
}

/** Numbers that a caller receives. */
export const numbers = (tokens: readonly SampledToken[]) => tokens.map(({ id, logprob, top }) => ({ id, logprob, top }));
