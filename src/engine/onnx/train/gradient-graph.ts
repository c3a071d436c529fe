/** Gradient graph: loss, log-probabilities and accumulated gradients of one batch of rows. */
import { adaptedProduct, after, blockDiagonal, Graph, join, mul, pullback, type Value } from "../graph/index.ts";
import { recomputeCheap } from "../graph/recompute.ts";
import type { LossSpec } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterLayout, adapterNames, baseLayout, type Layout } from "../model/parameters.ts";
import { type ModelInputs, type Projection, rotaryInputs, weightInputs } from "../model/model-inputs.ts";
import { embed, finalNorm, gatedOutput, headName, type LayerResult, transformerLayer } from "../model/transformer.ts";
import { MAX_BINDING_BYTES } from "../runtime/device-memory.ts";
import { headLoss, type TrainedPieces } from "./head-loss.ts";
import { outputKept } from "./kept-activations.ts";
import { type MemoryPlan, WHOLE } from "./memory-plan.ts";
import type { GraphShape } from "./query-blocks.ts";
import { type MaskSource, type SharedInputs, rowsOf } from "./padded-blocks.ts";
import { first, getOrThrow, last, zip } from "../../../base/util/values.ts";

/** Output of a gradient graph: a loss with gradients, or log-probabilities alone. */
export type GradientKind = LossSpec["kind"] | "forward";

/** Name prefix of the gradient accumulators, which are inputs and, with the batch's gradient added, outputs. */
export const ACCUMULATOR = "acc_";

/** Options of {@link gradientGraph}. */
export interface GradientOptions {
  /** Whether the loss has an entropy bonus. @default false */
  readonly hasEntropyBonus?: boolean | undefined;
  /** Source of the attention masks. @default "given" */
  readonly masks?: MaskSource | undefined;
  /** Slices, order and recomputation. @default {@link WHOLE} */
  readonly plan?: MemoryPlan | undefined;
  /**
   * Whether the backward pass of a batch without order multiplies by matrices merged with their adapters, which keeps a float32 copy of
   * each. @default true
   */
  readonly mergesAdapters?: boolean | undefined;
  /**
   * Whether narrow products of adapters with a long sum are part of the products with their matrices, as a device computes them faster.
   * Copies each of these matrices for the product. @default false
   */
  readonly joinsAdapters?: boolean | undefined;
  /** Layout of the base model's weights, whole or in pieces. @default whole */
  readonly layout?: Layout | undefined;
  /**
   * Whether runs provide the memory of the accumulators and of the kept activations, which then are outputs, too: see
   * `kept-activations.ts`. @default false
   */
  readonly hasOutputBuffers?: boolean | undefined;
}

/**
 * Builds the graph for one model shape.
 *
 * A batch is a padded block of packed rows `[M, L]` and, with shared prompts, a padded block of prompts `[G, P]` before it. All linear maps
 * run over the rows of both blocks at once. Attention runs over each block separately; packed rows attend to the keys of their prompts,
 * then to their own keys.
 *
 * Inputs of the packed rows and, with `prompt_` before the name, of the prompts: `tokens`, flat; `positions` `[rows, blocks, t]`; for each
 * block of `t` queries a `mask0`, `mask1`, … `[rows or 1, 1, (h/kv)·t, keys]`, 0 where a query may attend and very negative elsewhere; for
 * layers with a sliding window, `window_mask0`, ….
 *
 * Inputs of the `S` trained tokens: `selected` (the flat index of the position that predicts each token, prompts before packed rows),
 * `targets`, `weights`, and for policy losses `advantages`, `old`, `known` (1 where `old` is known), `low`, `high` (bounds of the ratio).
 *
 * Further inputs: the weights and rotary tables; with prompts, `prompt_of` `[M, G]`, 1 where a packed row continues a prompt.
 *
 * Outputs: `logprob` and `entropy` `[S, 1]`, `loss`, and the accumulators of the trainable parameters.
 *
 * @param rank - LoRA rank; null if every parameter is trained.
 */
