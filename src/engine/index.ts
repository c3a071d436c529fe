/** `whetstone/engine`: the Engine port and the embedded engine. */
export { createOnnxEngine, type OnnxEngineOptions } from "./onnx/engine.ts";
export type * from "./port.ts";
