/** Prefill graph: tokens of prompts, after tokens that are already in the cache. */
import type { Graph } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Product } from "../model/model-inputs.ts";
import { isLarge } from "../model/size.ts";
import { cachingAttention } from "./caching-attention.ts";
import { samplerGraph } from "./sampler-graph.ts";
import { productOfGroups, productOfMany } from "./transposed.ts";

/**
 * Builds the graph for `T` new tokens of each of `B` prompts, with the cache of {@link cachingAttention}; with several prompts none has a past.
 * For a large model, `T` must be a multiple of {@link GROUP_ROWS}.
 */
export function promptGraph(config: ModelConfig, hasAdapters: boolean): Graph {
  const dims = { batch: "batch", time: "time", rows: "rows", owners: "owners" };
  return samplerGraph(
    config,
    hasAdapters,
    dims,
    isLarge(config) ? { product: productOfPrompts, isGrouped: false } : null,
    cachingAttention,
  );
}

/** Product of the tokens of a piece, in groups; of the selected tokens, of which there are any number, at once. */
const productOfPrompts: Product = (x, weight) => (x.shape[0] === "rows" ? productOfGroups : productOfMany)(x, weight);
