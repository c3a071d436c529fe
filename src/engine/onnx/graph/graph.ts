/**
 * Computation graph that ops are recorded into: values, and nodes with their vector-Jacobian products.
 *
 * A value has a static shape of fixed and named dimensions ("B", "T"). Names are bound when the graph runs, so one graph serves batches
 * of any size. Ops compute nothing; they record a node of the ONNX operator set and its derivative. `differentiate` (autodiff.ts) adds
 * gradient nodes, and `writeOnnx` (onnx-writer.ts) serializes the graph.
 */
import { ShapeError } from "../../../base/errors.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** Element types. Ops compute with all except float16 and uint8, types of stored weights: see `graph/lower.ts`. */
export type DType = "float16" | "float32" | "int32" | "int64" | "uint8" | "bool";

/** Dimension: a fixed size, or a name that is bound at run time. */
export type Dim = number | string;

/** Operator attribute, tagged by its ONNX type. */
export type Attribute =
  | { readonly int: number }
  | { readonly ints: readonly number[] }
  | { readonly float: number }
  | { readonly string: string }
  | { readonly body: Graph };

/**
 * Contribution of one node to the gradient of a variable: a value, which is added to the gradient so far, or a function from the gradient
 * so far (null = none yet) to the new gradient. The function lets an operator add during its computation, without a temporary.
 */
export type Contribution = Value | ((sum: Value | null) => Value);

/**
 * Vector-Jacobian product of a node: a function from the gradients of the node's outputs (null = no gradient) to the contributions to
 * its variables. If `needed[i]` is false, the gradient of variable `i` is not used; return null for it and record nothing.
 */
export type Vjp = (gradients: readonly (Value | null)[], needed: readonly boolean[]) => (Contribution | null)[];

/** Result of a node, graph input, or constant. */
export interface Value {
  readonly graph: Graph;
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** Recorded operator. */
export interface Node {
  readonly op: string;
  /** Operator domain; "" is the standard ONNX domain. */
  readonly domain: string;
  /** Operands, then the values that the bodies of the node capture, in the order of {@link standIns}. */
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** Values that `vjp` differentiates with respect to. */
  readonly variables: readonly Value[];
  readonly vjp: Vjp | null;
}

/** Contents of a constant. */
export type ConstantData = Float32Array | BigInt64Array;

/** Shape and type of an output. */
export interface OutputSpec {
  readonly shape: readonly Dim[];
  /** @default "float32" */
  readonly dtype?: DType | undefined;
}

/** Operator with its operands, for {@link Graph.record} and {@link Graph.recordOne}. */
interface OperatorSpec {
  readonly op: string;
  readonly domain?: string | undefined;
  readonly inputs: readonly Value[];
  readonly attributes?: Readonly<Record<string, Attribute>> | undefined;
  /**
   * Values that `vjp` differentiates with respect to. An op of several nodes attaches its gradient to the last node, with the inputs of
   * the first node as variables. @default the inputs
   */
  readonly variables?: readonly Value[] | undefined;
}

/** Operator with any number of outputs. */
export interface NodeSpec extends OperatorSpec {
  readonly outputs: readonly OutputSpec[];
  /** Vector-Jacobian product. If absent, no gradient flows to the inputs. */
  readonly vjp?: Vjp | undefined;
}

/** Operator with one output. */
export interface SingleOutputSpec extends OperatorSpec {
  readonly output: OutputSpec;
  /** Vector-Jacobian product: {@link Vjp} with the gradient of the output. If absent, no gradient flows to the inputs. */
  readonly vjp?: ((gradient: Value, needed: readonly boolean[]) => (Contribution | null)[]) | undefined;
}

/** Computation graph under construction. */
export class Graph {
  readonly nodes: Node[] = [];
  readonly inputs: Value[] = [];
  readonly outputs = new Map<string, Value>();
  /** Names of the outputs that their own node writes, see {@link directOutput}. */
  readonly directNames = new Map<Value, string>();
  readonly constants = new Map<Value, ConstantData>();
  /** Named dimensions of at most some hundreds of elements, for which a device may use other kernels. */
  readonly smallDims = new Set<string>();
  /** Values of the surrounding graph that a body reads, by their stand-ins in the body; see {@link capture}. */
  readonly captured = new Map<Value, Value>();
  readonly #prefix: string;
  readonly #surrounding: Graph | null;
  readonly #constantCache = new Map<string, Value>();
  readonly #dims = new Map<string, Value>();
  readonly #shapes = new Map<string, Value>();
  #counter = 0;

