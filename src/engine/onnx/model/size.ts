import type { ModelConfig } from "./config.ts";
import { countParameters } from "./transformer.ts";

/** Parameters up to which a model is small. */
const MAX_SMALL = 16e6;

const known = new WeakMap<ModelConfig, boolean>();

/**
 * Whether a model is large: what it is computed with depends on it, and of what comes out the last bits at most.
 *
 * Of a small one there is a copy of the weights per thread: rows of a step are trained in two shares side by side, and requests are
 * sampled on several threads, because its products are too narrow for two threads inside one. A large one is on one sampler, with
 * several threads inside a product (`sample/threads.ts`), and its matrices are turned (`sample/turned.ts`).
 */
export function isLarge(config: ModelConfig): boolean {
  let large = known.get(config);
  if (large === undefined) known.set(config, (large = countParameters(config) > MAX_SMALL));
  return large;
}
