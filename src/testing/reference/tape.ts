/** Reverse-mode differentiation over float64 matrices: each operation computes its result and records how a gradient goes back. */

/** A row-major matrix `[rows, columns]`, of zeros unless values are given, with the gradient of a loss by it. A vector has one row. */
export function createMatrix(rows: number, columns: number, data: Float64Array = new Float64Array(rows * columns)) {
  return { rows, columns, data, gradient: new Float64Array(data.length) };
}

/** See {@link createMatrix}. */
export type Matrix = Readonly<ReturnType<typeof createMatrix>>;

/** Names the terms of a sum of products, by where each begins in `y`, `x` and `z`, and by its factor. */
type Terms = (add: (a: number, b: number, c: number, factor?: number) => void) => void;

/**
 * What was computed, so that gradients can flow from the last result to the first. Two operations have a derivative
 * written down, sums of products and functions of single elements: whatever else a transformer does is made of them.
 */
export class Tape {
  readonly #steps: (() => void)[] = [];
  /** What a term multiplies with that is no product. */
  readonly #one = createMatrix(1, 1, Float64Array.of(1));

  /** Sends the gradients that the caller put into results back to everything they came from. */
  backward(): void {
    for (const back of this.#steps.toReversed()) back();
  }

  /** `y[a + i·da] += factor·x[b + i·db]·z[c + i·dc]` for `n` values of `i` in each term. Nothing has read `y` yet. */
  #addProducts(y: Matrix, x: Matrix, z: Matrix, terms: Terms, n = 1, [da, db, dc] = [0, 0, 0]): Matrix {
    terms((a, b, c, factor = 1) => {
      for (let i = 0; i < n; i++) y.data[a + i * da]! += factor * x.data[b + i * db]! * z.data[c + i * dc]!;
    });
    const back: Parameters<Terms>[0] = (a, b, c, factor = 1) => {
      for (let i = 0; i < n; i++) {
        x.gradient[b + i * db]! += factor * y.gradient[a + i * da]! * z.data[c + i * dc]!;
        z.gradient[c + i * dc]! += factor * y.gradient[a + i * da]! * x.data[b + i * db]!;
      }
    };
    this.#steps.push(() => terms(back));
    return y;
  }

