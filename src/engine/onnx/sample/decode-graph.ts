/** The graph of decoding: one more token for every running row. */
import { add, concat, gatherRows, type Graph, matmul, softmax, split } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { type BatchDims, headsApart, type ModelInputs, type Mixer } from "../model/transformer.ts";
import { type Attending, cacheNames, samplerGraph } from "./sampler-graph.ts";
import { isWide, productOfGroups } from "./wide.ts";

/**
 * Builds the graph for one new token of each of `B` rows.
 *
 * The cache is read only: keys `[B, kv, d, C]` and values `[B, kv, C, d]` come in, only the new tokens' keys and values
 * `[B, kv, 1, d]` go out, and the host writes them where they belong. An output that held the whole cache would be copied
 * on its way out, at every token. Scores over the cache and of the new token meet in one softmax, so capacity that is masked
 * (`past_mask` `[B, 1, 1, C]`) contributes exact zeros.
 *
 * Of a large model everything but attention runs on `R` rows, the `B` filled up to whole groups.
 */
export function decodeGraph(config: ModelConfig, hasAdapters: boolean): Graph {
  const grouped = config.heads / config.kvHeads;
  const dims = { batch: "batch", time: 1, rows: "batch", grouped };
  if (!isWide(config)) return samplerGraph(config, hasAdapters, dims, undefined, (inputs) => ({ mixer: readingMixer(inputs) }));
  return samplerGraph(config, hasAdapters, { batch: "rows", time: 1, rows: "rows" }, productOfGroups, (inputs) => padded(inputs, dims));
}

/**
 * Attention and distributions of the first rows of whole groups, `real` `[B]`: those that only fill a group up have no cache. They
 * go on with what others found (`spread` `[R]`), which nobody looks at.
 */
function padded(inputs: ModelInputs, dims: BatchDims): Attending {
  const { graph, positions } = inputs;
  const real = graph.input("real", ["batch"], "int64");
  const spread = graph.input("spread", ["rows"], "int64");
  const attend = readingMixer({ ...inputs, dims, positions: gatherRows(positions, real) });
  return { mixer: (layer, projected) => gatherRows(attend(layer, gatherRows(projected, real)), spread), asked: real };
}

function readingMixer(inputs: ModelInputs): Mixer {
  const { graph, config } = inputs;
  const { kvHeads, headSize: d } = config;
  const pastMask = graph.input("past_mask", ["batch", 1, 1, "capacity"]);
  const scale = 1 / Math.sqrt(d);
  return headsApart(inputs, (layer, queries, keys, values) => {
    const names = cacheNames(layer);
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    const pastKeys = graph.input(names.pastKeys, ["batch", kvHeads, d, "capacity"]);
    const pastValues = graph.input(names.pastValues, ["batch", kvHeads, "capacity", d]);
    const past = add(matmul(queries, pastKeys, { scale }), pastMask);
    const now = matmul(queries, keys, { transposeB: true, scale });
    const [pastShare, share] = split(softmax(concat([past, now], 3, "width")), 3, ["capacity", 1]);
    return add(matmul(pastShare!, pastValues), matmul(share!, values));
  });
}
