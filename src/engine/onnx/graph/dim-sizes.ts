/** Sizes of named dimensions, from the shapes of the inputs of a run. */
import { type Dim, type Graph, liveNodes, type Node } from "./graph.ts";
import { first, getOrThrow, itemAt } from "../../../base/util/values.ts";

/** Shapes of the inputs of a run, by name. */
export type InputShapes = Readonly<Record<string, { readonly dims: readonly number[] }>>;

/** Named dimension whose size is `(Σ sum) · Π factors / Π divisors`. */
interface Rule {
  readonly name: string;
  readonly sum: readonly Dim[];
  readonly factors: readonly Dim[];
  readonly divisors: readonly Dim[];
}

/**
 * Returns a function that computes the sizes of a graph's named dimensions from the shapes of its inputs. A dimension that no input has is
 * computed from the first Concat or Reshape that determines it; without one, it is not in the result.
 */
export function dimSizes(graph: Graph): (inputs: InputShapes) => ReadonlyMap<string, number> {
  const inputs = graph.inputs.map(({ name, shape }) => ({ name, shape }));
  const known = new Set<Dim>(inputs.flatMap(({ shape }) => shape));
  const rules: Rule[] = [];
  for (const node of liveNodes(graph)) {
    const rule = ruleOf(node, (dim) => typeof dim === "number" || known.has(dim));
    if (rule === null) continue;
    known.add(rule.name);
    rules.push(rule);
  }
  return (tensors) => {
    const sizes = new Map<string, number>();
    for (const { name, shape } of inputs) {
      const dims = tensors[name]?.dims;
      shape.forEach((dim, axis) => {
        if (typeof dim === "string" && dims !== undefined) sizes.set(dim, itemAt(dims, axis));
      });
    }
    const sizeOf = (dim: Dim) => (typeof dim === "number" ? dim : getOrThrow(sizes, dim));
    const product = (dims: readonly Dim[]) => dims.reduce<number>((all, dim) => all * sizeOf(dim), 1);
    for (const { name, sum, factors, divisors } of rules)
      sizes.set(name, (sum.reduce<number>((all, dim) => all + sizeOf(dim), 0) * product(factors)) / product(divisors));
    return sizes;
  };
}

/** Returns a shape with the sizes of its named dimensions; null if one is unknown. */
export function sizedShape(shape: readonly Dim[], sizes: ReadonlyMap<string, number>): number[] | null {
  const dims = shape.map((dim) => (typeof dim === "number" ? dim : sizes.get(dim)));
  return dims.includes(undefined) ? null : (dims as number[]);
}

/** Returns the rule for the unknown dimension of a node; null unless exactly one dimension is unknown. */
function ruleOf({ op, inputs, outputs, attributes }: Node, isKnown: (dim: Dim) => boolean): Rule | null {
  const [before, after] = [inputs[0]?.shape ?? [], first(outputs).shape];
  if (op === "Concat") {
    const { int: axis } = attributes["axis"] as { readonly int: number };
    const sum = inputs.map(({ shape }) => itemAt(shape, axis));
    const name = itemAt(after, axis);
    return isKnown(name) || !sum.every(isKnown) ? null : { name: name as string, sum, factors: [], divisors: [] };
  }
  if (op !== "Reshape") return null;
  // Both shapes have the same number of elements, so the unknown dimension is a quotient.
  const unknown = [...before, ...after].filter((dim) => !isKnown(dim));
  if (unknown.length !== 1) return null;
  const [name] = unknown as [string];
  const [side, other] = before.includes(name) ? [before, after] : [after, before];
  return { name, sum: [1], factors: other, divisors: side.filter((dim) => dim !== name) };
}
