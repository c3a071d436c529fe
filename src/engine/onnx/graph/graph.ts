/**
 * The graph that ops are recorded into: values, nodes, and for each node its vector-Jacobian product.
 *
 * A value has a static shape whose dimensions are numbers or names ("B", "T"): names are bound when the graph runs, so
 * one graph serves every batch. Ops never compute anything here; they record a node of the ONNX operator set and how to
 * differentiate it. `differentiate` (autodiff.ts) walks the record backwards, `writeOnnx` (onnx-writer.ts) stores it.
 */
import { ShapeError } from "../../../errors.ts";

/** Element types that the catalogue uses. */
export type DType = "float32" | "int32" | "int64" | "bool";

/** A dimension: fixed, or named and bound at run time. */
export type Dim = number | string;

/** An operator attribute, tagged by its ONNX type. */
export type Attribute =
  | { readonly int: number }
  | { readonly ints: readonly number[] }
  | { readonly float: number }
  | { readonly string: string };

/**
 * One node's share of a variable's gradient: a value, which is added to what came before, or a function from what came
 * before (null = nothing yet) to the sum, where an operator adds as it computes and no copy of the share is needed.
 */
export type Contribution = Value | ((sum: Value | null) => Value);

/**
 * The vector-Jacobian product of a node: from the gradients of its outputs (null where nothing flows back) to the
 * contributions to its variables. `needed[i]` is false where nobody asks for the gradient of variable `i`: return null
 * there and record nothing.
 */
export type Vjp = (gradients: readonly (Value | null)[], needed: readonly boolean[]) => (Contribution | null)[];

/** The result of a node, an input or a constant. */
export interface Value {
  readonly graph: Graph;
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** One recorded operator. */
export interface Node {
  readonly op: string;
  /** Operator domain; "" is the standard one. */
  readonly domain: string;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** What the product is differentiated by: the inputs, unless the op says otherwise. */
  readonly variables: readonly Value[];
  readonly vjp: Vjp | null;
}

/** Contents of a constant. */
export type ConstantData = Float32Array | BigInt64Array;

/** What {@link Graph.record} needs to know of an operator. */
export interface NodeSpec {
  readonly op: string;
  readonly domain?: string | undefined;
  readonly inputs: readonly Value[];
  readonly attributes?: Readonly<Record<string, Attribute>> | undefined;
  readonly outputs: readonly { readonly shape: readonly Dim[]; readonly dtype?: DType | undefined }[];
  /** Absent: gradients stop here. */
  readonly vjp?: Vjp | undefined;
  /**
   * What `vjp` differentiates by, when it is not the operands: an op made of several nodes puts its gradient on the last
   * one, in terms of what went into the first. @default the inputs
   */
  readonly variables?: readonly Value[] | undefined;
}

/** A graph under construction. */
export class Graph {
  readonly nodes: Node[] = [];
  readonly inputs: Value[] = [];
  readonly outputs = new Map<string, Value>();
  readonly constants = new Map<Value, ConstantData>();
  readonly #constantCache = new Map<string, Value>();
  readonly #dims = new Map<string, Value>();
  readonly #shapes = new Map<string, Value>();
  #counter = 0;

  /** Declares an input. A named dimension is bound by the first value that has it, inputs first. */
  input(name: string, shape: readonly Dim[], dtype: DType = "float32"): Value {
    const value: Value = { graph: this, name, dtype, shape };
    this.inputs.push(value);
    return value;
  }

  /** A float32 constant; equal scalars are shared. */
  scalar(x: number): Value {
    return this.#cached(`f:${x}`, [], new Float32Array([x]));
  }

  /** An int64 vector constant; equal ones are shared. */
  ints(values: readonly number[]): Value {
    return this.#cached(
      `i:${values.join(",")}`,
      [values.length],
      BigInt64Array.from(values, (v) => BigInt(v)),
    );
  }

  /** A float32 constant tensor. */
  constant(data: Float32Array, shape: readonly number[]): Value {
    const value: Value = { graph: this, name: `constant_${this.#counter++}`, dtype: "float32", shape };
    this.constants.set(value, data);
    return value;
  }

  /** What stands for an optional operand that is not given. */
  absent(): Value {
    return { graph: this, name: "", dtype: "float32", shape: [] };
  }

  /** The run-time size of a named dimension, an int64 vector of one element. */
  dim(name: string): Value {
    const known = this.#dims.get(name);
    if (known) return known;
    for (const value of [...this.inputs, ...this.nodes.flatMap((node) => node.outputs)]) {
      const axis = value.shape.indexOf(name);
      if (axis < 0) continue;
      const [size] = this.record({
        op: "Shape",
        inputs: [value],
        attributes: { start: { int: axis }, end: { int: axis + 1 } },
        outputs: [{ shape: [1], dtype: "int64" }],
      });
      this.#dims.set(name, size!);
      return size!;
    }
    throw new ShapeError(`Expected a value with a dimension named "${name}" in the graph, found none`);
  }

  /** A shape as an int64 vector; named dimensions are read at run time. */
  shapeVector(shape: readonly Dim[]): Value {
    if (shape.every((dim) => typeof dim === "number")) return this.ints(shape as number[]);
    const parts = shape.map((dim) => (typeof dim === "number" ? this.ints([dim]) : this.dim(dim)));
    if (parts.length === 1) return parts[0]!;
    const key = shape.join(",");
    const known = this.#shapes.get(key);
    if (known) return known;
    const [vector] = this.record({
      op: "Concat",
      inputs: parts,
      attributes: { axis: { int: 0 } },
      outputs: [{ shape: [shape.length], dtype: "int64" }],
    });
    this.#shapes.set(key, vector!);
    return vector!;
  }

  /** Names a value as a result of the graph. */
  output(name: string, value: Value): void {
    this.outputs.set(name, value);
  }

  /** Records a node and returns its outputs. Only op functions call this. */
  record(spec: NodeSpec): Value[] {
    const outputs = spec.outputs.map(({ shape, dtype }): Value => ({
      graph: this,
      name: `${spec.op}_${this.#counter++}`,
      dtype: dtype ?? "float32",
      shape,
    }));
    this.nodes.push({
      op: spec.op,
      domain: spec.domain ?? "",
      inputs: spec.inputs,
      outputs,
      attributes: spec.attributes ?? {},
      variables: spec.variables ?? spec.inputs,
      vjp: spec.vjp ?? null,
    });
    return outputs;
  }

  #cached(key: string, shape: readonly number[], data: ConstantData): Value {
    const known = this.#constantCache.get(key);
    if (known) return known;
    const value: Value = {
      graph: this,
      name: `constant_${this.#counter++}`,
      dtype: data instanceof Float32Array ? "float32" : "int64",
      shape,
    };
    this.constants.set(value, data);
    this.#constantCache.set(key, value);
    return value;
  }
}

/** `[2, "T", 32]` as text, for messages. */
export function formatShape(shape: readonly Dim[]): string {
  return `[${shape.join(", ")}]`;
}

/** Whether two shapes agree in every dimension, names included. */
export function sameShape(a: readonly Dim[], b: readonly Dim[]): boolean {
  return a.length === b.length && a.every((dim, i) => dim === b[i]);
}
