/** The gradient graph: loss, log-probabilities and accumulated gradients of one batch of rows. */
import {
  attention,
  differentiate,
  exp,
  Graph,
  lessOrEqual,
  matmul,
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
import {
  type Attention,
  GROUPED,
  headsApart,
  logits,
  type LowRankTerm,
  type ModelInputs,
  transformer,
  weightInputs,
} from "../model/transformer.ts";

/** What a gradient graph computes: a loss with gradients, or log-probabilities alone. */
export type GradientKind = LossSpec["kind"] | "forward";

/** How attention cuts a row's queries; a graph is built for one way. */
export interface QueryBlocks {
  readonly count: number;
  /** Whether the gradient computes probabilities anew. */
  readonly recompute: boolean;
}

/** Prefix of the accumulators, which are inputs and, with this step's gradient added, outputs. */
export const ACCUMULATOR = "acc_";

/**
 * Builds the graph for one model shape.
 *
 * Inputs besides the weights: `tokens`, `positions` `[B, T]`; for each block of `t` queries a `mask0`, `mask1`, …
 * `[B or 1, 1, (h/kv)·t, keys]`, 0 where a query may look and very negative elsewhere; `cos`, `sin`; and for the `S` trained
 * tokens `selected` (the flat row that predicts each one), `targets`, `weights`, and for policy losses `advantages`, `old`,
 * `known` (1 where `old` is), `low`, `high`.
 * Outputs: `logprob` and `entropy` `[S, 1]`, `loss`, and the accumulators of the trainable parameters.
 */
export function gradientGraph(config: ModelConfig, kind: GradientKind, rank: number | null, blocks: QueryBlocks): Graph {
  const graph = new Graph();
  const tokens = graph.input("tokens", ["batch", "time"], "int64");
  const half = config.headSize / 2;
  const base = baseLayout(config);
  const weights = weightInputs(graph, base);
  const adapters = rank === null ? null : adapterLayout(config, rank);
  const adapterWeights = adapters && weightInputs(graph, adapters);
  const inputs: ModelInputs = {
    graph,
    config,
    dims: { batch: "batch", time: "time", rows: "rows" },
    weights,
    lowRank: adapterWeights ? scaledAdapter(adapterWeights, graph.input("adapter_scale", [])) : undefined,
    positions: graph.input("positions", ["batch", "time"], "int64"),
    cos: graph.input("cos", [config.contextLength, half]),
    sin: graph.input("sin", [config.contextLength, half]),
  };
  const selected = graph.input("selected", ["selected"], "int64");
  const hidden = transformer(inputs, tokens, headsApart(inputs, causalAttention(graph, config, blocks)), selected);
  const { logprob, entropy } = targetLogprob(logits(inputs, hidden), graph.input("targets", ["selected"], "int64"));
  graph.output("logprob", logprob);
  graph.output("entropy", entropy);
  if (kind === "forward") return graph;

  const loss = sumAll(mul(tokenLoss(graph, kind, logprob), graph.input("weights", ["selected", 1])));
  graph.output("loss", loss);
  const trainable: Layout = adapters ?? base;
  const values = trainable.parameters.map(({ name }) => (adapterWeights ?? weights).get(name)!);
  const start = new Map(trainable.parameters.map(({ name, shape }, i) => [values[i]!, graph.input(`${ACCUMULATOR}${name}_in`, shape)]));
  differentiate(loss, values, start).forEach((gradient, i) => graph.output(ACCUMULATOR + trainable.parameters[i]!.name, gradient));
  return graph;
}

/** `scale · (x·A)·B`. */
function scaledAdapter(weights: ReadonlyMap<string, Value>, scale: Value): LowRankTerm {
  return (linear, part, x) => {
    const { a, b } = adapterNames(linear, part);
    return matmul(mul(matmul(x, weights.get(a)!), scale), weights.get(b)!);
  };
}

/** Name of the graph input with the mask of a block of queries. */
export const maskName = (block: number) => `mask${block}`;

/** Attention over the row itself, as far as the masks let it see. */
function causalAttention(graph: Graph, config: ModelConfig, { count, recompute }: QueryBlocks): Attention {
  const keys = (block: number) => (block === count - 1 ? "time" : block === 0 ? "block" : `keys${block}`);
  const rows = count === 1 ? GROUPED : "block_rows";
  const masks = Array.from({ length: count }, (_, block) => graph.input(maskName(block), ["batch", 1, rows, keys(block)]));
  const options = { group: config.heads / config.kvHeads, scale: 1 / Math.sqrt(config.headSize), masks, recompute };
  return (_layer, queries, newKeys, values) => attention(queries, newKeys, values, options);
}

/** The loss of each token, `[S, 1]`, as {@link LossSpec} defines it. */
function tokenLoss(graph: Graph, kind: LossSpec["kind"], logprob: Value): Value {
  if (kind === "cross-entropy") return neg(logprob);
  const column = (name: string) => graph.input(name, ["selected", 1]);
  const advantages = column("advantages");
  // An unknown old logprob means on-policy: the ratio is 1, and its gradient is that of the new one.
  const old = where(lessOrEqual(graph.scalar(0.5), column("known")), column("old"), stopGradient(logprob));
  const ratio = exp(sub(logprob, old));
  const clipped = minimum(maximum(ratio, graph.input("low", [])), graph.input("high", []));
  if (kind === "cispo") return neg(mul(mul(stopGradient(clipped), advantages), logprob));
  return neg(minimum(mul(ratio, advantages), mul(clipped, advantages)));
}
