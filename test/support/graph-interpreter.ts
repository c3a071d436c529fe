/**
 * A slow, readable float64 interpreter of recorded graphs: the reference that both the gradients and the native kernels
 * are held to. Every operator is written from its definition, with plain loops.
 */
import type { Attribute, Graph, Node, Value } from "../../src/engine/onnx/graph/graph.ts";

export interface Array64 {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export type Feeds = Readonly<Record<string, Array64>>;

export function array64(shape: readonly number[], data: ArrayLike<number>): Array64 {
  return { shape, data: Float64Array.from(data) };
}

const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const int = (node: Node, name: string, fallback: number) => {
  const attribute: Attribute | undefined = node.attributes[name];
  return attribute && "int" in attribute ? attribute.int : fallback;
};
const float = (node: Node, name: string, fallback: number) => {
  const attribute: Attribute | undefined = node.attributes[name];
  return attribute && "float" in attribute ? attribute.float : fallback;
};

function stridesOf(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length).fill(1);
  for (let i = shape.length - 2; i >= 0; i--) strides[i] = strides[i + 1]! * shape[i + 1]!;
  return strides;
}

/** Calls `visit(flat, coordinates)` for every element in row-major order. */
function forEachIndex(shape: readonly number[], visit: (flat: number, at: number[]) => void): void {
  const at = new Array<number>(shape.length).fill(0);
  const total = size(shape);
  for (let flat = 0; flat < total; flat++) {
    visit(flat, at);
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      if (++at[axis]! < shape[axis]!) break;
      at[axis] = 0;
    }
  }
}

function broadcast(inputs: readonly Array64[], f: (...x: number[]) => number): Array64 {
  const rank = Math.max(...inputs.map((x) => x.shape.length));
  const shape = Array.from({ length: rank }, (_, i) => {
    const dims = inputs.map((x) => x.shape[i - rank + x.shape.length] ?? 1);
    return dims.includes(0) ? 0 : Math.max(...dims);
  });
  const data = new Float64Array(size(shape));
  const strides = inputs.map((x) => stridesOf(x.shape));
  forEachIndex(shape, (flat, at) => {
    const values = inputs.map((x, k) => {
      let offset = 0;
      x.shape.forEach((dim, i) => (offset += dim === 1 ? 0 : at[i + rank - x.shape.length]! * strides[k]![i]!));
      return x.data[offset]!;
    });
    data[flat] = f(...values);
  });
  return { shape, data };
}

function lastAxis(x: Array64, f: (row: Float64Array) => ArrayLike<number>): Array64 {
  const width = x.shape.at(-1)!;
  const data = new Float64Array(x.data.length);
  for (let i = 0; i < x.data.length; i += width) data.set(Array.from(f(x.data.subarray(i, i + width))), i);
  return { shape: x.shape, data };
}

function softmaxRow(row: Float64Array): Float64Array {
  const max = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const e = row.map((v) => Math.exp(v - max));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((v) => v / sum);
}

function product(a: Array64, b: Array64, transA: boolean, transB: boolean, alpha: number): Array64 {
  const [ar, ac] = a.shape.slice(-2) as [number, number];
  const [br, bc] = b.shape.slice(-2) as [number, number];
  const [m, k] = transA ? [ac, ar] : [ar, ac];
  const n = transB ? br : bc;
  const batch = a.shape.slice(0, -2);
  const out = new Float64Array(size(batch) * m * n);
  for (let s = 0; s < size(batch); s++) {
    for (let i = 0; i < m; i++) {
      for (let p = 0; p < k; p++) {
        const x = alpha * a.data[s * m * k + (transA ? p * ac + i : i * ac + p)]!;
        for (let j = 0; j < n; j++) out[s * m * n + i * n + j]! += x * b.data[s * k * n + (transB ? j * bc + p : p * bc + j)]!;
      }
    }
  }
  return { shape: [...batch, m, n], data: out };
}

function reduce(x: Array64, axes: readonly number[], mean: boolean): Array64 {
  const shape = x.shape.map((dim, i) => (axes.includes(i) ? 1 : dim));
  const strides = stridesOf(shape);
  const data = new Float64Array(size(shape));
  forEachIndex(x.shape, (flat, at) => {
    let offset = 0;
    at.forEach((v, i) => (offset += axes.includes(i) ? 0 : v * strides[i]!));
    data[offset]! += x.data[flat]!;
  });
  const count = mean ? axes.reduce((n, axis) => n * x.shape[axis]!, 1) : 1;
  return { shape, data: data.map((v) => v / count) };
}

