/** Policy that samples through the `chat.completions` resource, for checkpoints and for base models. */
import type { ModelPolicy } from "./model.ts";
import type { Service } from "./service.ts";

/**
 * Returns a model that the service samples as a policy.
 *
 * @param id - Value of a request's `model` field.
 * @param step - Step of the checkpoint; null for a base model.
 */
export function servedPolicy<Step extends number | null>(
  { chat: { completions } }: Pick<Service, "chat">,
  id: string,
  step: Step,
): Omit<ModelPolicy, "step"> & { readonly step: Step } {
  return {
    id,
    step,
    handsOver: true,
    complete: (request, { signal, onRateLimit } = {}) =>
      completions.create({ ...request, model: id, stream: false }, { signal, onRateLimit }),
  };
}
