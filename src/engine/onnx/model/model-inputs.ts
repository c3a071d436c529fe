/**
 * Inputs of model graphs: weights, rotary tables, and the products of linear layers. Shapes name the sizes `B` (sequences), `T` (tokens of
 * each), `R = B·T` (rows of a product), `h` (query heads), `kv` (key and value heads), `d` (size of a head) and `r` (its rotated elements).
 */
import { add, type Dim, type Graph, type Value } from "../graph/index.ts";
import type { ModelConfig } from "./config.ts";
import type { Layout, LinearSpec } from "./parameters.ts";
import { tableSets, type TableSet } from "./rope.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/** Batch dimensions: batch size `B`, sequence length `T`, and their product `R`. */
export interface BatchDims {
  readonly batch: Dim;
  readonly time: Dim;
  readonly rows: Dim;
  /** Dimension `(h / kv) · T`: a number, or a name that the attention mask binds. @default {@link GROUPED} */
  readonly grouped?: Dim | undefined;
}

/** Graph inputs and settings shared by all layers. */
export interface ModelInputs {
  readonly graph: Graph;
  readonly config: ModelConfig;
  readonly dims: BatchDims;
  /** Graph input of each parameter, or of each piece of a parameter that is cut, by name. */
  readonly weights: ReadonlyMap<string, Value>;
  /** Matrix of the output head, if tied embeddings have a graph input of their own for it. @default the embedding */
  readonly tiedHead?: Value | undefined;
  /** Linear layer without bias; set if linear layers have adapters. @default product with the layer's weight */
  readonly project?: Projection | undefined;
  /** Positions of the tokens, `[B, T]` int64. */
  readonly positions: Value;
  /** Rotary tables by set, each `[positions, r/2]`. */
  readonly rotary: RotaryInputs;
}

/** Function that applies a linear layer without its bias to rows `[R, in]` and returns `[R, out]`. */
export type Projection = (linear: LinearSpec, x: Value) => Value;

/** Name of the dimension `(h / kv) · T`; the attention mask binds it. */
export const GROUPED = "grouped";

/** Declares one graph input per parameter. */
export function weightInputs(graph: Graph, layout: Layout): Map<string, Value> {
  return new Map(layout.parameters.map((parameter) => [parameter.name, graph.input(parameter.name, parameter.shape)]));
}

/** Attention layer: maps the fused projection of queries, keys and values, `[R, (h + 2·kv)·d]`, to concatenated heads `[R, h·d]`. */
export type AttentionLayer = (layer: number, projected: Value) => Value;

/** Graph inputs of the rotary tables, by set. */
export type RotaryInputs = ReadonlyMap<TableSet, { readonly cos: Value; readonly sin: Value }>;

/** Declares the rotary tables of a model, each `[positions, r/2]`. @param positions - Name of the dimension. */
export function rotaryInputs(graph: Graph, config: ModelConfig, positions: string): RotaryInputs {
  const table = (name: string) => graph.input(name, [positions, config.rotarySize / 2]);
  return new Map(tableSets(config).map((set) => [set, { cos: table(`${set}cos`), sin: table(`${set}sin`) }]));
}

/** Returns the factors of a norm: its gain, or `1 + gain`. */
export function gainOf({ graph, config, weights }: Pick<ModelInputs, "graph" | "config" | "weights">, name: string): Value {
  const gain = getOrThrow(weights, name);
  return config.hasUnitOffset ? add(gain, graph.scalar(1)) : gain;
}
