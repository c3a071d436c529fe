/** Distinction of small and large models, which are computed in different ways. */
import type { ModelConfig } from "./config.ts";
import { countParameters } from "./transformer.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** Maximum number of parameters of a small model. */
const MAX_SMALL = 16e6;

/** Results by configuration: counting parameters lays out every tensor. */
const results = new WeakMap<ModelConfig, boolean>();

/**
 * Whether a model has more than 16 M parameters. Large models use other kernels; results differ from the small path at most in the last
 * bits.
 *
 * The products of a small model are too narrow for two threads per operator. Instead, every thread has a copy of the weights: a training
 * step is split into data-parallel halves, and several threads sample. A large model is sampled on one sampler with several threads per
 * operator (`sample/thread-counts.ts`) and prepared matrices (`sample/prepared.ts`).
 */
export function isLarge(config: ModelConfig): boolean {
  return getOrInsert(results, config, () => countParameters(config) > MAX_SMALL);
}
