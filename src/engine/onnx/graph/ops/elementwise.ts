/** Elementwise ops with NumPy broadcasting. Gradients are summed over the broadcast dimensions. */
import type { DType, Value } from "../graph.ts";
import { broadcastShapes, unbroadcast } from "./broadcast.ts";

/**
 * Records an op on two operands, broadcast to a common shape.
 *
 * @param vjp - Returns one function per operand, which records the gradient in the shape of the result; called only for operands that need
 *   it.
 */
function binary(
  op: string,
  a: Value,
  b: Value,
  vjp?: (gradient: Value, output: Value) => readonly [() => Value, () => Value],
  dtype: DType = a.dtype,
): Value {
  const output = a.graph.recordOne({
    op,
    inputs: [a, b],
    output: { shape: broadcastShapes(a.shape, b.shape), dtype },
    vjp:
      vjp &&
      ((gradient, needed) => {
        const [left, right] = vjp(gradient, output);
        return [needed[0] ? unbroadcast(left(), a) : null, needed[1] ? unbroadcast(right(), b) : null];
      }),
  });
  return output;
}

/** Records a float32 op on one operand. */
function unary(op: string, x: Value, vjp?: (gradient: Value, output: Value) => Value): Value {
  const output = x.graph.recordOne({
    op,
    inputs: [x],
    output: { shape: x.shape },
    vjp: vjp && ((gradient) => [vjp(gradient, output)]),
  });
  return output;
}

/** Returns `a + b`. */
export function add(a: Value, b: Value): Value {
  return binary("Add", a, b, (g) => [() => g, () => g]);
}

/** Returns `a − b`. */
export function sub(a: Value, b: Value): Value {
  return binary("Sub", a, b, (g) => [() => g, () => neg(g)]);
}

/** Returns the elementwise product `a · b`. */
export function mul(a: Value, b: Value): Value {
  return binary("Mul", a, b, (g) => [() => mul(g, b), () => mul(g, a)]);
}

/** Returns `a / b`. */
export function div(a: Value, b: Value): Value {
  return binary("Div", a, b, (g, y) => [() => div(g, b), () => neg(div(mul(g, y), b))]);
}

/** Returns `−x`. */
export function neg(x: Value): Value {
  return unary("Neg", x, neg);
}

/** Returns `exp(x)`. */
export function exp(x: Value): Value {
  return unary("Exp", x, mul);
}

/** Returns the natural logarithm of `x`. */
export function log(x: Value): Value {
  return unary("Log", x, (g) => div(g, x));
}

/** Returns `√x`, with derivative `1 / (2√x)`. */
export function sqrt(x: Value): Value {
  return unary("Sqrt", x, (g, y) => div(g, mul(y, x.graph.scalar(2))));
}

/** Returns `1 / (1 + exp(−x))`. */
export function sigmoid(x: Value): Value {
  return unary("Sigmoid", x, (g, y) => mul(g, mul(y, sub(x.graph.scalar(1), y))));
}

/** Returns `min(a, b)`; for equal values, `a` receives the gradient. */
export function minimum(a: Value, b: Value): Value {
  return binary("Min", a, b, (g) => {
    const zero = a.graph.scalar(0);
    const isLeft = lessOrEqual(a, b);
    return [() => where(isLeft, g, zero), () => where(isLeft, zero, g)];
  });
}

/** Returns `max(a, b)`; for equal values, `a` receives the gradient. */
export function maximum(a: Value, b: Value): Value {
  return binary("Max", a, b, (g) => {
    const zero = a.graph.scalar(0);
    const isLeft = lessOrEqual(b, a);
    return [() => where(isLeft, g, zero), () => where(isLeft, zero, g)];
  });
}

/** Returns `a ≤ b` as booleans, without gradient. */
export function lessOrEqual(a: Value, b: Value): Value {
  return binary("LessOrEqual", a, b, undefined, "bool");
}

/** Returns `a = b` as booleans, without gradient. */
export function equal(a: Value, b: Value): Value {
  return binary("Equal", a, b, undefined, "bool");
}

/** Returns `x` with another element type: false and true as 0 and 1, numbers rounded toward 0. Has no gradient. */
export function cast(x: Value, dtype: "float32" | "int32" | "uint8"): Value {
  // Codes of `TensorProto.DataType`.
  const to = { float32: 1, uint8: 2, int32: 6 }[dtype];
  return x.graph.recordOne({ op: "Cast", inputs: [x], attributes: { to: { int: to } }, output: { shape: x.shape, dtype } });
}

/** Returns `condition ? a : b`. */
export function where(condition: Value, a: Value, b: Value): Value {
  const shape = broadcastShapes(condition.shape, broadcastShapes(a.shape, b.shape));
  const zero = a.graph.scalar(0);
  return a.graph.recordOne({
    op: "Where",
    inputs: [condition, a, b],
    output: { shape, dtype: a.dtype },
    vjp: (g, needed) => [
      null,
      needed[1] ? unbroadcast(where(condition, g, zero), a) : null,
      needed[2] ? unbroadcast(where(condition, zero, g), b) : null,
    ],
  });
}

/** Returns `x` with a gradient of zero, written `sg(x)` in papers. */
export function stopGradient(x: Value): Value {
  return x.graph.recordOne({ op: "Identity", inputs: [x], output: { shape: x.shape } });
}

/** Returns the SiLU `y = x · s` with `s = sigmoid(x)` and derivative `s + y · (1 − s)`. */
export function silu(x: Value): Value {
  const s = sigmoid(x);
  const y = x.graph.recordOne({
    op: "Mul",
    inputs: [x, s],
    output: { shape: x.shape },
    variables: [x],
    vjp: (g) => [mul(g, add(s, mul(y, sub(x.graph.scalar(1), s))))],
  });
  return y;
}

/** Coefficients of `2u(x) = x·(a + b·x²)`, with `u(x) = √(2/π)·(x + 0.044715·x³)`. */
const GELU_LINEAR = 2 * Math.sqrt(2 / Math.PI);
const GELU_CUBIC = 0.044715 * GELU_LINEAR;

/**
 * Returns the approximation of the GELU by tanh, `y = ½·x·(1 + tanh(u(x)))`, computed as `x · s` with `s = sigmoid(2u(x))`. Its derivative
 * is `s + y · (1 − s) · 2u'(x)`.
 *
 * @source Hendrycks and Gimpel 2016, arXiv:1606.08415; `gelu_pytorch_tanh` of transformers.
 */
export function geluTanh(x: Value): Value {
  const { graph } = x;
  const squared = mul(x, x);
  const s = sigmoid(mul(x, add(mul(squared, graph.scalar(GELU_CUBIC)), graph.scalar(GELU_LINEAR))));
  const y = graph.recordOne({
    op: "Mul",
    inputs: [x, s],
    output: { shape: x.shape },
    variables: [x],
    vjp: (g) => {
      const slope = add(mul(squared, graph.scalar(3 * GELU_CUBIC)), graph.scalar(GELU_LINEAR));
      return [mul(g, add(s, mul(mul(y, sub(graph.scalar(1), s)), slope)))];
    },
  });
  return y;
}