function slicePieces(x: Array64, axis: number, sizes: readonly number[]): Array64[] {
  let start = 0;
  return sizes.map((count) => {
    const shape = x.shape.map((dim, i) => (i === axis ? count : dim));
    const strides = stridesOf(x.shape);
    const data = new Float64Array(size(shape));
    forEachIndex(shape, (flat, at) => {
      let offset = 0;
      at.forEach((v, i) => (offset += (i === axis ? v + start : v) * strides[i]!));
      data[flat] = x.data[offset]!;
    });
    start += count;
    return { shape, data };
  });
}

type Evaluate = (x: readonly Array64[], node: Node) => Array64[];

const elementwise =
  (f: (...x: number[]) => number): Evaluate =>
  (x) => [broadcast(x, f)];

const OPS: Record<string, Evaluate> = {
  Add: elementwise((a, b) => a! + b!),
  Sub: elementwise((a, b) => a! - b!),
  Mul: elementwise((a, b) => a! * b!),
  Div: elementwise((a, b) => a! / b!),
  Min: elementwise((a, b) => Math.min(a!, b!)),
  Max: elementwise((a, b) => Math.max(a!, b!)),
  LessOrEqual: elementwise((a, b) => (a! <= b! ? 1 : 0)),
  Where: elementwise((c, a, b) => (c ? a! : b!)),
  Neg: elementwise((a) => -a!),
  Exp: elementwise((a) => Math.exp(a!)),
  Sqrt: elementwise((a) => Math.sqrt(a!)),
  Sigmoid: elementwise((a) => 1 / (1 + Math.exp(-a!))),
  Identity: (x) => [x[0]!],
  Cast: ([x], node) => [{ shape: x!.shape, data: int(node, "to", 1) === 1 ? x!.data : x!.data.map(Math.trunc) }],
  MatMul: ([a, b]) => [product(a!, b!, false, false, 1)],
  Gemm: ([a, b, c], node) => {
    const y = product(a!, b!, int(node, "transA", 0) === 1, int(node, "transB", 0) === 1, float(node, "alpha", 1));
    return [c ? broadcast([y, c], (u, v) => u! + v!) : y];
  },
  FusedMatMul: ([a, b], node) => [product(a!, b!, int(node, "transA", 0) === 1, int(node, "transB", 0) === 1, float(node, "alpha", 1))],
  Softmax: ([x]) => [lastAxis(x!, softmaxRow)],
  LogSoftmax: ([x]) => [lastAxis(x!, (row) => softmaxRow(row).map(Math.log))],
  ReduceSum: ([x, axes]) => [reduce(x!, [...axes!.data], false)],
  Shape: ([x], node) => {
    const dims = x!.shape.slice(int(node, "start", 0), int(node, "end", x!.shape.length));
    return [array64([dims.length], dims)];
  },
  Reshape: ([x, target]) => {
    const wanted = [...target!.data].map((dim, i) => (dim === 0 ? x!.shape[i]! : dim));
    const known = wanted.reduce((a, b) => (b === -1 ? a : a * b), 1);
    return [{ shape: wanted.map((dim) => (dim === -1 ? x!.data.length / known : dim)), data: x!.data }];
  },
  Transpose: ([x], node) => {
    const attribute = node.attributes["perm"];
    const perm = attribute && "ints" in attribute ? attribute.ints : [];
    const shape = perm.map((axis) => x!.shape[axis]!);
    const strides = stridesOf(x!.shape);
    const data = new Float64Array(x!.data.length);
    forEachIndex(shape, (flat, at) => {
      let offset = 0;
      at.forEach((v, i) => (offset += v * strides[perm[i]!]!));
      data[flat] = x!.data[offset]!;
    });
    return [{ shape, data }];
  },
  Expand: ([x, target]) => {
    const ones = { shape: [...target!.data], data: new Float64Array(size([...target!.data])) };
    return [broadcast([x!, ones], (a) => a!)];
  },
  Concat: (x, node) => {
    const axis = int(node, "axis", 0);
    const shape = x[0]!.shape.map((dim, i) => (i === axis ? x.reduce((n, part) => n + part.shape[axis]!, 0) : dim));
    const strides = stridesOf(shape);
    const data = new Float64Array(size(shape));
    let start = 0;
    for (const part of x) {
      forEachIndex(part.shape, (flat, at) => {
        let offset = 0;
        at.forEach((v, i) => (offset += (i === axis ? v + start : v) * strides[i]!));
        data[offset] = part.data[flat]!;
      });
      start += part.shape[axis]!;
    }
    return [{ shape, data }];
  },
  Slice: ([x, starts, ends, axes]) => {
    const axis = axes!.data[0]!;
    const [start, end] = [starts!.data[0]!, ends!.data[0]!];
    return [slicePieces(x!, axis, [start, end - start])[1]!];
  },
  Split: ([x, sizes], node) => slicePieces(x!, int(node, "axis", 0), [...sizes!.data]),
  Gather: ([table, indices]) => {
    const width = table!.shape[1]!;
    const data = new Float64Array(indices!.data.length * width);
    indices!.data.forEach((row, i) => data.set(table!.data.subarray(row * width, (row + 1) * width), i * width));
    return [{ shape: [indices!.data.length, width], data }];
  },
  GatherElements: ([x, indices]) => {
    const width = x!.shape[1]!;
    return [{ shape: indices!.shape, data: indices!.data.map((column, row) => x!.data[row * width + column]!) }];
  },
  ScatterAddRows: ([table, indices, updates]) => {
    const width = table!.shape[1]!;
    const data = Float64Array.from(table!.data);
    updates!.data.forEach((value, i) => (data[indices!.data[Math.floor(i / width)]! * width + (i % width)]! += value));
    return [{ shape: table!.shape, data }];
  },
  ScatterElements: ([base, indices, updates], node) => {
    const width = base!.shape[1]!;
    const columns = updates!.shape[1]!;
    const data = Float64Array.from(base!.data);
    updates!.data.forEach((value, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      const index = indices!.data[i]!;
      data[int(node, "axis", 0) === 0 ? index * width + column : row * width + index]! += value;
    });
    return [{ shape: base!.shape, data }];
  },
  OneHot: ([indices, depth, values]) => {
    const classes = depth!.data[0]!;
    const data = new Float64Array(indices!.data.length * classes).fill(values!.data[0]!);
    indices!.data.forEach((column, row) => (data[row * classes + column] = values!.data[1]!));
    return [{ shape: [indices!.data.length, classes], data }];
  },
  SimplifiedLayerNormalization: ([x, gain], node) => {
    const epsilon = float(node, "epsilon", 1e-5);
    const width = gain!.data.length;
    const inverse = new Float64Array(x!.data.length / width);
    const data = new Float64Array(x!.data.length);
    for (let row = 0; row < inverse.length; row++) {
      const values = x!.data.subarray(row * width, (row + 1) * width);
      inverse[row] = 1 / Math.sqrt(values.reduce((a, b) => a + b * b, 0) / width + epsilon);
      values.forEach((v, i) => (data[row * width + i] = v * inverse[row]! * gain!.data[i]!));
    }
    return [
      { shape: x!.shape, data },
      { shape: [...x!.shape.slice(0, -1), 1], data: inverse },
    ];
  },
  RotaryEmbedding: ([x, positions, cos, sin]) => {
    const [batch, heads, time, width] = x!.shape as [number, number, number, number];
    const half = width / 2;
    const data = new Float64Array(x!.data.length);
    for (let b = 0; b < batch; b++) {
      for (let h = 0; h < heads; h++) {
        for (let t = 0; t < time; t++) {
          const at = ((b * heads + h) * time + t) * width;
          const row = positions!.data[b * time + t]! * half;
          for (let i = 0; i < half; i++) {
            const [c, s] = [cos!.data[row + i]!, sin!.data[row + i]!];
            const [x1, x2] = [x!.data[at + i]!, x!.data[at + i + half]!];
            data[at + i] = x1 * c - x2 * s;
            data[at + i + half] = x2 * c + x1 * s;
          }
        }
      }
    }
    return [{ shape: x!.shape, data }];
  },
};

