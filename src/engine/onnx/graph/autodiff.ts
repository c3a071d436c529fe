import { ShapeError } from "../../../errors.ts";
import type { Node, Value } from "./graph.ts";
import { add } from "./ops/elementwise.ts";

/**
 * Reverse-mode differentiation: appends to the graph the nodes that compute `∂ target / ∂ wrt[i]`.
 *
 * Gradients flow only along paths that lead from a `wrt` value to the target; nothing is recorded for the rest, so a
 * frozen weight costs nothing. Values reached several times have their contributions added in the order of the walk,
 * which is fixed, so that the same graph always sums in the same order.
 *
 * @param target - A scalar, shape `[]`.
 * @param wrt - Inputs or intermediate values of the same graph.
 * @param start - For graph inputs among `wrt`: what their gradient is added to, for accumulation over several runs.
 * @returns One gradient per `wrt`, of the same shape.
 * @throws ShapeError `E_SHAPE` when the target is not a scalar or does not depend on one of `wrt`.
 */
export function differentiate(target: Value, wrt: readonly Value[], start: ReadonlyMap<Value, Value> = new Map()): Value[] {
  const { graph } = target;
  if (target.shape.length !== 0) throw new ShapeError(`Expected a scalar to differentiate, got shape [${target.shape.join(", ")}]`);
  const forward = [...graph.nodes];
  const active = dependents(forward, wrt);
  const gradients = new Map<Value, Value>([[target, graph.scalar(1)], ...start]);
  const reached = new Set<Value>();

  for (let i = forward.length - 1; i >= 0; i--) {
    const node = forward[i]!;
    if (!node.vjp || !node.outputs.some((output) => active.has(output))) continue;
    const incoming = node.outputs.map((output) => gradients.get(output) ?? null);
    if (incoming.every((gradient) => gradient === null)) continue;
    const needed = node.variables.map((variable) => active.has(variable));
    if (!needed.includes(true)) continue;
    node.vjp(incoming, needed).forEach((gradient, index) => {
      if (!gradient || !needed[index]) return;
      const variable = node.variables[index]!;
      const sum = gradients.get(variable) ?? null;
      reached.add(variable);
      gradients.set(variable, typeof gradient === "function" ? gradient(sum) : sum ? add(sum, gradient) : gradient);
    });
  }

  return wrt.map((value) => {
    const gradient = gradients.get(value);
    if (!gradient || (value !== target && !reached.has(value)))
      throw new ShapeError(`Expected the target to depend on "${value.name}", found no path between them`);
    return gradient;
  });
}

/** The values through which a change of `sources` reaches something differentiable. */
function dependents(nodes: readonly Node[], sources: readonly Value[]): Set<Value> {
  const active = new Set<Value>(sources);
  for (const node of nodes) {
    if (node.vjp && node.variables.some((variable) => active.has(variable))) for (const output of node.outputs) active.add(output);
  }
  return active;
}
