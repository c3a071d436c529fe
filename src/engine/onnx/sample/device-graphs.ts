/** Prefill and decode graphs of a device with the cache in its memory: each run returns the whole cache with the new tokens in it. */
import { attention, concat, equal, type Graph, lessOrEqual, MASKED, reshape, type Value, where } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { type AttentionLayer, type BatchDims, type ModelInputs, perHeadAttention } from "../model/transformer.ts";
import { drawOutputs } from "./draw-graph.ts";
import type { ForwardKind } from "./forward.ts";
import { cacheNames, distributionOutputs, samplerGraph } from "./sampler-graph.ts";

/**
 * Builds a graph for `T` new tokens of each of `B` rows. Caches are `[B, kv, C, d]` for keys and values, inputs as `past_k0`, `past_v0`, …
 * and outputs as `k0`, `v0`, … `key_places` `[C]` counts the positions of the cache, `0, 1, …`.
 *
 * For prompts, all rows have the same tokens in the cache, and the output has room for just the tokens so far; `query_places` `[(h/kv)·T,
 * 1]` are the positions of the new tokens, once per query head of a key head. For decoding, `T` is 1, the output has the capacity of the
 * input, and `places` `[B, 1, 1, 1]` is the position of each row's new token. The graph `draw` returns drawn tokens, the graph `decode`
 * distributions, too: see {@link drawOutputs}.
 */
export function deviceGraph(kind: ForwardKind, config: ModelConfig, hasAdapters: boolean): Graph {
  const isDecoding = kind === "decode" || kind === "draw";
  const dims: BatchDims = isDecoding
    ? { batch: "batch", time: 1, rows: "batch", grouped: config.heads / config.kvHeads }
    : { batch: "batch", time: "time", rows: "rows", grouped: "grouped" };
  const attend = (inputs: ModelInputs) => (isDecoding ? decoding(inputs) : prefilling(inputs, kind));
  const graph = samplerGraph(config, hasAdapters, dims, null, attend, outputsOf(kind), !isDecoding);
  if (isDecoding) graph.smallDims.add("batch");
  return graph;
}

/** Returns the function that declares the outputs of a kind of graph: distributions, drawn tokens or both. */
function outputsOf(kind: ForwardKind): (logits: Value) => void {
  if (kind === "draw") return drawOutputs;
  if (kind !== "decode") return distributionOutputs;
  return (logits) => {
    distributionOutputs(logits);
    drawOutputs(logits);
  };
}

function prefilling(inputs: ModelInputs, kind: "prompt" | "continuation"): AttentionLayer {
  const { graph, config, dims } = inputs;
  const { kvHeads, headSize: d } = config;
  const total = "total";
  const mask = visible(graph.input("key_places", [total]), graph.input("query_places", [dims.grouped!, 1]));
  const wide = reshape(mask, [1, 1, dims.grouped!, total]);
  return perHeadAttention(inputs, (layer, queries, newKeys, newValues) => {
    const names = cacheNames(layer);
    const joined = (past: string, added: Value) =>
      kind === "prompt"
        ? reshape(added, [dims.batch, kvHeads, total, d])
        : concat([graph.input(past, [dims.batch, kvHeads, "past", d]), added], 2, total);
    const [keys, values] = [joined(names.pastKeys, newKeys), joined(names.pastValues, newValues)];
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    return attended(inputs, queries, keys, values, wide);
  });
}

function decoding(inputs: ModelInputs): AttentionLayer {
  const { graph, config, dims } = inputs;
  const { kvHeads, headSize: d } = config;
  const capacity = "capacity";
  const keyPlaces = graph.input("key_places", [capacity]);
  const places = graph.input("places", [dims.batch, 1, 1, 1]);
  const mask = visible(keyPlaces, places);
  const isNew = equal(reshape(keyPlaces, [capacity, 1]), places);
  return perHeadAttention(inputs, (layer, queries, newKeys, newValues) => {
    const names = cacheNames(layer);
    const placed = (past: string, added: Value) => where(isNew, added, graph.input(past, [dims.batch, kvHeads, capacity, d]));
    const [keys, values] = [placed(names.pastKeys, newKeys), placed(names.pastValues, newValues)];
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    return attended(inputs, queries, keys, values, mask);
  });
}

/** Returns the mask that lets a query attend to the keys up to its own place. */
function visible(keyPlaces: Value, queryPlaces: Value): Value {
  const { graph } = keyPlaces;
  return where(lessOrEqual(keyPlaces, queryPlaces), graph.scalar(0), graph.scalar(MASKED));
}

function attended({ config, dims }: ModelInputs, queries: Value, keys: Value, values: Value, mask: Value): Value {
  const { heads, kvHeads, headSize } = config;
  return attention(queries, keys, values, {
    group: heads / kvHeads,
    scale: 1 / Math.sqrt(headSize),
    masks: [mask],
    block: dims.time,
    time: dims.time,
    recompute: false,
  });
}
