/** The gradient graph: loss, log-probabilities and accumulated gradients of one batch of rows. */
import {
  add,
  differentiate,
  exp,
  Graph,
  gatherRows,
  lessOrEqual,
  matmul,
  maximum,
  minimum,
  mul,
  neg,
  softmax,
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
import { type Attention, GROUPED, logits, type LowRankTerm, type ModelInputs, transformer, weightInputs } from "../model/transformer.ts";

/** What a gradient graph computes: a loss with gradients, or log-probabilities alone. */
export type GradientKind = LossSpec["kind"] | "forward";

/** Prefix of the accumulators, which are inputs and, with this step's gradient added, outputs. */
export const ACCUMULATOR = "acc_";

/**
 * Builds the graph for one model shape.
 *
 * Inputs besides the weights: `tokens`, `positions` `[B, T]`; `mask` `[B or 1, 1, grouped, T]`, 0 where a query may look and
 * very negative elsewhere; `cos`, `sin`; and for the `S` trained tokens `selected` (the flat row that predicts each one),
 * `targets`, `weights`, and for policy losses `advantages`, `old`, `known` (1 where `old` is), `low`, `high`.
 * Outputs: `logprob` and `entropy` `[S, 1]`, `loss`, and the accumulators of the trainable parameters.
 */
export function gradientGraph(config: ModelConfig, kind: GradientKind, rank: number | null): Graph {
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
  const hidden = transformer(inputs, tokens, causalAttention(graph, config));
  const chosen = gatherRows(hidden, graph.input("selected", ["selected"], "int64"));
  const { logprob, entropy } = targetLogprob(logits(inputs, chosen), graph.input("targets", ["selected"], "int64"));
  graph.output("logprob", logprob);
  graph.output("entropy", entropy);
  if (kind === "forward") return graph;

  const loss = sumAll(mul(tokenLoss(graph, kind, logprob), graph.input("weights", ["selected", 1])));
  graph.output("loss", loss);
  const trainable: Layout = adapters ?? base;
  const values = trainable.parameters.map(({ name }) => (adapterWeights ?? weights).get(name)!);
  differentiate(loss, values).forEach((gradient, i) => {
    const { name, shape } = trainable.parameters[i]!;
    graph.output(ACCUMULATOR + name, add(graph.input(`${ACCUMULATOR}${name}_in`, shape), gradient));
  });
  return graph;
}

/** `scale · (x·A)·B`. */
function scaledAdapter(weights: ReadonlyMap<string, Value>, scale: Value): LowRankTerm {
  return (linear, part, x) => {
    const { a, b } = adapterNames(linear, part);
    return matmul(mul(matmul(x, weights.get(a)!), scale), weights.get(b)!);
  };
}

/** Attention over the row itself, as far as the mask lets it see. */
function causalAttention(graph: Graph, config: ModelConfig): Attention {
  const mask = graph.input("mask", ["batch", 1, GROUPED, "time"]);
  const scale = 1 / Math.sqrt(config.headSize);
  return (_layer, queries, keys, values) => matmul(softmax(add(matmul(queries, keys, { transposeB: true, scale }), mask)), values);
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
