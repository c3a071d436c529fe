/** `whetstone/engine`: the Engine port, the embedded engine, and an engine on a Tinker-protocol server. */
export { createOnnxEngine, type OnnxEngineOptions } from "./onnx/engine.ts";
export type { Placement } from "./onnx/runtime/placement.ts";
export type { WorkerDeath } from "./onnx/threads/supervised-worker.ts";
export { createTinkerEngine, type TinkerEngineOptions } from "./tinker/engine.ts";
export type { TinkerEncoding } from "./tinker/encoding.ts";
export type { TinkerServer } from "./tinker/servers.ts";
export type * from "./port.ts";
export type { CodePointRange, Expression, Grammar } from "../text/grammar/expression.ts";