  /**
   * @param surrounding - Graph with the operator that runs this graph as a body; see {@link Graph.body}. @default none
   * @param prefix - Prefix of the names of values. The values of a body need other names than those of the surrounding graph. @default no prefix
   */
  constructor(surrounding: Graph | null = null, prefix = "") {
    this.#surrounding = surrounding;
    this.#prefix = prefix;
  }

  /** Returns a graph that an operator of this graph can run as an attribute. */
  body(): Graph {
    return new Graph(this, `${this.#prefix}body${this.#counter++}_`);
  }

  /** Declares a graph input. The run-time size of a named dimension is read from the first value with it, inputs first. */
  input(name: string, shape: readonly Dim[], dtype: DType = "float32"): Value {
    const value: Value = { graph: this, name, dtype, shape };
    this.inputs.push(value);
    return value;
  }

  /** Returns a name for an input or output of this body, which no other graph has. */
  nameOf(label: string): string {
    return this.#prefix + label;
  }

  /**
   * Returns a value of the surrounding graph as a value of this body. The node that runs the body has these values as its last inputs.
   *
   * @param shape - Shape of the value in this body, whose dimensions may have other names. @default the value's
   */
  capture(value: Value, shape = value.shape): Value {
    const standIn: Value = { graph: this, name: `${this.#prefix}captured_${this.#counter++}`, dtype: value.dtype, shape };
    this.captured.set(standIn, value);
    return standIn;
  }

  /** Returns a float32 scalar constant; equal scalars are shared. */
  scalar(x: number): Value {
    return this.#cached(`f:${x}`, [], new Float32Array([x]));
  }

  /** Returns an int64 vector constant; equal vectors are shared. */
  ints(values: readonly number[]): Value {
    return this.#cached(`i:${values.join(",")}`, [values.length], BigInt64Array.from(values, BigInt));
  }

  /** Returns a float32 constant tensor. */
  constant(data: Float32Array, shape: readonly number[]): Value {
    const value: Value = { graph: this, name: `${this.#prefix}constant_${this.#counter++}`, dtype: "float32", shape };
    this.constants.set(value, data);
    return value;
  }

  /** Returns a placeholder for an omitted optional operand. */
  absent(): Value {
    return { graph: this, name: "", dtype: "float32", shape: [] };
  }

  /**
   * Returns the run-time size of a named dimension, as an int64 vector of one element.
   *
   * @throws ShapeError `E_SHAPE` if no value has such a dimension.
   */
  dim(name: string): Value {
    return getOrInsert(this.#dims, name, () => {
      if (this.#surrounding?.hasDim(name)) return this.capture(this.#surrounding.dim(name));
      const value = this.#withDim(name);
      if (value === undefined) throw new ShapeError(`Expected a value with a dimension named "${name}" in the graph, found none`);
      const axis = value.shape.indexOf(name);
      return this.recordOne({
        op: "Shape",
        inputs: [value],
        attributes: { start: { int: axis }, end: { int: axis + 1 } },
        output: { shape: [1], dtype: "int64" },
      });
    });
  }

  /** Whether this graph or a surrounding one has a value with a dimension of this name. */
  hasDim(name: string): boolean {
    return this.#surrounding?.hasDim(name) === true || this.#withDim(name) !== undefined;
  }

  /** Returns the first value with a dimension of this name. */
  #withDim(name: string): Value | undefined {
    const hasName = ({ shape }: Value) => shape.includes(name);
    const found = this.inputs.find(hasName) ?? [...this.captured.keys()].find(hasName);
    if (found !== undefined) return found;
    for (const { outputs } of this.nodes) {
      const output = outputs.find(hasName);
      if (output !== undefined) return output;
    }
    return undefined;
  }

