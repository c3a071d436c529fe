/** Gradient graph: loss, log-probabilities and accumulated gradients of one batch of rows. */
import {
  adaptedProduct,
  blockDiagonal,
  concat,
  differentiate,
  exp,
  Graph,
  lessOrEqual,
  maximum,
  minimum,
  mul,
  neg,
  stopGradient,
  sumAll,
  targetLogprob,
  type Value,
  where,
  sub,
} from "../graph/index.ts";
import type { LossSpec } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterLayout, adapterNames, baseLayout, type Layout } from "../model/parameters.ts";
import { logits, type Projection, transformer, weightInputs } from "../model/transformer.ts";
import type { GraphShape } from "./query-blocks.ts";
import { type MaskSource, type Model, rowsOf } from "./padded-blocks.ts";

/** Output of a gradient graph: a loss with gradients, or log-probabilities alone. */
export type GradientKind = LossSpec["kind"] | "forward";

/** Name prefix of the gradient accumulators, which are inputs and, with the batch's gradient added, outputs. */
export const ACCUMULATOR = "acc_";

/** Options of {@link gradientGraph}. */
export interface GradientOptions {
  /** Whether the loss has an entropy bonus. @default false */
  readonly hasEntropyBonus?: boolean | undefined;
  /** Where attention masks come from. @default "given" */
  readonly masks?: MaskSource | undefined;
}

/**
 * Builds the graph for one model shape.
 *
 * A batch is a padded block of packed rows `[M, L]` and, with shared prompts, a padded block of prompts `[G, P]` before it. All linear maps
 * run over the rows of both blocks at once. Attention runs over each block separately; packed rows attend to the keys of their prompts,
 * then to their own keys.
 *
 * Inputs besides the weights, for the packed rows and, with `prompt_` before the name, for the prompts: `tokens`, flat; `positions` `[rows,
 * blocks, t]`; for each block of `t` queries a `mask0`, `mask1`, … `[rows or 1, 1, (h/kv)·t, keys]`, 0 where a query may attend and very
 * negative elsewhere. With prompts, `prompt_of` `[M, G]` is 1 where a packed row continues a prompt. Then `cos`, `sin`; and for the `S`
 * trained tokens `selected` (the flat index of the position that predicts each token, prompts before packed rows), `targets`, `weights`,
 * and for policy losses `advantages`, `old`, `known` (1 where `old` is known), `low`, `high` (bounds of the ratio).
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
  { hasEntropyBonus = false, masks = "given" }: GradientOptions = {},
): Graph {
  const graph = new Graph();
  const half = config.headSize / 2;
  const base = baseLayout(config);
  const weights = weightInputs(graph, base);
  const adapters = rank === null ? null : adapterLayout(config, rank);
  const adapterWeights = adapters && weightInputs(graph, adapters);
  const model: Model = {
    graph,
    config,
    weights,
    project: adapterWeights ? adapted(weights, adapterWeights, graph.input("adapter_scale", [])) : undefined,
    cos: graph.input("cos", ["table_positions", half]),
    sin: graph.input("sin", ["table_positions", half]),
  };
  const { inputs, tokens, attentionLayer } = rowsOf(model, shape, masks);
  const selected = graph.input("selected", ["selected"], "int64");
  const hidden = transformer(inputs, tokens, attentionLayer, selected);
  const { logprob, entropy } = targetLogprob(logits(inputs, hidden), graph.input("targets", ["selected"], "int64"));
  graph.output("logprob", logprob);
  graph.output("entropy", entropy);
  if (kind === "forward") return graph;

  const policy = tokenLoss(graph, kind, logprob);
  const each = hasEntropyBonus ? sub(policy, mul(entropy, graph.input("entropy_coef", []))) : policy;
  const loss = sumAll(mul(each, graph.input("weights", ["selected", 1])));
  graph.output("loss", loss);
  const trainable: Layout = adapters ?? base;
  const values = trainable.parameters.map(({ name }) => (adapterWeights ?? weights).get(name)!);
  const start = new Map(trainable.parameters.map(({ name, shape }, i) => [values[i]!, graph.input(`${ACCUMULATOR}${name}_in`, shape)]));
  differentiate(loss, values, start).forEach((gradient, i) => graph.output(ACCUMULATOR + trainable.parameters[i]!.name, gradient));
  return graph;
}

/**
 * Returns the projection `x·(W + scale·A·B)`. For a linear map with several parts, the `A` matrices are concatenated by columns and the `B`
 * matrices form a block diagonal.
 */
function adapted(weights: ReadonlyMap<string, Value>, adapters: ReadonlyMap<string, Value>, scale: Value): Projection {
  return (linear, x) => {
    const names = linear.parts.map((_, part) => adapterNames(linear, part));
    const columns = names.map(({ a }) => adapters.get(a)!);
    const rank = columns.reduce((sum, { shape }) => sum + (shape[1] as number), 0);
    const a = columns.length === 1 ? columns[0]! : concat(columns, 1, rank);
    const b = mul(blockDiagonal(names.map((each) => adapters.get(each.b)!)), scale);
    return adaptedProduct(x, weights.get(linear.name)!, a, b);
  };
}

/** Computes the loss of each token, `[S, 1]`, as {@link LossSpec} defines it. */
function tokenLoss(graph: Graph, kind: LossSpec["kind"], logprob: Value): Value {
  if (kind === "cross-entropy") return neg(logprob);
  const column = (name: string) => graph.input(name, ["selected", 1]);
  const advantages = column("advantages");
  // An unknown old logprob means on-policy: the ratio is 1, with the gradient of the new logprob.
  const old = where(lessOrEqual(graph.scalar(0.5), column("known")), column("old"), stopGradient(logprob));
  const ratio = exp(sub(logprob, old));
  const clipped = minimum(maximum(ratio, graph.input("low", [])), graph.input("high", []));
  switch (kind) {
    case "cispo":
      return neg(mul(mul(stopGradient(clipped), advantages), logprob));
    case "ppo":
      return neg(minimum(mul(ratio, advantages), mul(clipped, advantages)));
  }
}
