/** Prefill graph: tokens of prompts, after tokens that are already in the cache. */
import type { Graph } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { isLarge } from "../model/size.ts";
import { cachingAttention } from "./caching-attention.ts";
import { samplerGraph } from "./sampler-graph.ts";
import { productOfMany } from "./transposed.ts";

/**
 * Builds the graph for `T` new tokens of each of `B` prompts, with the cache of {@link cachingAttention}; with several prompts none has a past.
 */
export function promptGraph(config: ModelConfig, hasAdapters: boolean): Graph {
  const dims = { batch: "batch", time: "time", rows: "rows", owners: "owners" };
  return samplerGraph(config, hasAdapters, dims, isLarge(config) ? { product: productOfMany, isGrouped: false } : null, cachingAttention);
}
