/** Matrix products, with transposition and scale inside the kernel so that no transposed copy is made. */
import { ShapeError } from "../../../../errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";

/** Options of {@link matmul}. */
export interface MatmulOptions {
  /** Use `a` with its last two dimensions swapped. @default false */
  readonly transposeA?: boolean | undefined;
  /** Use `b` with its last two dimensions swapped. @default false */
  readonly transposeB?: boolean | undefined;
  /** Factor of the product. @default 1 */
  readonly scale?: number | undefined;
}

/**
 * `scale · a·b` over the last two dimensions; leading dimensions must be equal (no broadcasting between batches).
 *
 * With `G` the gradient of the product: `∂a = scale · G·bᵀ`, `∂b = scale · aᵀ·G`, transposed as the operands are.
 */
export function matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
  const { transposeA = false, transposeB = false, scale = 1 } = options;
  const [m, k] = lastTwo(a, transposeA);
  const [k2, n] = lastTwo(b, transposeB);
  const batch = a.shape.slice(0, -2);
  if (k !== k2 || a.shape.length !== b.shape.length || batch.some((dim, i) => dim !== b.shape[i])) {
    throw new ShapeError(`Expected matrices that multiply, got ${formatShape(a.shape)} and ${formatShape(b.shape)}`);
  }
  const plain = !transposeA && !transposeB && scale === 1;
  const isMatrix = batch.length === 0;
  return a.graph.record({
    op: plain ? "MatMul" : isMatrix ? "Gemm" : "FusedMatMul",
    domain: plain || isMatrix ? "" : "com.microsoft",
    inputs: [a, b],
    attributes: plain ? {} : { transA: { int: Number(transposeA) }, transB: { int: Number(transposeB) }, alpha: { float: scale } },
    outputs: [{ shape: [...batch, m, n] }],
    vjp: ([g], needed) => [
      needed[0]
        ? transposeA
          ? matmul(b, g!, { transposeA: transposeB, transposeB: true, scale })
          : matmul(g!, b, { transposeB: !transposeB, scale })
        : null,
      needed[1]
        ? transposeB
          ? matmul(g!, a, { transposeA: true, transposeB: transposeA, scale })
          : matmul(a, g!, { transposeA: !transposeA, scale })
        : null,
    ],
  })[0]!;
}

function lastTwo(x: Value, isTransposed: boolean): [Dim, Dim] {
  const [rows, columns] = x.shape.slice(-2);
  if (rows === undefined || columns === undefined) throw new ShapeError(`Expected a matrix, got ${formatShape(x.shape)}`);
  return isTransposed ? [columns, rows] : [rows, columns];
}
