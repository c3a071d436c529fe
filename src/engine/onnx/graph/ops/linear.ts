/** Matrix products. Transposition and scale are applied in the kernel, without a transposed copy. */
import { ShapeError } from "../../../../base/errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";
import { add, mul } from "./elementwise.ts";
import { concat, split } from "./join.ts";

/** Options of {@link matmul}. */
export interface MatmulOptions {
  /** Whether to swap the last two dimensions of `a`. @default false */
  readonly transposeA?: boolean | undefined;
  /** Whether to swap the last two dimensions of `b`. @default false */
  readonly transposeB?: boolean | undefined;
  /** Factor of the product. @default 1 */
  readonly scale?: number | undefined;
  /** Matrix of the product's shape that the kernel adds; only for a product of two matrices. @default none */
  readonly plus?: Value | undefined;
}

/**
 * Computes `scale · a·b + plus` over the last two dimensions. Leading dimensions must be equal; they are not broadcast.
 *
 * With `G` the gradient of the product: `∂a = scale · G·bᵀ`, `∂b = scale · aᵀ·G`, transposed like the operands. For a product of two
 * matrices, the kernel adds the gradient to the previous sum.
 *
 * @throws ShapeError `E_SHAPE` if the shapes do not match.
 */
export function matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
  const { transposeA = false, transposeB = false, scale = 1, plus } = options;
  const [m, k] = lastTwo(a, transposeA);
  const [k2, n] = lastTwo(b, transposeB);
  const batch = a.shape.slice(0, -2);
  if (k !== k2 || a.shape.length !== b.shape.length || batch.some((dim, i) => dim !== b.shape[i])) {
    throw new ShapeError(`Expected matrices that multiply, got ${formatShape(a.shape)} and ${formatShape(b.shape)}`);
  }
  const isMatrix = batch.length === 0;
  if (plus && (!isMatrix || plus.shape[0] !== m || plus.shape[1] !== n))
    throw new ShapeError(`Expected a matrix ${formatShape([...batch, m, n])} to add to, got ${formatShape(plus.shape)}`);
  const plain = !transposeA && !transposeB && scale === 1 && !plus;
  const product = (x: Value, y: Value, how: MatmulOptions) =>
    isMatrix ? (sum: Value | null) => matmul(x, y, { ...how, plus: sum ?? undefined }) : matmul(x, y, how);
  return a.graph.recordOne({
    op: plain ? "MatMul" : isMatrix ? "Gemm" : "FusedMatMul",
    domain: plain || isMatrix ? "" : "com.microsoft",
    inputs: plus ? [a, b, plus] : [a, b],
    attributes: plain ? {} : { transA: { int: Number(transposeA) }, transB: { int: Number(transposeB) }, alpha: { float: scale } },
    output: { shape: [...batch, m, n] },
    vjp: (g, needed) => [
      needed[0]
        ? transposeA
          ? product(b, g, { transposeA: transposeB, transposeB: true, scale })
          : product(g, b, { transposeB: !transposeB, scale })
        : null,
      needed[1]
        ? transposeB
          ? product(g, a, { transposeA: true, transposeB: transposeA, scale })
          : product(a, g, { transposeA: !transposeA, scale })
        : null,
      ...(plus ? [g] : []),
    ],
  });
}

/** Options of {@link adaptedProduct}. */
export interface AdaptedProductOptions {
  /**
   * Whether the backward pass multiplies by the merged matrix `W + a·b`, in one product. The runtime computes merged matrices before the
   * forward pass and keeps them, which takes as much memory as the weights. @default true
   */
  readonly isMerged?: boolean | undefined;
  /**
   * Factors of `b = scale·unscaled`. If given, a narrow product with a long sum, `x·a` or `G·bᵀ`, is computed as further columns of the
   * product with `W`: a device would use a fraction of its multiprocessors for it. @default none
   */
  readonly joined?: { readonly unscaled: Value; readonly scale: Value } | undefined;
}

/** Min ratio of the length of a sum to the width of the result from which narrow products are joined with wide ones. */
const LONG_SUM = 2;

/**
 * Computes `x·W + (x·a)·b` for a frozen matrix `W` `[in, out]` and a low-rank adapter `a` `[in, r]`, `b` `[r, out]`. The forward pass keeps
 * the two products separate so that it rounds exactly as decoding does, where rows have different adapters.
 *
 * `∂x = G·(W + a·b)ᵀ` if merged, else `G·Wᵀ + (G·bᵀ)·aᵀ`; `∂a = xᵀ·(G·bᵀ)`, `∂b = (x·a)ᵀ·G`; `W` has no gradient.
 */
export function adaptedProduct(
  x: Value,
  weight: Value,
  a: Value,
  b: Value,
  { isMerged = true, joined }: AdaptedProductOptions = {},
): Value {
  const [height, width] = weight.shape as [number, number];
  const rank = a.shape[1] as number;
  // Kernels are slow for widths that are no multiple of 4.
  const isJoined = (sum: number, result: number) => joined !== undefined && sum >= LONG_SUM * result && (result + rank) % 4 === 0;
  /** Returns `x·a` and `x·W`. */
  const products = (): readonly [Value, Value] => {
    if (!isJoined(height, width)) {
      const low = matmul(x, a);
      return [low, matmul(x, weight)];
    }
    const [base, low] = split(matmul(x, concat([weight, a], 1, width + rank)), 1, [width, rank]);
    return [low, base];
  };
  const [low, base] = products();
  const result = matmul(low, b, { plus: base });
  /** Returns `G·Wᵀ` and `G·bᵀ`. */
  const joinedGradients = (g: Value, { unscaled, scale }: NonNullable<typeof joined>) => {
    const both = matmul(g, concat([weight, unscaled], 0, height + rank), { transposeB: true });
    const [wide, narrow] = split(both, 1, [height, rank]);
    return { wide, narrow: mul(narrow, scale) };
  };
  const merged = (g: Value, plus: Value | undefined) => matmul(g, matmul(a, b, { plus: weight }), { transposeB: true, plus });
  const separate = (g: Value, plus: Value | undefined) =>
    matmul(matmul(g, b, { transposeB: true }), a, { transposeB: true, plus: matmul(g, weight, { transposeB: true, plus }) });
  return x.graph.recordOne({
    op: "Identity",
    inputs: [result],
    output: { shape: result.shape },
    variables: [x, a, b],
    vjp: (g, needed) => {
      const gradients = joined && !isMerged && needed[0] && isJoined(width, height) ? joinedGradients(g, joined) : null;
      const ofInput = gradients
        ? (sum: Value | null) => matmul(gradients.narrow, a, { transposeB: true, plus: sum ? add(sum, gradients.wide) : gradients.wide })
        : (sum: Value | null) => (isMerged ? merged : separate)(g, sum ?? undefined);
      return [
        needed[0] ? ofInput : null,
        needed[1]
          ? (sum) => matmul(x, gradients?.narrow ?? matmul(g, b, { transposeB: true }), { transposeA: true, plus: sum ?? undefined })
          : null,
        needed[2] ? (sum) => matmul(low, g, { transposeA: true, plus: sum ?? undefined }) : null,
      ];
    },
  });
}

function lastTwo(x: Value, isTransposed: boolean): [Dim, Dim] {
  const [rows, columns] = x.shape.slice(-2);
  if (rows === undefined || columns === undefined) throw new ShapeError(`Expected a matrix, got ${formatShape(x.shape)}`);
  return isTransposed ? [columns, rows] : [rows, columns];
}
