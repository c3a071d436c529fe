/** Methods of a thread or process that samples. */
import type { GrammarConstraint } from "../../../text/grammar/decode/constraint.ts";
import type { RequestGroup } from "../../../base/util/request-group.ts";
import { describeError, type SentError } from "../../../base/util/worker-rpc.ts";
import type { Adapter } from "../model/parameters.ts";
import { Grammars, type GrammarText } from "../sample/grammar-cache.ts";
import type { SentParams } from "../sample/logits/lists.ts";
import type { SamplerPlace } from "../sample/place.ts";
import { packEvents, type PackedEvents } from "../sample/packed-events.ts";
import type { SamplerSettings } from "../sample/options.ts";
import { Sampler } from "../sample/sampler.ts";

/** Event that a sampler posts: sampled tokens, or failed requests with their error. */
export type SamplerEvent = { readonly tokens: PackedEvents } | { readonly failed: readonly number[]; readonly error: SentError };

/** Grammar of a request's output, with the directory of the tokenizer. */
type OutputForm = GrammarText & { readonly directory: string };

/** Creates a sampler and returns its methods. */
export function samplerMethods<T extends { readonly lora: Adapter | null }>(
  options: SamplerSettings,
  where: SamplerPlace<T>,
  post: (event: SamplerEvent) => void,
) {
  const sampler = new Sampler(
    options,
    (tokens) => post({ tokens: packEvents(tokens) }),
    (failed, error) => post({ failed, error: describeError(error) }),
    where,
  );
  const grammars = new Grammars();

  /** Requests that wait for the compilation of their grammar. */
  const awaiting = new Set<number>();

  /** Calls `add` with the compiled grammar, unless the request is canceled before. */
  async function addConstrained(id: number, form: OutputForm, add: (constraint: GrammarConstraint) => void): Promise<void> {
    awaiting.add(id);
    try {
      const constraint = await grammars.constraint(form.directory, form);
      if (awaiting.has(id)) add(constraint);
    } catch (error) {
      post({ failed: [id], error: describeError(error) });
    } finally {
      awaiting.delete(id);
    }
  }

  /** Input of the method `add`. */
  type Added = readonly [
    id: number,
    policy: string,
    prompt: Int32Array,
    params: SentParams,
    form: OutputForm | null,
    group: RequestGroup | undefined,
  ];

  const methods = {
    addPolicy: (input: Parameters<Sampler<T>["addPolicy"]>) => sampler.addPolicy(...input),
    loadPolicy: (input: Parameters<Sampler<T>["loadPolicy"]>) => sampler.loadPolicy(...input),
    releasePolicy: ([id]: readonly [string]) => sampler.releasePolicy(id),
    add: ([id, policy, prompt, params, form, group]: Added) => {
      if (form === null) sampler.add(id, policy, prompt, params, null, group);
      // Not awaited, so that later calls do not wait for the compilation.
      else void addConstrained(id, form, (constraint) => sampler.add(id, policy, prompt, params, constraint, group));
    },
    cancel: ([id]: readonly [number]) => {
      if (!awaiting.delete(id)) sampler.cancel(id);
    },
    settle: () => sampler.settle(),
    freeIdle: () => sampler.freeIdle(),
  };
  return methods;
}