  /** A function of single elements, by its values and derivatives at those of `x`. */
  #map(x: Matrix, values: Float64Array, slopes: Float64Array): Matrix {
    const y = createMatrix(x.rows, x.columns, values);
    this.#steps.push(() => slopes.forEach((slope, i) => (x.gradient[i]! += slope * y.gradient[i]!)));
    return y;
  }

  /** `y[i] = x[i]·z[at(i)]`. */
  #scaled(x: Matrix, z: Matrix, at: (i: number) => number): Matrix {
    return this.#addProducts(createMatrix(x.rows, x.columns), x, z, (add) => x.data.forEach((_, i) => add(i, i, at(i))));
  }

  /** `y[r, o] = scale · Σ_i x[r, i]·w[o, i]`: a linear map with its matrix `[out, in]`, as files hold it. */
  linear(x: Matrix, w: Matrix, scale = 1): Matrix {
    const y = createMatrix(x.rows, w.rows);
    const terms: Terms = (add) => y.data.forEach((_, i) => add(i, Math.floor(i / w.rows) * x.columns, (i % w.rows) * x.columns, scale));
    return this.#addProducts(y, x, w, terms, x.columns, [0, 1, 1]);
  }

  /** `x + b`; `b` may be one row for all. */
  add(x: Matrix, b: Matrix): Matrix {
    const y = this.#scaled(x, this.#one, () => 0);
    return this.#addProducts(y, b, this.#one, (add) => y.data.forEach((_, i) => add(i, i % b.data.length, 0)));
  }

  /** Rows of a table. */
  rows(table: Matrix, ids: ArrayLike<number>): Matrix {
    const n = table.columns;
    const y = createMatrix(ids.length, n);
    return this.#addProducts(y, table, this.#one, (add) => y.data.forEach((_, i) => add(i, ids[Math.floor(i / n)]! * n + (i % n), 0)));
  }

  /** `exp(x) / Σ exp(x)` of each row. */
  softmax(x: Matrix): Matrix {
    const row = (i: number) => Math.floor(i / x.columns);
    // A softmax is the same whatever is taken off a row, and no exponential overflows where that is the largest.
    const most = new Float64Array(x.rows).fill(-Infinity);
    x.data.forEach((value, i) => (most[row(i)] = Math.max(most[row(i)]!, value)));
    const values = x.data.map((value, i) => Math.exp(value - most[row(i)]!));
    const exponentials = this.#map(x, values, values);
    const totals = createMatrix(x.rows, 1);
    this.#addProducts(totals, exponentials, this.#one, (add) => values.forEach((_, i) => add(row(i), i, 0)));
    const inverse = totals.data.map((total) => 1 / total);
    const slopes = inverse.map((share) => -(share ** 2));
    return this.#scaled(exponentials, this.#map(totals, inverse, slopes), row);
  }

  /** `silu(x)·z`, `silu(x) = x·σ(x)`. */
  gated(x: Matrix, z: Matrix): Matrix {
    const sigmoid = x.data.map((a) => 1 / (1 + Math.exp(-a)));
    const silu = x.data.map((a, i) => a * sigmoid[i]!);
    const slopes = silu.map((value, i) => value + sigmoid[i]! * (1 - value));
    return this.#scaled(this.#map(x, silu, slopes), z, (i) => i);
  }

  /** `x / √(mean(x²) + ε) · gain` over stretches as wide as `gain`: a whole row, or one head of it. */
  rmsNorm(x: Matrix, gain: Matrix, epsilon: number): Matrix {
    const n = gain.columns;
    const stretch = (i: number) => Math.floor(i / n);
    const means = createMatrix(x.data.length / n, 1);
    this.#addProducts(means, x, x, (add) => x.data.forEach((_, i) => add(stretch(i), i, i, 1 / n)));
    const inverse = means.data.map((mean) => (mean + epsilon) ** -0.5);
    const slopes = inverse.map((value) => -0.5 * value ** 3);
    return this.#scaled(this.#scaled(x, this.#map(means, inverse, slopes), stretch), gain, (i) => i % n);
  }

  /** Turns each pair `(x[i], x[i + d/2])` of a head of width `d` by its position's angle. `cos`, `sin`: `[positions, d/2]`. */
  rotate(x: Matrix, d: number, cos: Matrix, sin: Matrix): Matrix {
    const half = d / 2;
    const angle = (i: number) => Math.floor(i / x.columns) * half + (i % half);
    return this.#addProducts(this.#scaled(x, cos, angle), x, sin, (add) =>
      x.data.forEach((_, i) => (i % d < half ? add(i + half, i, angle(i)) : add(i - half, i, angle(i), -1))),
    );
  }

  /** Causal attention, `softmax(q·kᵀ/√d)·v` per head of width `d`; as many query heads as fit share one key head. */
  attention(q: Matrix, k: Matrix, v: Matrix, d: number): Matrix {
    const [time, heads] = [q.rows, q.columns / d];
    const scores = createMatrix(time * heads, time, new Float64Array(time * heads * time).fill(-Infinity));
    // A row of scores is one query head at one token; it sees the tokens up to its own.
    const each = (visit: (score: number, query: number, key: number) => void) => {
      for (let row = 0; row < scores.rows; row++) {
        const keyHead = Math.floor(((row % heads) * k.columns) / q.columns);
        for (let s = 0; s <= row / heads; s++) visit(row * time + s, row * d, s * k.columns + keyHead * d);
      }
    };
    each((score) => (scores.data[score] = 0));
    this.#addProducts(scores, q, k, (add) => each((score, query, key) => add(score, query, key, 1 / Math.sqrt(d))), d, [0, 1, 1]);
    const y = createMatrix(time, q.columns);
    return this.#addProducts(y, this.softmax(scores), v, (add) => each((score, query, key) => add(query, score, key)), d, [1, 0, 1]);
  }
}
