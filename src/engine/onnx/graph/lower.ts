/** Replacement of operators that an execution provider lacks, and of the types of inputs, before a graph is serialized. */
import { ShapeError } from "../../../base/errors.ts";
import { type BlockFormat, type BlockInput, blockInput, readBlocks } from "./block-inputs.ts";
import { type DType, Graph, liveNodes, type Node, type Value } from "./graph.ts";
import { cast } from "./ops/elementwise.ts";
import { transpose } from "./ops/shape.ts";
import { first, getOrInsert, getOrThrow, itemAt } from "../../../base/util/values.ts";

/**
 * Records nodes that compute the same as `node` and returns their outputs, one per output of `node`; null keeps the node.
 *
 * @param node - Node to replace, of the original graph.
 * @param inputs - Inputs of the node in the new graph.
 * @param isUsed - Whether an output of the node is an input of another node or an output of the graph.
 */
export type Lowering = (node: Node, inputs: readonly Value[], isUsed: (output: number) => boolean) => readonly Value[] | null;

/** Tuple of `Count` values. */
type Values<Count extends number, Found extends Value[] = []> = Found["length"] extends Count ? Found : Values<Count, [...Found, Value]>;

/**
 * Returns the first inputs of a node.
 *
 * @throws ShapeError `E_SHAPE` if the node has fewer inputs.
 */
export function firstInputs<Count extends 1 | 2 | 3>({ op }: Node, inputs: readonly Value[], count: Count): Values<Count> {
  if (inputs.length < count) throw new ShapeError(`Expected ${count} inputs of ${op}, got ${inputs.length}`);
  return inputs.slice(0, count) as Values<Count>;
}

/** Lowerings by operator, with the domain in front for operators outside the standard one, such as `com.microsoft.FusedMatMul`. */
export type LoweringTable = Readonly<Record<string, Lowering>>;

/** Name of the flat input that holds the inputs of {@link LoweredInputs.packed}. */
export const PACKED_INPUT = "packed";

/** Returns the names of the int64 inputs with the start, the end and the shape of a packed input. */
export const packedNames = (name: string) => ({ start: `${name}_start`, end: `${name}_end`, shape: `${name}_shape` });

/** Form in which a float32 input is stored: as float16, as the transposed matrix, or as a matrix in blocks. */
export type StoredFormat = "float16" | "transposed" | BlockFormat;

/** Formats of stored inputs by the name of the input. */
export type StoredFormats = ReadonlyMap<string, StoredFormat>;

/** Inputs that a lowered graph takes in another form, by name. */
export interface LoweredInputs {
  /**
   * Inputs that the new graph takes as one flat float32 input, {@link PACKED_INPUT}, because each input costs a transfer to a device. Their
   * positions and shapes are inputs, too, see {@link packedNames}. Integers, exact below 2^24, become int32, so their nodes must accept
   * that.
   * @default none
   */
  readonly packed?: readonly string[] | undefined;
  /**
   * float32 inputs that the new graph takes in the form in which they are stored. A node that reads one reads a float32 copy of its own, so
   * that few copies are in memory at a time, or multiplies by the matrix in blocks or by the transposed matrix; a Gather converts only the
   * gathered rows. Of a matrix in blocks, the new graph has an input for each part, see {@link blockInput}. @default none
   */
  readonly stored?: StoredFormats | undefined;
}

