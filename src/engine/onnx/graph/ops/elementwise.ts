/** Elementwise ops with NumPy broadcasting; a gradient is summed back over the dimensions that were broadcast. */
import type { DType, Value } from "../graph.ts";
import { broadcastShapes, unbroadcast } from "./broadcast.ts";

function binary(
  op: string,
  a: Value,
  b: Value,
  vjp?: (gradient: Value, output: Value) => readonly [() => Value, () => Value],
  dtype: DType = a.dtype,
): Value {
  const [output] = a.graph.record({
    op,
    inputs: [a, b],
    outputs: [{ shape: broadcastShapes(a.shape, b.shape), dtype }],
    vjp:
      vjp &&
      (([gradient], needed) => {
        const [left, right] = vjp(gradient!, output!);
        return [needed[0] ? unbroadcast(left(), a) : null, needed[1] ? unbroadcast(right(), b) : null];
      }),
  });
  return output!;
}

function unary(op: string, x: Value, vjp?: (gradient: Value, output: Value) => Value): Value {
  const [output] = x.graph.record({
    op,
    inputs: [x],
    outputs: [{ shape: x.shape }],
    vjp: vjp && (([gradient]) => [vjp(gradient!, output!)]),
  });
  return output!;
}

/** `a + b`. */
export function add(a: Value, b: Value): Value {
  return binary("Add", a, b, (g) => [() => g, () => g]);
}

/** `a − b`. */
export function sub(a: Value, b: Value): Value {
  return binary("Sub", a, b, (g) => [() => g, () => neg(g)]);
}

/** `a · b`, elementwise. */
export function mul(a: Value, b: Value): Value {
  return binary("Mul", a, b, (g) => [() => mul(g, b), () => mul(g, a)]);
}

/** `a / b`. */
export function div(a: Value, b: Value): Value {
  return binary("Div", a, b, (g, y) => [() => div(g, b), () => neg(div(mul(g, y), b))]);
}

/** `−x`. */
export function neg(x: Value): Value {
  return unary("Neg", x, neg);
}

/** `exp(x)`. */
export function exp(x: Value): Value {
  return unary("Exp", x, mul);
}

/** `√x`, derivative `1 / (2√x)`. */
export function sqrt(x: Value): Value {
  return unary("Sqrt", x, (g, y) => div(g, mul(y, x.graph.scalar(2))));
}

/** `1 / (1 + exp(−x))`. */
export function sigmoid(x: Value): Value {
  return unary("Sigmoid", x, (g, y) => mul(g, mul(y, sub(x.graph.scalar(1), y))));
}

/** `min(a, b)`; at a tie the gradient goes to `a`. */
export function minimum(a: Value, b: Value): Value {
  return binary("Min", a, b, (g) => {
    const zero = a.graph.scalar(0);
    const isLeft = lessOrEqual(a, b);
    return [() => where(isLeft, g, zero), () => where(isLeft, zero, g)];
  });
}

/** `max(a, b)`; at a tie the gradient goes to `a`. */
export function maximum(a: Value, b: Value): Value {
  return binary("Max", a, b, (g) => {
    const zero = a.graph.scalar(0);
    const isLeft = lessOrEqual(b, a);
    return [() => where(isLeft, g, zero), () => where(isLeft, zero, g)];
  });
}

/** `a ≤ b` as booleans; no gradient. */
export function lessOrEqual(a: Value, b: Value): Value {
  return binary("LessOrEqual", a, b, undefined, "bool");
}

/** `condition ? a : b`. */
export function where(condition: Value, a: Value, b: Value): Value {
  const shape = broadcastShapes(condition.shape, broadcastShapes(a.shape, b.shape));
  const zero = a.graph.scalar(0);
  return a.graph.record({
    op: "Where",
    inputs: [condition, a, b],
    outputs: [{ shape, dtype: a.dtype }],
    vjp: ([g], needed) => [
      null,
      needed[1] ? unbroadcast(where(condition, g!, zero), a) : null,
      needed[2] ? unbroadcast(where(condition, zero, g!), b) : null,
    ],
  })[0]!;
}

/** `x` whose gradient is zero: the `sg(·)` of the papers. */
export function stopGradient(x: Value): Value {
  return x.graph.record({ op: "Identity", inputs: [x], outputs: [{ shape: x.shape }] })[0]!;
}

/** `y = x · s` with `s = sigmoid(x)` (SiLU), derivative `s + y · (1 − s)`. */
export function silu(x: Value): Value {
  const s = sigmoid(x);
  const [y] = x.graph.record({
    op: "Mul",
    inputs: [x, s],
    outputs: [{ shape: x.shape }],
    variables: [x],
    vjp: ([g]) => [mul(g!, add(s, mul(y!, sub(x.graph.scalar(1), s))))],
  });
  return y!;
}
