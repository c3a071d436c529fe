/** Reverse-mode differentiation of a graph. Gradients are further nodes of the same graph. */
import { ShapeError } from "../../../base/errors.ts";
import type { Node, Value } from "./graph.ts";
import { add } from "./ops/elementwise.ts";
import { first, itemAt } from "../../../base/util/values.ts";

/**
 * Appends the nodes that compute `∂ target / ∂ wrt[i]` to the graph, by reverse-mode differentiation.
 *
 * @param target - Scalar, shape `[]`.
 * @param wrt - Inputs or intermediate values of the same graph.
 * @param start - For values among `wrt`, the value that the gradient is added to, for accumulation over several runs.
 * @returns One gradient for each value of `wrt`, of its shape.
 * @throws ShapeError `E_SHAPE` if the target is not a scalar or does not depend on one of `wrt`.
 */
export function differentiate(target: Value, wrt: readonly Value[], start: ReadonlyMap<Value, Value> = new Map()): Value[] {
  if (target.shape.length !== 0) throw new ShapeError(`Expected a scalar to differentiate, got shape [${target.shape.join(", ")}]`);
  return pullback(new Map([[target, target.graph.scalar(1)]]), wrt, start);
}

/**
 * Appends the nodes that compute the vector-Jacobian product `Σ cotangentᵀ · ∂ target / ∂ wrt[i]` to the graph.
 *
 * Gradients are recorded only along paths from a `wrt` value to a target, so a frozen weight costs nothing. Several contributions to the
 * same value are added in the fixed order of the backward traversal, so equal graphs sum in equal order.
 *
 * @param cotangents - At least one target, each with its gradient, of the same shape.
 * @param wrt - Inputs or intermediate values of the same graph. They are independent variables: no gradient flows through one to another.
 * @param start - For values among `wrt`, the value that the gradient is added to.
 * @returns One gradient for each value of `wrt`, of its shape.
 * @throws ShapeError `E_SHAPE` if no target depends on one of `wrt`.
 */
export function pullback(
  cotangents: ReadonlyMap<Value, Value>,
  wrt: readonly Value[],
  start: ReadonlyMap<Value, Value> = new Map(),
): Value[] {
  const forward = [...first(wrt).graph.nodes];
  const active = dependents(forward, wrt);
  const gradients = new Map<Value, Value>([...cotangents, ...start]);
  /** Variables with a contribution to their gradient. A start value alone does not prove a path from the target. */
  const reached = new Set<Value>();
  const variables = new Set(wrt);

  for (const node of forward.toReversed()) {
    if (!node.vjp || !node.outputs.some((output) => active.has(output)) || node.outputs.some((output) => variables.has(output))) continue;
    const incoming = node.outputs.map((output) => gradients.get(output) ?? null);
    if (incoming.every((gradient) => gradient === null)) continue;
    const needed = node.variables.map((variable) => active.has(variable));
    if (!needed.includes(true)) continue;
    node.vjp(incoming, needed).forEach((gradient, index) => {
      if (!gradient || !needed[index]) return;
      const variable = itemAt(node.variables, index);
      const sum = gradients.get(variable) ?? null;
      reached.add(variable);
      gradients.set(variable, typeof gradient === "function" ? gradient(sum) : sum ? add(sum, gradient) : gradient);
    });
  }

  return wrt.map((value) => {
    const gradient = gradients.get(value);
    if (!gradient || !(cotangents.has(value) || reached.has(value)))
      throw new ShapeError(`Expected the target to depend on "${value.name}", found no path between them`);
    return gradient;
  });
}

/** Returns `sources` and all values that depend on them through differentiable nodes. */
function dependents(nodes: readonly Node[], sources: readonly Value[]): Set<Value> {
  const active = new Set<Value>(sources);
  for (const node of nodes) {
    if (node.vjp && node.variables.some((variable) => active.has(variable))) for (const output of node.outputs) active.add(output);
  }
  return active;
}