  /** Returns a shape as an int64 vector; named dimensions are read at run time. */
  shapeVector(shape: readonly Dim[]): Value {
    if (shape.every((dim) => typeof dim === "number")) return this.ints(shape as number[]);
    const surrounding = this.#surrounding;
    if (surrounding && shape.every((dim) => typeof dim === "number" || surrounding.hasDim(dim)))
      return getOrInsert(this.#shapes, shape.join(","), () => this.capture(surrounding.shapeVector(shape)));
    const parts = shape.map((dim) => (typeof dim === "number" ? this.ints([dim]) : this.dim(dim)));
    const [first] = parts;
    if (first && parts.length === 1) return first;
    const key = shape.join(",");
    const known = this.#shapes.get(key);
    if (known) return known;
    const vector = this.recordOne({
      op: "Concat",
      inputs: parts,
      attributes: { axis: { int: 0 } },
      output: { shape: [shape.length], dtype: "int64" },
    });
    this.#shapes.set(key, vector);
    return vector;
  }

  /** Declares a value as a named output of the graph. The runtime copies the value to the output if other nodes read it. */
  output(name: string, value: Value): void {
    this.outputs.set(name, value);
  }

  /** Declares the result of a node as a named output that the node writes itself, without a copy. A value has at most one such name. */
  directOutput(name: string, value: Value): void {
    this.outputs.set(name, value);
    this.directNames.set(value, name);
  }

  /** Records a node and returns its outputs. For op functions only. */
  record({ outputs: specs, vjp, ...spec }: NodeSpec): Value[] {
    const outputs = specs.map((each) => this.#result(spec.op, each));
    this.#push(spec, outputs, vjp ?? null);
    return outputs;
  }

  /** Records a node with one output and returns the output. For op functions only. */
  recordOne({ output: outputSpec, vjp, ...spec }: SingleOutputSpec): Value {
    const output = this.#result(spec.op, outputSpec);
    // A node is differentiated only if one of its outputs has a gradient.
    this.#push(spec, [output], vjp ? ([gradient], needed) => vjp(gradient as Value, needed) : null);
    return output;
  }

  #result(op: string, { shape, dtype = "float32" }: OutputSpec): Value {
    return { graph: this, name: `${this.#prefix}${op}_${this.#counter++}`, dtype, shape };
  }

  #push({ op, domain = "", inputs, attributes = {}, variables = inputs }: OperatorSpec, outputs: readonly Value[], vjp: Vjp | null): void {
    this.nodes.push({ op, domain, inputs, outputs, attributes, variables, vjp });
  }

  #cached(key: string, shape: readonly number[], data: ConstantData): Value {
    const known = this.#constantCache.get(key);
    if (known) return known;
    const value: Value = {
      graph: this,
      name: `${this.#prefix}constant_${this.#counter++}`,
      dtype: data instanceof Float32Array ? "float32" : "int64",
      shape,
    };
    this.constants.set(value, data);
    this.#constantCache.set(key, value);
    return value;
  }
}

/** Returns the stand-ins of the values that the bodies of a node capture. */
export function standIns(attributes: Node["attributes"]): Value[] {
  return Object.values(attributes).flatMap((attribute) => ("body" in attribute ? [...attribute.body.captured.keys()] : []));
}

/** Returns the nodes that an output depends on, in recording order, which is topological. */
export function liveNodes(graph: Graph): Node[] {
  const needed = new Set<Value>(graph.outputs.values());
  const live: Node[] = [];
  for (const node of graph.nodes.toReversed()) {
    if (!node.outputs.some((output) => needed.has(output))) continue;
    for (const input of node.inputs) needed.add(input);
    live.push(node);
  }
  return live.reverse();
}

/** Formats a shape such as `[2, "T", 32]` for error messages. */
export function formatShape(shape: readonly Dim[]): string {
  return `[${shape.join(", ")}]`;
}

/** Whether two shapes are equal in every dimension, including names. */
export function sameShape(a: readonly Dim[], b: readonly Dim[]): boolean {
  return a.length === b.length && a.every((dim, i) => dim === b[i]);
}