export function gradientGraph(
  config: ModelConfig,
  kind: GradientKind,
  rank: number | null,
  shape: GraphShape,
  {
    hasEntropyBonus = false,
    masks = "given",
    plan = WHOLE,
    mergesAdapters = true,
    joinsAdapters = false,
    layout: base = baseLayout(config),
    hasOutputBuffers = false,
  }: GradientOptions = {},
): Graph {
  const graph = new Graph();
  const weights = weightInputs(graph, base);
  const adapters = rank === null ? null : adapterLayout(config, rank);
  const adapterWeights = adapters && weightInputs(graph, adapters);
  const model: SharedInputs = {
    graph,
    config,
    weights,
    project: adapterWeights
      ? adapted(weights, adapterWeights, graph.input("adapter_scale", []), {
          isMerged: mergesAdapters && !plan.isOrdered,
          isJoined: joinsAdapters,
        })
      : undefined,
    rotary: rotaryInputs(graph, config, "table_positions"),
  };
  const { inputs, tokens, attentionLayer } = rowsOf(model, shape, masks);
  const selected = graph.input("selected", ["selected"], "int64");
  const applyLayer = (layer: number, x: Value) =>
    transformerLayer(inputs, layer, x, attentionLayer, layer === config.layers - 1 ? selected : undefined);
  const embedded = embed(inputs, tokens);
  const layers: LayerResult[] = [];
  for (let layer = 0; layer < config.layers; layer++) layers.push(applyLayer(layer, layers.at(-1)?.output ?? embedded));
  const hidden = last(layers).output;
  const normed = finalNorm(inputs, hidden);
  const forwardNodes = graph.nodes.length;

  const sums = new GradientSums(graph, kind === "forward" ? [] : (adapters ?? base).parameters, adapterWeights ?? weights);
  const head = headName(config);
  const options = { kind, hasEntropyBonus, slices: plan.headSlices, trained: sums.of(head) };
  const { logprob, entropy, backward } = headLoss(inputs, normed, options);
  graph.output("logprob", logprob);
  graph.output("entropy", entropy);
  if (!backward) return graph;

  graph.output("loss", backward.loss);
  if (backward.head) sums.set(head, backward.head);
  const finished = [logprob, entropy, ...(backward.head ?? [])];
  const gradient = plan.isOrdered ? after(backward.hidden, finished) : backward.hidden;
  let current = sums.pullback(new Map([[normed, gradient]]), [hidden], isNamed("norm"));
  for (const [layer, result] of [...layers.entries()].reverse()) {
    const input = layers[layer - 1]?.output ?? embedded;
    // Under an adapter, nothing before the first layer is trained.
    const hasInputGradient = layer > 0 || adapters === null;
    current = layerBackward(sums, { inputs, layer, input, result, hasInputGradient, plan, applyLayer }, current);
  }
  if (!adapters) sums.pullback(new Map([[embedded, first(current.gradients)]]), [], isNamed("embedding"));
  for (const [name, sum] of sums.all) {
    if (hasOutputBuffers) graph.directOutput(ACCUMULATOR + name, sum);
    else graph.output(ACCUMULATOR + name, sum);
  }
  if (hasOutputBuffers) outputKept(graph, forwardNodes);
  else if (plan.isOrdered) recomputeCheap(graph, forwardNodes);
  return graph;
}

/** Layer that {@link layerBackward} propagates through. */
interface BackwardLayer {
  readonly inputs: ModelInputs;
  readonly layer: number;
  readonly input: Value;
  /** Values of the layer in the forward pass. */
  readonly result: LayerResult;
  /** Whether the gradient of the layer's input is needed. */
  readonly hasInputGradient: boolean;
  readonly plan: MemoryPlan;
  /** Computes the layer from an input. */
  readonly applyLayer: (layer: number, x: Value) => LayerResult;
}

/**
 * Back-propagates through one layer. As the plan says, the layer is recomputed from its input, or only its gated activation is recomputed,
 * or all values of the forward pass are used. Values are recomputed only after the layer above is finished.
 *
 * @param above - Result for the layer above, with the gradient of this layer's output.
 */
function layerBackward(sums: GradientSums, target: BackwardLayer, above: Backward): Backward {
  const { inputs, layer, input, result, hasInputGradient, plan, applyLayer } = target;
  const isOwn = isNamed(`layer${layer}_`);
  const gradient = first(above.gradients);
  const finished = [gradient, ...above.updated];
  if (layer < plan.recomputedLayers) {
    const delayedInput = after(input, finished);
    const { output } = applyLayer(layer, delayedInput);
    return sums.pullback(new Map([[output, gradient]]), hasInputGradient ? [delayedInput] : [], isOwn);
  }
  const ends = hasInputGradient ? [input] : [];
  if (!plan.isOrdered) return sums.pullback(new Map([[result.output, gradient]]), ends, isOwn);
  const { residual, gate, up } = result;
  const delayedGate = after(gate, finished);
  const isDown = isNamed(`layer${layer}_down`);
  const recomputedOutput = gatedOutput(inputs, layer, { residual, gate: delayedGate, up });
  const half = sums.pullback(new Map([[recomputedOutput, gradient]]), [residual, delayedGate, up], isDown);
  const cotangents = new Map(zip([residual, gate, up], half.gradients));
  const rest = sums.pullback(cotangents, ends, (name) => isOwn(name) && !isDown(name));
  return { gradients: rest.gradients, updated: [...half.updated, ...rest.updated] };
}

