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

/** Grammar of a request's output, with the directory of the tokenizer, from which the vocabulary is read. */
type OutputGrammar = GrammarText & { readonly directory: string };

/**
 * Creates a sampler and returns its methods.
 *
 * @param where - Memory and graphs of the sampler: of the process, or of a device.
 * @param post - Sends an event to the pool that owns the sampler.
 */
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
  const waitingRequests = new Set<number>();

  /** Calls `add` with the compiled grammar, unless the request is canceled before. */
  async function addConstrained(id: number, grammar: OutputGrammar, add: (constraint: GrammarConstraint) => void): Promise<void> {
    waitingRequests.add(id);
    try {
      const constraint = await grammars.constraint(grammar.directory, grammar);
      if (waitingRequests.has(id)) add(constraint);
    } catch (error) {
      post({ failed: [id], error: describeError(error) });
    } finally {
      waitingRequests.delete(id);
    }
  }

  /** Input of the method `add`. */
  type AddInput = readonly [
    id: number,
    policy: string,
    prompt: Int32Array,
    params: SentParams,
    grammar: OutputGrammar | null,
    group: RequestGroup | undefined,
  ];

  const methods = {
    addPolicy: (input: Parameters<Sampler<T>["addPolicy"]>) => sampler.addPolicy(...input),
    loadPolicy: (input: Parameters<Sampler<T>["loadPolicy"]>) => sampler.loadPolicy(...input),
    releasePolicy: ([id]: readonly [string]) => sampler.releasePolicy(id),
    add: ([id, policy, prompt, params, grammar, group]: AddInput) => {
      if (grammar === null) sampler.add(id, policy, prompt, params, null, group);
      // Not awaited, so that later calls do not wait for the compilation.
      else void addConstrained(id, grammar, (constraint) => sampler.add(id, policy, prompt, params, constraint, group));
    },
    cancel: ([id]: readonly [number]) => {
      const wasWaiting = waitingRequests.delete(id);
      if (!wasWaiting) sampler.cancel(id);
    },
    settle: () => sampler.settle(),
    freeIdle: () => sampler.freeIdle(),
  };
  return methods;
}
