/** The optimizer graphs: the global gradient norm, and one AdamW update over a span of the flat vector. */
import { add, div, Graph, mul, reduceSum, reshape, sqrt, sub } from "../graph/index.ts";
import { BLOCK } from "../model/parameters.ts";

/**
 * `norm = √Σ g²`. Summed in blocks first: one running float32 sum over millions of squares loses three digits.
 *
 * Input `gradient` `[blocks, BLOCK]`; output `norm`, a scalar.
 */
export function normGraph(): Graph {
  const graph = new Graph();
  const gradient = graph.input("gradient", ["blocks", BLOCK]);
  graph.output("norm", sqrt(reshape(reduceSum(reduceSum(mul(gradient, gradient), [1]), [0]), [])));
  return graph;
}

/**
 * One AdamW step, elementwise over `[n]`:
 *
 * ```
 * g ← clip · g
 * m ← β₁·m + (1 − β₁)·g          v ← β₂·v + (1 − β₂)·g²
 * p ← p − rate·decay·p − (rate / (1 − β₁ᵗ)) · m / (√v / √(1 − β₂ᵗ) + ε)
 * ```
 *
 * Scalars are inputs, so one compiled graph serves every step: `clip`, `beta1`, `rest1 = 1 − β₁`, `beta2`, `rest2`,
 * `shrink = rate·decay`, `scaledRate = rate / (1 − β₁ᵗ)`, `correction = √(1 − β₂ᵗ)`, `epsilon`.
 *
 * @source Loshchilov and Hutter 2019, arXiv:1711.05101, in the order of operations of torch.optim.AdamW.
 */
export function adamGraph(): Graph {
  const graph = new Graph();
  const vector = (name: string) => graph.input(name, ["n"]);
  const scalar = (name: string) => graph.input(name, []);
  const [p, m, v] = [vector("p"), vector("m"), vector("v")];
  const g = mul(vector("g"), scalar("clip"));
  const m1 = add(mul(m, scalar("beta1")), mul(g, scalar("rest1")));
  const v1 = add(mul(v, scalar("beta2")), mul(mul(g, g), scalar("rest2")));
  const step = div(m1, add(div(sqrt(v1), scalar("correction")), scalar("epsilon")));
  graph.output("p_out", sub(sub(p, mul(p, scalar("shrink"))), mul(step, scalar("scaledRate"))));
  graph.output("m_out", m1);
  graph.output("v_out", v1);
  return graph;
}
