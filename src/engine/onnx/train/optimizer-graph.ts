import { Graph, mul, reduceSum, reshape, sqrt } from "../graph/index.ts";
import { BLOCK } from "../model/parameters.ts";

/**
 * Builds the graph of the gradient norm `√Σ g²`. Squares are summed in blocks first: one running float32 sum over millions of squares loses
 * three digits.
 *
 * Input `gradient` `[blocks, BLOCK]`; output `norm`, a scalar.
 */
export function normGraph(): Graph {
  const graph = new Graph();
  const gradient = graph.input("gradient", ["blocks", BLOCK]);
  graph.output("norm", sqrt(reshape(reduceSum(reduceSum(mul(gradient, gradient), [1]), [0]), [])));
  return graph;
}
