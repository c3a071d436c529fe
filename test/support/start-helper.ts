import { HelperThread } from "../../src/engine/onnx/threads/helper-thread.ts";
import type { StartHelper } from "../../src/engine/onnx/train/step-executor.ts";

/** Starts the trainer's helper thread at normal priority. */
export const startHelper: StartHelper = (onDeath) => new HelperThread({ niceness: 0 }, onDeath);
