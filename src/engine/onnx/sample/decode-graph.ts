/** Decode graph: one more token for every running row. */
import { add, concat, type Graph, matmul, softmax, split } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { perHeadAttention } from "../model/heads.ts";
import { isWindowed } from "../model/layer-windows.ts";
import type { AttentionLayer, ModelInputs } from "../model/model-inputs.ts";
import { cacheNames, samplerGraph } from "./sampler-graph.ts";
import { declareWeights } from "./prepared.ts";

/**
 * Builds the graph for one new token of each of `B` rows.
 *
 * The cache is read-only: keys `[B, kv, d, C]` and values `[B, kv, C, d]` are inputs, only the new tokens' keys and values `[B, kv, 1, d]`
 * are outputs, and the host writes them into the cache. An output with the whole cache would be copied at every token.
 *
 * Scores over the cache and the new token's score share one softmax, so masked capacity (`past_mask` `[B, 1, 1, C]`) contributes exact
 * zeros. Layers with a sliding window read `window_mask` instead, which also masks the tokens before the window.
 *
 * @param isPrepared - Whether the matrices are constants of the program. @default false
 */
export function decodeGraph(config: ModelConfig, hasAdapters: boolean, isPrepared = false): Graph {
  const grouped = config.heads / config.kvHeads;
  const dims = { batch: "batch", time: 1, rows: "batch", grouped, owners: "owners" };
  return samplerGraph(config, hasAdapters, dims, (graph) => declareWeights(graph, config, isPrepared), readOnlyCacheAttention);
}

/** Returns the attention layer over the cache and the new token. */
function readOnlyCacheAttention(inputs: ModelInputs): AttentionLayer {
  const { graph, config } = inputs;
  const { kvHeads, headSize: d } = config;
  const hasFull = Array.from({ length: config.layers }, (_, layer) => layer).some((layer) => !isWindowed(config, layer));
  const mask = (name: string) => graph.input(name, ["batch", 1, 1, "capacity"]);
  const fullMask = hasFull ? mask("past_mask") : null;
  const windowMask = config.window === null ? null : mask("window_mask");
  const scale = config.scales.attention;
  return perHeadAttention(inputs, (layer, queries, keys, values) => {
    const names = cacheNames(layer);
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    const pastKeys = graph.input(names.pastKeys, ["batch", kvHeads, d, "capacity"]);
    const pastValues = graph.input(names.pastValues, ["batch", kvHeads, "capacity", d]);
    const past = add(matmul(queries, pastKeys, { scale }), isWindowed(config, layer) ? windowMask! : fullMask!);
    const now = matmul(queries, keys, { transposeB: true, scale });
    const [pastWeights, ownWeight] = split(softmax(concat([past, now], 3, "width")), 3, ["capacity", 1]);
    return add(matmul(pastWeights, pastValues), matmul(ownWeight, values));
  });
}