/** Returns a graph with the same outputs in which the operators of `table` are replaced; gradients are not copied. */
export function lower(graph: Graph, table: LoweringTable, { packed = [], stored = new Map() }: LoweredInputs = {}): Graph {
  const lowered = new Graph();
  for (const dim of graph.smallDims) lowered.smallDims.add(dim);
  const isPacked = new Set(packed);
  const flat = packed.length === 0 ? null : lowered.input(PACKED_INPUT, ["packed_size"]);
  const inBlocks = new Map<Value, BlockInput>();
  const transposedInputs = new Map<Value, Value>();
  const inputOf = (input: Value): [Value, Value][] => {
    if (flat !== null && isPacked.has(input.name)) return [[input, unpacked(flat, input)]];
    const format = stored.get(input.name);
    if (format === undefined || format === "float16") return [[input, lowered.input(input.name, input.shape, format ?? input.dtype)]];
    if (format === "transposed") {
      transposedInputs.set(input, lowered.input(input.name, input.shape.toReversed()));
      return [];
    }
    inBlocks.set(input, blockInput(lowered, input, format));
    return [];
  };
  const nodes = liveNodes(graph);
  const used = new Set<Value>([...nodes.flatMap((node) => node.inputs), ...graph.outputs.values()]);
  const values = new Map<Value, Value>(graph.inputs.flatMap(inputOf));
  const valueOf = (value: Value): Value =>
    getOrInsert(values, value, () => {
      const data = graph.constants.get(value);
      if (data === undefined) return lowered.absent();
      return data instanceof Float32Array ? lowered.constant(data, value.shape as number[]) : lowered.ints(Array.from(data, Number));
    });
  /** Returns a value as a node of the original graph reads it. */
  const readableOf = (value: Value): Value => {
    const matrix = transposedInputs.get(value);
    return matrix === undefined ? ofType(value.dtype, valueOf(value)) : transpose(matrix, [1, 0]);
  };
  for (const node of nodes) {
    const { op, domain, attributes, outputs: originals } = node;
    const matrix = node.inputs.findIndex((input) => inBlocks.has(input));
    if (matrix >= 0) {
      const inputs = node.inputs.map((input, i) => (i === matrix ? lowered.absent() : valueOf(input)));
      values.set(first(originals), readBlocks(node, matrix, inputs, getOrThrow(inBlocks, itemAt(node.inputs, matrix))));
      continue;
    }
    const right = node.inputs[1] && transposedInputs.get(node.inputs[1]);
    if (right !== undefined && isMatrixProduct(node)) {
      const inputs = node.inputs.map((input, i) => (i === 1 ? right : readableOf(input)));
      values.set(first(originals), transposedProduct(node, inputs));
      continue;
    }
    // A Gather reads a float16 table itself; only its result is converted.
    const isHalfTable = op === "Gather" && !transposedInputs.has(first(node.inputs)) && valueOf(first(node.inputs)).dtype === "float16";
    const inputs = node.inputs.map((input) => (isHalfTable ? valueOf(input) : readableOf(input)));
    const lowering = table[domain === "" ? op : `${domain}.${op}`];
    const outputs =
      lowering?.(node, inputs, (output) => used.has(itemAt(originals, output))) ??
      lowered.record({
        op,
        domain,
        inputs,
        attributes,
        outputs: isHalfTable ? originals.map(({ shape }) => ({ shape, dtype: "float16" })) : originals,
      });
    originals.forEach((output, i) => values.set(output, ofType(output.dtype, itemAt(outputs, i))));
  }
  for (const [name, value] of graph.outputs) {
    const output = ofType(value.dtype, valueOf(value));
    if (graph.directNames.get(value) === name) lowered.directOutput(name, output);
    else lowered.output(name, output);
  }
  return lowered;
}

/** Whether a node is a product of two matrices. */
function isMatrixProduct({ op, domain, inputs }: Node): boolean {
  return domain === "" && (op === "Gemm" || (op === "MatMul" && inputs.every(({ shape }) => shape.length === 2)));
}

/** Records the product of a node. @param inputs - Inputs of the node, with the right matrix transposed. */
function transposedProduct({ op, attributes, outputs }: Node, inputs: readonly Value[]): Value {
  const { transB } = attributes;
  const isTransposed = op === "Gemm" && transB !== undefined && "int" in transB && Number(transB.int) === 1;
  return first(inputs).graph.recordOne({
    op: "Gemm",
    inputs,
    attributes: { ...attributes, transB: { int: Number(!isTransposed) } },
    output: first(outputs),
  });
}

/** Returns a float16 value in the type that the original graph reads, and any other value unchanged. */
function ofType(dtype: DType, value: Value): Value {
  return value.dtype === "float16" && dtype === "float32" ? cast(value, dtype) : value;
}

/** Operators that copy weights, or unpack and dequantize matrices in blocks. */
const COPIES: ReadonlySet<string> = new Set([
  "BitShift",
  "BitwiseAnd",
  "Cast",
  "Concat",
  "DequantizeLinear",
  "Expand",
  "Reshape",
  "Transpose",
]);

/**
 * Makes the runtime convert, dequantize, join and transpose weights directly before the node that reads them, and returns the graph. Otherwise it copies
 * all weights before the first layer, and all copies are in memory at once.
 *
 * For this, the copies become the *first* nodes of the graph: the runtime orders nodes depth-first from the outputs, and among the inputs
 * of a node, the input recorded first is computed last.
 */
export function runCopiesLate(graph: Graph): Graph {
  const copies = new Set<Value>([...graph.inputs, ...graph.constants.keys()]);
  const [early, others]: [Node[], Node[]] = [[], []];
  for (const node of graph.nodes) {
    const isCopy = COPIES.has(node.op) && node.inputs.every((input) => copies.has(input));
    (isCopy ? early : others).push(node);
    if (isCopy) copies.add(first(node.outputs));
  }
  graph.nodes.splice(0, graph.nodes.length, ...early, ...others);
  return graph;
}

/** Cuts an input out of the flat input. */
function unpacked(flat: Value, { name, shape, dtype }: Value): Value {
  const { graph } = flat;
  const names = packedNames(name);
  const bound = (of: string) => graph.input(of, [1], "int64");
  const part = graph.recordOne({
    op: "Slice",
    inputs: [flat, bound(names.start), bound(names.end), graph.ints([0])],
    output: { shape: [`${name}_size`] },
  });
  const whole = graph.recordOne({
    op: "Reshape",
    inputs: [part, graph.input(names.shape, [shape.length], "int64")],
    output: { shape },
  });
  return dtype === "float32" ? whole : cast(whole, "int32");
}
