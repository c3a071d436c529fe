/** Graph builder: values and nodes, ops with gradients, reverse-mode differentiation, and the ONNX writer. */
export { differentiate, pullback } from "./autodiff.ts";
export { type Dim, type DType, Graph, type Value } from "./graph.ts";
export { writeOnnx } from "./onnx-writer.ts";
export * from "./ops/attention.ts";
export { branch } from "./ops/branch.ts";
export { expandTo, reduceSum } from "./ops/broadcast.ts";
export { cachedAttention, cachedAttentionByRow } from "./ops/cached-attention.ts";
export * from "./ops/elementwise.ts";
export * from "./ops/join.ts";
export * from "./ops/linear.ts";
export * from "./ops/neural.ts";
export * from "./ops/order.ts";
export * from "./ops/reduce.ts";
export * from "./ops/shape.ts";
