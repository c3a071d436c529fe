/** Padded blocks of a batch in a gradient graph: their inputs, and attention over them. */
import {
  attention,
  type AttentionOptions,
  concat,
  type Dim,
  type Graph,
  lessOrEqual,
  MASKED,
  matmul,
  reshape,
  split,
  type Value,
  where,
} from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { type Heads, joinHeads, perHeadAttention, splitHeads } from "../model/heads.ts";
import { isWindowed } from "../model/layer-windows.ts";
import type { AttentionLayer, ModelInputs } from "../model/model-inputs.ts";
import type { GraphShape, QueryBlocks } from "./query-blocks.ts";
import { first, getOrThrow } from "../../../base/util/values.ts";

/** Model inputs that all rows of a graph share. */
export type SharedInputs = Omit<ModelInputs, "dims" | "positions">;

/** Name prefix of the inputs for the block of prompts. */
export const PROMPT = "prompt_";
/** Name prefix of the inputs for the block of packed rows. */
export const PACKED = "";

/** Reach of attention in a layer: all tokens before a token, or a sliding window. Each has its own masks. */
export type Reach = "full" | "window";

/** Returns the reach of a layer's attention. */
function reachOf(config: ModelConfig, layer: number): Reach {
  return isWindowed(config, layer) ? "window" : "full";
}

/** Returns the reaches that the layers of a model have. */
export function reachesOf(config: ModelConfig): readonly Reach[] {
  const windowed = config.window?.layers.length ?? 0;
  return [...(windowed < config.layers ? (["full"] as const) : []), ...(windowed > 0 ? (["window"] as const) : [])];
}

/** Part of an input's name for a reach. */
const MASK_PREFIX: Readonly<Record<Reach, string>> = { full: "", window: "window_" };

/** Returns the name of the graph input with the mask of a block of queries. */
export const maskName = (prefix: string, block: number, reach: Reach) => `${prefix}${MASK_PREFIX[reach]}mask${block}`;

/** Returns the name of the graph input with the indices of a block's keys, `0, 1, …`. */
export const keysName = (prefix: string, block: number) => `${prefix}key_places${block}`;

/** Returns the names of the graph inputs with the ranges of a block of queries. */
export const rangeNames = (prefix: string, block: number, reach: Reach) => ({
  first: `${prefix}${MASK_PREFIX[reach]}first_key${block}`,
  last: `${prefix}last_key${block}`,
  lastPrompt: `${prefix}last_prompt_key${block}`,
  firstPrompt: `${prefix}${MASK_PREFIX[reach]}first_prompt_key${block}`,
});

/** Source of the attention masks: graph inputs, or a computation in the graph from the range of keys that each query attends to. */
export type MaskSource = "given" | "ranges";

/** Rows of a graph: their model inputs, their tokens, and their attention layer. */
export interface Rows {
  readonly inputs: ModelInputs;
  readonly tokens: Value;
  readonly attentionLayer: AttentionLayer;
}

/** Declares the inputs of a batch's padded blocks. With prompts, the returned rows are the prompts followed by the packed rows. */
export function rowsOf(model: SharedInputs, { prompts, packedRows }: GraphShape, source: MaskSource): Rows {
  const packed = blockInputs(model, PACKED, packedRows, prompts === null ? null : "reach", source);
  if (prompts === null)
    return {
      ...packed,
      attentionLayer: perHeadAttention(packed.inputs, (layer, queries, keys, values) =>
        attention(queries, keys, values, packed.optionsOf(layer)),
      ),
    };
  const prompt = blockInputs(model, PROMPT, prompts, null, source);
  const rows = "all_rows";
  const inputs = { ...packed.inputs, dims: { ...packed.inputs.dims, rows } };
  const tokens = concat([prompt.tokens, packed.tokens], 0, rows);
  return { inputs, tokens, attentionLayer: promptAttention(prompt, packed, rows) };
}

/** Padded block of rows, with the options of a layer's attention over it. */
interface BlockInputs {
  readonly inputs: ModelInputs;
  readonly tokens: Value;
  /** Number of keys that the rows attend to. */
  readonly keys: Dim;
  optionsOf(layer: number): AttentionOptions;
}

/**
 * Declares the inputs of one padded block.
 *
 * @param allKeys - Dimension of the keys if the rows attend to more keys than their own; null otherwise.
 */
