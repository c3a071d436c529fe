/** Graph of a model whose matrices are constants: one program computes prompts and decodes, so that it holds the matrices once. */
import { branch, type Graph, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import type { AttentionLayer, BatchDims, ModelInputs } from "../model/model-inputs.ts";
import { normName } from "../model/parameters.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import { MIN_ROWS } from "../runtime/thread-limits.ts";
import { attendAndExtend, type CachedResult } from "./caching-attention.ts";
import { attendToCache, cacheMasks, decodeDims, maskName } from "./decode-graph.ts";
import type { ForwardKind } from "./forward.ts";
import type { AdapterUse } from "./place.ts";
import { declareWeights } from "./prepared.ts";
import { cacheNames, GROUP_TOKENS, samplerGraph } from "./sampler-graph.ts";
import { getOrThrow, itemAt } from "../../../base/util/values.ts";

/** Batch dimensions of prompts. */
const PROMPT_DIMS: BatchDims = { batch: "batch", time: "time", rows: "rows" };

/**
 * Builds the graph for new tokens of each of `B` rows. All rows are prompts, or all are decoded; only attention differs between the two.
 * Prompts have the cache of {@link attendAndExtend}, running rows the cache of {@link attendToCache}; a run feeds {@link switchFeeds}, too.
 */
export function preparedGraph(config: ModelConfig, adapters: AdapterUse): Graph {
  const dims = { ...PROMPT_DIMS, owners: "owners", isSwitched: true };
  return samplerGraph(config, adapters, dims, (graph) => declareWeights(graph, config, true), attention);
}

/** Returns the attention layer that `is_decoding` and, for several prompts with cached tokens, `is_by_row` switch. */
function attention(inputs: ModelInputs): AttentionLayer {
  const { graph, config } = inputs;
  const { heads, kvHeads, headSize: d } = config;
  const isDecoding = graph.input("is_decoding", [1], "bool");
  const isByRow = graph.input("is_by_row", [1], "bool");
  const lastPositions = graph.input("last_places", ["batch"], "int32");
  const total = graph.input("total", [1], "int32");
  const masks = cacheMasks(graph, config);
  const cached = { shape: ["batch", kvHeads, "cached", d] };
  const outputs = [{ shape: ["rows", heads * d] }, cached, cached];
  return (layer, projected) => {
    const names = cacheNames(layer);
    const pastOf = (name: string) => graph.input(name, ["batch", kvHeads, "past", d]);
    const [pastKeys, pastValues] = [pastOf(names.pastKeys), pastOf(names.pastValues)];
    const decode = (body: Graph): Value[] => {
      const cache = {
        keys: body.capture(pastKeys, ["batch", kvHeads, "capacity", d]),
        values: body.capture(pastValues, ["batch", kvHeads, "capacity", d]),
        mask: body.capture(getOrThrow(masks, maskName(config, layer))),
      };
      const rows = body.capture(projected, ["batch", itemAt(projected.shape, 1)]);
      return resultsOf(attendToCache(inputsOf(body, inputs, layer, decodeDims(config)), layer, rows, cache));
    };
    const extend = (body: Graph): Value[] => {
      const inBody = inputsOf(body, inputs, layer, PROMPT_DIMS);
      const [rows, last, all] = [projected, lastPositions, total].map((value) => body.capture(value)) as [Value, Value, Value];
      const keys = body.capture(pastKeys, ["batch", kvHeads, "prompt_capacity", d]);
      const values = body.capture(pastValues, ["batch", kvHeads, "prompt_capacity", d]);
      const attend = (byRow: boolean) => (inner: Graph) => {
        const cache = {
          past: { keys: inner.capture(keys), values: inner.capture(values) },
          capacity: "prompt_capacity",
          lastPositions: inner.capture(last),
          total: inner.capture(all),
        };
        return resultsOf(
          attendAndExtend(inputsOf(inner, inBody, layer, PROMPT_DIMS), layer, inner.capture(rows), { cache, isByRow: byRow }),
        );
      };
      return branch(body.capture(isByRow), [attend(true), attend(false)], outputs);
    };
    const [mixed, keys, values] = branch(isDecoding, [decode, extend], outputs) as [Value, Value, Value];
    graph.directOutput(names.keys, keys);
    graph.directOutput(names.values, values);
    return mixed;
  };
}

/** Returns the results of a body. */
function resultsOf({ mixed, keys, values }: CachedResult): Value[] {
  return [mixed, keys, values];
}

/** Returns the inputs that a layer's attention reads as values of a body. */
function inputsOf(body: Graph, { weights, positions, rotary, ...inputs }: ModelInputs, layer: number, dims: BatchDims): ModelInputs {
  const norms = (["qnorm", "knorm"] as const).flatMap((norm) => {
    const name = normName(layer, norm);
    const gain = inputs.config.queryKeyNorm === "head" ? weights.get(name) : undefined;
    return gain === undefined ? [] : [[name, body.capture(gain)] as const];
  });
  return {
    ...inputs,
    graph: body,
    dims,
    weights: new Map(norms),
    positions: body.capture(positions, [dims.batch, dims.time]),
    rotary: new Map(Array.from(rotary, ([set, { cos, sin }]) => [set, { cos: body.capture(cos), sin: body.capture(sin) }])),
  };
}

/**
 * Returns the inputs of the graph that a kind of run does not have otherwise: the switches, the groups of tokens, and empty inputs of the
 * attention that does not run.
 *
 * @param time - New tokens of each row.
 */
export function switchFeeds(
  TensorClass: TensorConstructor,
  kind: ForwardKind,
  { rows, time }: { readonly rows: number; readonly time: number },
): Tensors {
  const flag = (isOn: boolean) => new TensorClass("bool", Uint8Array.of(Number(isOn)), [1]);
  const isDecoding = kind === "decode";
  // The single token of a running row is computed twice.
  const [padded, perGroup] = isDecoding ? [MIN_ROWS, MIN_ROWS] : [time, GROUP_TOKENS];
  const mask = () => new TensorClass("float32", new Float32Array(rows), [rows, 1, 1, 1]);
  return {
    is_decoding: flag(isDecoding),
    is_by_row: flag(kind === "continuation"),
    padded_tokens: new TensorClass("float32", new Float32Array(padded), [padded]),
    token_groups: new TensorClass("float32", new Float32Array(padded), [padded / perGroup, perGroup]),
    ...(isDecoding
      ? { last_places: new TensorClass("int32", new Int32Array(rows), [rows]), total: new TensorClass("int32", new Int32Array(1), [1]) }
      : { past_mask: mask(), window_mask: mask() }),
  };
}
