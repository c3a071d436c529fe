/**
 * Reverse-mode differentiation over float64 matrices: each operation computes its result and records how to propagate a gradient to its
 * inputs.
 */

import { itemAt } from "../../base/util/values.ts";

/**
 * Creates a row-major matrix `[rows, columns]`, zero unless `data` is given, with the gradient of a loss with respect to it. A vector has
 * one row.
 */
export function createMatrix(rows: number, columns: number, data: Float64Array = new Float64Array(rows * columns)) {
  return { rows, columns, data, gradient: new Float64Array(data.length) };
}

/** Matrix with its gradient, created by {@link createMatrix}. */
export type Matrix = Readonly<ReturnType<typeof createMatrix>>;

/** Enumerates the terms of a sum of products by their indices in `y`, `x` and `z`, and by a factor, 1 by default. */
type Terms = (add: (y: number, x: number, z: number, factor?: number) => void) => void;

/** Number of terms that one enumerated term stands for, and the steps of their indices in `y`, `x` and `z`. */
interface Repetition {
  readonly count: number;
  readonly steps: readonly [y: number, x: number, z: number];
}

const ONCE: Repetition = { count: 1, steps: [0, 0, 0] };

/**
 * Tape of recorded operations, along which gradients flow from the last result to the first. Only two operations have an explicit
 * derivative, sums of products and elementwise functions; all other transformer operations are composed of these two.
 */
export class Tape {
  readonly #steps: (() => void)[] = [];
  /** Factor 1 for terms with a single factor. */
  readonly #one = createMatrix(1, 1, Float64Array.of(1));

  /** Propagates the gradients that the caller stored in results back to all inputs. */
  backward(): void {
    for (const back of this.#steps.toReversed()) back();
  }

  /**
   * Adds `factor·x[j]·z[k]` to `y[i]` for each term `(i, j, k, factor)` and its repetitions, and records the derivatives. Must run before `y`
   * is used.
   */
  #addProducts(y: Matrix, x: Matrix, z: Matrix, terms: Terms, { count, steps: [yStep, xStep, zStep] } = ONCE): Matrix {
    terms((i, j, k, factor = 1) => {
      for (let n = 0; n < count; n++) y.data[i + n * yStep]! += factor * x.data[j + n * xStep]! * z.data[k + n * zStep]!;
    });
    const back: Parameters<Terms>[0] = (i, j, k, factor = 1) => {
      for (let n = 0; n < count; n++) {
        x.gradient[j + n * xStep]! += factor * y.gradient[i + n * yStep]! * z.data[k + n * zStep]!;
        z.gradient[k + n * zStep]! += factor * y.gradient[i + n * yStep]! * x.data[j + n * xStep]!;
      }
    };
    this.#steps.push(() => terms(back));
    return y;
  }