function blockInputs(
  model: SharedInputs,
  prefix: string,
  { count, recompute }: QueryBlocks,
  allKeys: Dim | null,
  source: MaskSource,
): BlockInputs {
  const { graph, config } = model;
  const name = (dim: string) => `${prefix}${dim}`;
  const [batch, time, rows, grouped] = [name("rows"), name("time"), name("flat"), name("grouped")];
  const block = count === 1 ? time : name("block");
  const blocks = graph.input(name("positions"), [batch, count, block], "int64");
  /** Returns the dimension of a block's keys. A block attends to all keys up to its own, so that the last block attends to all. */
  const keys = (index: number): Dim => {
    if (index === count - 1) return allKeys ?? time;
    // Without other keys, the first block has as many keys as queries.
    return index === 0 && allKeys === null ? block : name(`keys${index}`);
  };
  const queries = count === 1 ? grouped : name("block_rows");
  const inputs = { ...model, dims: { batch, time, rows, grouped }, positions: reshape(blocks, [batch, time]) };
  const tokens = graph.input(name("tokens"), [rows], "int64");
  const maskOf = (index: number, reach: Reach) =>
    source === "given"
      ? graph.input(maskName(prefix, index, reach), [batch, 1, queries, keys(index)])
      : maskOfRanges(graph, rangeNames(prefix, index, reach), keysName(prefix, index), reach, [batch, queries, keys(index)]);
  const masks = new Map(
    reachesOf(config).map((reach) => [reach, Array.from({ length: count }, (_, index) => maskOf(index, reach))] as const),
  );
  const options = { group: config.heads / config.kvHeads, scale: config.scales.attention, block, time, recompute };
  return {
    inputs,
    tokens,
    keys: keys(count - 1),
    optionsOf: (layer) => ({ ...options, masks: getOrThrow(masks, reachOf(config, layer)) }),
  };
}

/** Computes the mask of a block, `[B, 1, queries, keys]`, from the ranges of its queries. */
function maskOfRanges(
  graph: Graph,
  names: ReturnType<typeof rangeNames>,
  keys: string,
  reach: Reach,
  [batch, queries, width]: readonly [Dim, Dim, Dim],
): Value {
  // Reaches share the inputs with equal names.
  const input = (name: string, shape: readonly Dim[]) => graph.inputs.find((known) => known.name === name) ?? graph.input(name, shape);
  const keyIndices = input(keys, [width]);
  const line = (name: string) => input(name, [batch, 1, queries, 1]);
  const [visible, hidden] = [graph.scalar(0), graph.scalar(MASKED)];
  const upToQuery = where(lessOrEqual(keyIndices, line(names.last)), visible, hidden);
  const own = where(lessOrEqual(line(names.first), keyIndices), upToQuery, hidden);
  const ofPrompt = reach === "full" ? visible : where(lessOrEqual(line(names.firstPrompt), keyIndices), visible, hidden);
  return where(lessOrEqual(keyIndices, input(names.lastPrompt, [batch, 1, 1, 1])), ofPrompt, own);
}

/** Returns the attention layer of a batch with prompts: prompts attend to themselves, packed rows to their prompt and themselves. */
function promptAttention(prompt: BlockInputs, packed: BlockInputs, rows: Dim): AttentionLayer {
  const promptOf = packed.inputs.graph.input("prompt_of", [packed.inputs.dims.batch, prompt.inputs.dims.batch]);
  return (layer, projected) => {
    const [first, second] = split(projected, 0, [prompt.inputs.dims.rows, packed.inputs.dims.rows]);
    const shared = splitHeads(prompt.inputs, layer, first);
    const own = splitHeads(packed.inputs, layer, second);
    const withPrompt = (name: keyof Heads) => concat([gatherPrompts(promptOf, shared[name]), own[name]], 2, packed.keys);
    const promptOutput = attention(shared.queries, shared.keys, shared.values, prompt.optionsOf(layer));
    const packedOutput = attention(own.queries, withPrompt("keys"), withPrompt("values"), packed.optionsOf(layer));
    return concat([joinHeads(prompt.inputs, promptOutput), joinHeads(packed.inputs, packedOutput)], 0, rows);
  };
}

/**
 * Returns the prompt's `[kv, P, d]` for each packed row, from `x` `[G, kv, P, d]`: a product with a one-hot matrix, with a gradient that
 * sums over the packed rows.
 */
function gatherPrompts(promptOf: Value, x: Value): Value {
  const [prompts, ...rest] = x.shape as [Dim, Dim, Dim, Dim];
  const flat = reshape(x, [prompts, "prompt_width"]);
  return reshape(matmul(promptOf, flat), [first(promptOf.shape), ...rest]);
}