/** Evaluates the named outputs of a graph in float64: all of them, or those in `names` with the nodes that they need. */
export function interpret(graph: Graph, feeds: Feeds, names: Iterable<string> = graph.outputs.keys()): Record<string, Array64> {
  const outputs = [...names].map((name) => [name, graph.outputs.get(name)!] as const);
  const needed = new Set<Value>(outputs.map(([, value]) => value));
  const nodes = graph.nodes.toReversed().filter((node) => {
    const isNeeded = node.outputs.some((output) => needed.has(output));
    if (isNeeded) for (const input of node.inputs) needed.add(input);
    return isNeeded;
  });
  const values = new Map<Value, Array64>();
  for (const input of graph.inputs) if (feeds[input.name]) values.set(input, feeds[input.name]!);
  for (const [value, data] of graph.constants)
    values.set(value, array64(value.shape as number[], Array.from(data as ArrayLike<number | bigint>, Number)));
  for (const node of nodes.toReversed()) {
    const inputs = node.inputs.map((input) => values.get(input)!);
    const evaluate = OPS[node.op];
    if (!evaluate) throw new Error(`the interpreter has no operator ${node.op}`);
    evaluate(inputs, node).forEach((result, i) => values.set(node.outputs[i]!, result));
  }
  return Object.fromEntries(outputs.map(([name, value]) => [name, values.get(value)!]));
}