  /** Adds `x[index(i)]` to each element `i` of `y`. Must run before `y` is used. */
  #addFrom(y: Matrix, x: Matrix, index: (i: number) => number): Matrix {
    return this.#addProducts(y, x, this.#one, (add) => y.data.forEach((_, i) => add(i, index(i), 0)));
  }

  /** Applies an elementwise function, given by its values and derivatives at the elements of `x`. */
  #map(x: Matrix, values: Float64Array, derivatives: Float64Array): Matrix {
    const y = createMatrix(x.rows, x.columns, values);
    this.#steps.push(() => {
      for (let i = 0; i < derivatives.length; i++) x.gradient[i]! += itemAt(derivatives, i) * itemAt(y.gradient, i);
    });
    return y;
  }

  /** Computes `y[i] = x[i]·z[index(i)]`. */
  #scaled(x: Matrix, z: Matrix, index: (i: number) => number): Matrix {
    return this.#addProducts(createMatrix(x.rows, x.columns), x, z, (add) => x.data.forEach((_, i) => add(i, i, index(i))));
  }

  /** Computes `y[r, o] = scale · Σ_i x[r, i]·w[o, i]`: a linear layer with its matrix `[out, in]`, as in weight files. */
  linear(x: Matrix, w: Matrix, scale = 1): Matrix {
    const y = createMatrix(x.rows, w.rows);
    const terms: Terms = (add) => y.data.forEach((_, i) => add(i, Math.floor(i / w.rows) * x.columns, (i % w.rows) * x.columns, scale));
    return this.#addProducts(y, x, w, terms, { count: x.columns, steps: [0, 1, 1] });
  }

  /** Computes `x + b`; `b` may be a single row that is broadcast. */
  add(x: Matrix, b: Matrix): Matrix {
    const y = this.#addFrom(createMatrix(x.rows, x.columns), x, (i) => i);
    return this.#addFrom(y, b, (i) => i % b.data.length);
  }

  /** Computes `factor · x`. */
  scale(x: Matrix, factor: number): Matrix {
    return this.#addProducts(createMatrix(x.rows, x.columns), x, this.#one, (add) => x.data.forEach((_, i) => add(i, i, 0, factor)));
  }

  /** Returns columns `[start, start + width)`. */
  columns(x: Matrix, start: number, width: number): Matrix {
    return this.#addFrom(createMatrix(x.rows, width), x, (i) => Math.floor(i / width) * x.columns + start + (i % width));
  }

  /** Gathers rows of a table (embedding lookup). */
  rows(table: Matrix, ids: ArrayLike<number>): Matrix {
    const width = table.columns;
    return this.#addFrom(createMatrix(ids.length, width), table, (i) => ids[Math.floor(i / width)]! * width + (i % width));
  }

  /** Computes `exp(x) / Σ exp(x)` of each row. */
  softmax(x: Matrix): Matrix {
    const row = (i: number) => Math.floor(i / x.columns);
    // Softmax is invariant under subtraction of a constant per row; subtracting the maximum prevents overflow.
    const maxima = new Float64Array(x.rows).fill(-Infinity);
    for (let i = 0; i < x.data.length; i++) maxima[row(i)] = Math.max(itemAt(maxima, row(i)), itemAt(x.data, i));
    const values = x.data.map((value, i) => Math.exp(value - itemAt(maxima, row(i))));
    const exponentials = this.#map(x, values, values);
    const totals = createMatrix(x.rows, 1);
    this.#addProducts(totals, exponentials, this.#one, (add) => values.forEach((_, i) => add(row(i), i, 0)));
    const inverse = totals.data.map((total) => 1 / total);
    const derivatives = inverse.map((value) => -(value ** 2));
    return this.#scaled(exponentials, this.#map(totals, inverse, derivatives), row);
  }

  /** Computes `gelu(x)·z`, with `gelu(x) = ½·x·(1 + tanh u)` and `u = √(2/π)·(x + 0.044715·x³)`. */
  geluGated(x: Matrix, z: Matrix): Matrix {
    const c = Math.sqrt(2 / Math.PI);
    const tanh = x.data.map((a) => Math.tanh(c * (a + 0.044715 * a ** 3)));
    const gelu = x.data.map((a, i) => 0.5 * a * (1 + itemAt(tanh, i)));
    const derivatives = x.data.map(
      (a, i) => 0.5 * (1 + itemAt(tanh, i)) + 0.5 * a * (1 - itemAt(tanh, i) ** 2) * c * (1 + 3 * 0.044715 * a ** 2),
    );
    return this.#scaled(this.#map(x, gelu, derivatives), z, (i) => i);
  }

  /** Computes `silu(x)·z`, with `silu(x) = x·σ(x)`. */
  gated(x: Matrix, z: Matrix): Matrix {
    const sigmoid = x.data.map((a) => 1 / (1 + Math.exp(-a)));
    const silu = x.data.map((a, i) => a * itemAt(sigmoid, i));
    const derivatives = silu.map((value, i) => value + itemAt(sigmoid, i) * (1 - value));
    return this.#scaled(this.#map(x, silu, derivatives), z, (i) => i);
  }

  /** Computes `x / √(mean(x²) + ε) · gain` over segments of the width of `gain`: a whole row, or one head. */
  rmsNorm(x: Matrix, gain: Matrix, epsilon: number): Matrix {
    const n = gain.columns;
    const segment = (i: number) => Math.floor(i / n);
    const means = createMatrix(x.data.length / n, 1);
    this.#addProducts(means, x, x, (add) => x.data.forEach((_, i) => add(segment(i), i, i, 1 / n)));
    const inverse = means.data.map((mean) => (mean + epsilon) ** -0.5);
    const derivatives = inverse.map((value) => -0.5 * value ** 3);
    return this.#scaled(this.#scaled(x, this.#map(means, inverse, derivatives), segment), gain, (i) => i % n);
  }

  /**
   * Rotates each pair `(x[i], x[i + r/2])` of the first `r` elements of a head of width `d` by the angle of its position (RoPE). `cos`,
   * `sin`: `[positions, r/2]`, from the row of the first token on.
   */
  rotate(x: Matrix, { d, r, first }: { readonly d: number; readonly r: number; readonly first: number }, cos: Matrix, sin: Matrix): Matrix {
    const half = r / 2;
    const angle = (i: number) => (first + Math.floor(i / x.columns)) * half + ((i % d) % half);
    const y = createMatrix(x.rows, x.columns);
    const rotated = [...x.data.keys()].filter((i) => i % d < r);
    const unchanged = [...x.data.keys()].filter((i) => i % d >= r);
    this.#addProducts(y, x, cos, (add) => rotated.forEach((i) => add(i, i, angle(i))));
    this.#addProducts(y, x, this.#one, (add) => unchanged.forEach((i) => add(i, i, 0)));
    return this.#addProducts(y, x, sin, (add) =>
      rotated.forEach((i) => (i % d < half ? add(i + half, i, angle(i)) : add(i - half, i, angle(i), -1))),
    );
  }

  /**
   * Computes causal attention, `softmax(scale·q·kᵀ)·v`, per head of width `d`, over at most `window` tokens. With fewer key heads than
   * query heads, query heads share key heads (GQA).
   */
  attention(
    q: Matrix,
    k: Matrix,
    v: Matrix,
    { d, scale, window }: { readonly d: number; readonly scale: number; readonly window: number },
  ): Matrix {
    const [time, heads] = [q.rows, q.columns / d];
    const scores = createMatrix(time * heads, time, new Float64Array(time * heads * time).fill(-Infinity));
    // A row of scores is one query head at one token, which attends to the tokens of its window up to its own. Tokens outside stay at −∞.
    const visitScores = (visit: (score: number, query: number, key: number) => void) => {
      for (let row = 0; row < scores.rows; row++) {
        const keyHead = Math.floor(((row % heads) * k.columns) / q.columns);
        const token = Math.floor(row / heads);
        for (let s = Math.max(0, token - window + 1); s <= token; s++) visit(row * time + s, row * d, s * k.columns + keyHead * d);
      }
    };
    visitScores((score) => {
      scores.data[score] = 0;
    });
    this.#addProducts(scores, q, k, (add) => visitScores((score, query, key) => add(score, query, key, scale)), {
      count: d,
      steps: [0, 1, 1],
    });
    const y = createMatrix(time, q.columns);
    return this.#addProducts(y, this.softmax(scores), v, (add) => visitScores((score, query, key) => add(query, score, key)), {
      count: d,
      steps: [1, 0, 1],
    });
  }
}
