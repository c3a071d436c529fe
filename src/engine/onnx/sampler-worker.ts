/** Entry of the sampler's thread. */
import { parentPort, workerData } from "node:worker_threads";
import type { SamplingParams } from "../port.ts";
import type { Adapter } from "./model/parameters.ts";
import { Grammars, type GrammarText } from "./sample/grammar/grammars.ts";
import type { SampledEvent } from "./sample/request.ts";
import type { SamplerOptions } from "./sample/options.ts";
import { Sampler } from "./sample/sampler.ts";
import type { BaseSource } from "./train/trainer.ts";
import { describeError, serveCalls } from "./worker-rpc.ts";

/** What the sampler reports by itself. */
export type SamplerEvent =
  | { readonly tokens: readonly SampledEvent[] }
  | { readonly failed: readonly number[]; readonly error: { readonly name: string; readonly message: string } };

const port = parentPort!;
const post = (event: SamplerEvent) => port.postMessage({ event });

const sampler = new Sampler(
  workerData as SamplerOptions,
  (tokens) => post({ tokens }),
  (failed, error) => post({ failed, error: describeError(error) }),
);

const grammars = new Grammars();

/** What the text of a request must be, over the tokens of a model. */
type OutputForm = GrammarText & { readonly directory: string };

serveCalls(port, {
  addPolicy: ([id, base, trained]: readonly [string, BaseSource, { flat: Float32Array; lora: Adapter | null }]) =>
    sampler.addPolicy(id, base, trained),
  loadPolicy: ([id, base, state]: readonly [string, BaseSource, string | undefined]) => sampler.loadPolicy(id, base, state),
  releasePolicy: ([id]: readonly [string]) => sampler.releasePolicy(id),
  add: async ([id, policy, prompt, params, form]: readonly [number, string, Int32Array, SamplingParams, OutputForm | null]) => {
    const constraint = form === null ? null : await grammars.constraint(form.directory, form);
    sampler.add(id, policy, prompt, params, constraint);
  },
  cancel: ([id]: readonly [number]) => sampler.cancel(id),
});