/**
 * Returns the projection `x·(W + scale·A·B)`. For a linear map with several parts, the `A` matrices are concatenated by columns and the `B`
 * matrices form a block diagonal.
 */
function adapted(
  weights: ReadonlyMap<string, Value>,
  adapters: ReadonlyMap<string, Value>,
  scale: Value,
  { isMerged, isJoined }: { readonly isMerged: boolean; readonly isJoined: boolean },
): Projection {
  return (linear, x) => {
    const names = linear.parts.map((_, part) => adapterNames(linear, part));
    const columns = names.map(({ a }) => getOrThrow(adapters, a));
    const rank = columns.reduce((sum, { shape }) => sum + (shape[1] as number), 0);
    const a = join(columns, 1, rank);
    const unscaled = blockDiagonal(names.map((each) => getOrThrow(adapters, each.b)));
    const b = mul(unscaled, scale);
    const weight = getOrThrow(weights, linear.name);
    const [height, width] = weight.shape as [number, number];
    // A device may be unable to bind a larger matrix.
    const fits = 4 * (height + rank) * (width + rank) <= MAX_BINDING_BYTES;
    return adaptedProduct(x, weight, a, b, { isMerged, joined: isJoined && fits ? { unscaled, scale } : undefined });
  };
}

/** Returns whether a parameter's name starts with `prefix`. */
const isNamed = (prefix: string) => (name: string) => name.startsWith(prefix);

/** Result of one part of the backward pass. */
interface Backward {
  /** Gradients of the part's inputs. */
  readonly gradients: readonly Value[];
  /** Gradient sums that the part has added to. */
  readonly updated: readonly Value[];
}

/** Gradient sums of the trained parameters: at first the accumulators, which are graph inputs. */
class GradientSums {
  readonly #weights = new Map<string, Value>();
  readonly #sums = new Map<string, Value>();

  constructor(graph: Graph, parameters: Layout["parameters"], weights: ReadonlyMap<string, Value>) {
    for (const { name, shape } of parameters) {
      this.#weights.set(name, getOrThrow(weights, name));
      this.#sums.set(name, graph.input(`${ACCUMULATOR}${name}_in`, shape));
    }
  }

  /** Sums by the name of the parameter. */
  get all(): ReadonlyMap<string, Value> {
    return this.#sums;
  }

  /** Returns the pieces of a parameter and their sums; null if the parameter is frozen. */
  of(name: string): TrainedPieces | null {
    const pieces = this.#pieces(name);
    return pieces.length === 0
      ? null
      : { weights: pieces.map((piece) => getOrThrow(this.#weights, piece)), sums: pieces.map((piece) => getOrThrow(this.#sums, piece)) };
  }

  /** Replaces the sums of the pieces of a parameter. */
  set(name: string, sums: readonly Value[]): void {
    for (const [piece, sum] of zip(this.#pieces(name), sums)) this.#sums.set(piece, sum);
  }

  /** Returns the names of the pieces of a parameter. */
  #pieces(name: string): string[] {
    return [...this.#weights.keys()].filter(isNamed(name));
  }

  /**
   * Back-propagates from the outputs of a part of the graph to its inputs, and adds the gradients of the part's parameters.
   *
   * @param cotangents - Outputs with their gradients.
   * @param isOwn - Whether a parameter belongs to the part.
   */
  pullback(cotangents: ReadonlyMap<Value, Value>, inputs: readonly Value[], isOwn: (name: string) => boolean): Backward {
    const names = [...this.#weights.keys()].filter(isOwn);
    const start = new Map(names.map((name) => [getOrThrow(this.#weights, name), getOrThrow(this.#sums, name)]));
    const gradients = pullback(cotangents, [...start.keys(), ...inputs], start);
    const updated = gradients.splice(0, names.length);
    for (const [name, sum] of zip(names, updated)) this.#sums.set(name, sum);
    return { gradients, updated };
  }
}
