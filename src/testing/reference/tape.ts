/** Reverse-mode differentiation over float64 matrices: each operation computes its result and records how a gradient goes back. */

/** A row-major matrix `[rows, columns]` with the gradient of a loss by it. A vector has one row. */
export class Matrix {
  readonly gradient: Float64Array;
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;

  constructor(rows: number, columns: number, data: Float64Array = new Float64Array(rows * columns)) {
    [this.rows, this.columns, this.data, this.gradient] = [rows, columns, data, new Float64Array(data.length)];
  }
}

/** What was computed, so that gradients can flow from the last result to the first. */
export class Tape {
  readonly #steps: (() => void)[] = [];

  /** Sends the gradients that the caller put into results back to everything they came from. */
  backward(): void {
    for (const back of this.#steps.toReversed()) back();
  }

  #record(result: Matrix, back: () => void): Matrix {
    this.#steps.push(back);
    return result;
  }

  /** `y[r, o] = scale · Σ_i x[r, i]·w[o, i]`: a linear map with its matrix `[out, in]`, as files hold it. */
  linear(x: Matrix, w: Matrix, scale = 1): Matrix {
    const y = new Matrix(x.rows, w.rows);
    const n = x.columns;
    y.data.forEach((_, at) => (y.data[at] = scale * dot(x.data, Math.floor(at / w.rows) * n, w.data, (at % w.rows) * n, n)));
    return this.#record(y, () =>
      y.gradient.forEach((g, at) => {
        const [xRow, wRow] = [Math.floor(at / w.rows) * n, (at % w.rows) * n];
        addScaled(x.gradient, xRow, w.data, wRow, n, scale * g);
        addScaled(w.gradient, wRow, x.data, xRow, n, scale * g);
      }),
    );
  }

  /** `f(x, z)` element by element; `z` may be one row for all. `slopes` gives the derivatives by both. */
  #elementwise(x: Matrix, z: Matrix, f: (a: number, b: number) => number, slopes: (a: number, b: number) => [number, number]): Matrix {
    const at = (i: number) => i % z.data.length;
    const result = x.data.map((value, i) => f(value, z.data[at(i)]!));
    const y = new Matrix(x.rows, x.columns, result);
    return this.#record(y, () =>
      y.gradient.forEach((g, i) => {
        const [dx, dz] = slopes(x.data[i]!, z.data[at(i)]!);
        x.gradient[i]! += g * dx;
        z.gradient[at(i)]! += g * dz;
      }),
    );
  }

  /** `x + b`. */
  add(x: Matrix, b: Matrix): Matrix {
    const sum = (value: number, added: number) => value + added;
    return this.#elementwise(x, b, sum, () => [1, 1]);
  }

  /** `silu(x)·z`, `silu(x) = x·σ(x)`. */
  gated(x: Matrix, z: Matrix): Matrix {
    const sigmoid = (a: number) => 1 / (1 + Math.exp(-a));
    const silu = (a: number) => a * sigmoid(a);
    const slope = (a: number) => sigmoid(a) * (1 + a * (1 - sigmoid(a)));
    const product = (a: number, b: number) => silu(a) * b;
    return this.#elementwise(x, z, product, (a, b) => [slope(a) * b, silu(a)]);
  }

  /** `x / √(mean(x²) + ε) · gain` over stretches as wide as `gain`: a whole row, or one head of it. */
  rmsNorm(x: Matrix, gain: Matrix, epsilon: number): Matrix {
    const n = gain.columns;
    const y = new Matrix(x.rows, x.columns);
    const inverse = Float64Array.from(
      { length: x.data.length / n },
      (_, s) => 1 / Math.sqrt(dot(x.data, s * n, x.data, s * n, n) / n + epsilon),
    );
    y.data.forEach((_, i) => (y.data[i] = x.data[i]! * inverse[Math.floor(i / n)]! * gain.data[i % n]!));
    return this.#record(y, () => {
      const scaled = y.gradient.map((g, i) => g * gain.data[i % n]!);
      y.gradient.forEach((g, i) => {
        const s = Math.floor(i / n);
        const r = inverse[s]!;
        gain.gradient[i % n]! += g * x.data[i]! * r;
        x.gradient[i]! += scaled[i]! * r - (x.data[i]! * r ** 3 * dot(scaled, s * n, x.data, s * n, n)) / n;
      });
    });
  }

  /** Turns each pair `(x[i], x[i + d/2])` of a head of width `d` by its position's angle. `cos`, `sin`: `[positions, d/2]`. */
  rotate(x: Matrix, d: number, cos: ArrayLike<number>, sin: ArrayLike<number>): Matrix {
    const half = d / 2;
    const y = new Matrix(x.rows, x.columns);
    const turn = (from: Float64Array, to: Float64Array, direction: 1 | -1) => {
      for (const [a, value] of from.entries()) {
        const [angle, isFirst] = [Math.floor(a / x.columns) * half + (a % half), a % d < half];
        to[a]! += value * cos[angle]!;
        to[isFirst ? a + half : a - half]! += (isFirst ? value : -value) * direction * sin[angle]!;
      }
    };
    turn(x.data, y.data, 1);
    return this.#record(y, () => turn(y.gradient, x.gradient, -1));
  }

  /** Causal attention, `softmax(q·kᵀ/√d)·v` per head of width `d`; as many query heads as fit share one key head. */
  attention(q: Matrix, k: Matrix, v: Matrix, d: number): Matrix {
    const y = new Matrix(q.rows, q.columns);
    const back: (() => void)[] = [];
    for (let at = 0; at < q.data.length; at += d) {
      const t = Math.floor(at / q.columns);
      const keyHead = Math.floor(((at % q.columns) / d) * (k.columns / q.columns)) * d;
      const key = (s: number) => s * k.columns + keyHead;
      const p = softmax(Float64Array.from({ length: t + 1 }, (_, s) => dot(q.data, at, k.data, key(s), d) / Math.sqrt(d)));
      p.forEach((share, s) => addScaled(y.data, at, v.data, key(s), d, share));
      back.push(() => {
        const dp = p.map((_, s) => dot(y.gradient, at, v.data, key(s), d));
        const mean = dot(p, 0, dp, 0, p.length);
        p.forEach((share, s) => {
          const ds = (share * (dp[s]! - mean)) / Math.sqrt(d);
          addScaled(v.gradient, key(s), y.gradient, at, d, share);
          addScaled(q.gradient, at, k.data, key(s), d, ds);
          addScaled(k.gradient, key(s), q.data, at, d, ds);
        });
      });
    }
    return this.#record(y, () => back.forEach((step) => step()));
  }

  /** Rows of a table. */
  rows(table: Matrix, ids: ArrayLike<number>): Matrix {
    const n = table.columns;
    const y = new Matrix(ids.length, n);
    const each = (visit: (row: number, entry: number) => void) => Array.from(ids).forEach((id, r) => visit(r * n, id * n));
    each((row, entry) => addScaled(y.data, row, table.data, entry, n, 1));
    return this.#record(y, () => each((row, entry) => addScaled(table.gradient, entry, y.gradient, row, n, 1)));
  }
}

/** `exp(x) / Σ exp(x)`. */
export function softmax(x: Float64Array): Float64Array {
  const most = x.reduce((a, b) => Math.max(a, b));
  const exponentials = x.map((value) => Math.exp(value - most));
  const total = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((value) => value / total);
}

function dot(a: Float64Array, aAt: number, b: Float64Array, bAt: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aAt + i]! * b[bAt + i]!;
  return sum;
}

function addScaled(to: Float64Array, toAt: number, from: Float64Array, fromAt: number, length: number, factor: number): void {
  if (factor === 0) return;
  for (let i = 0; i < length; i++) to[toAt + i]! += factor * from[fromAt + i]!;
}
