import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { Program } from "../../../../src/engine/onnx/runtime/program.ts";
import { Forward } from "../../../../src/engine/onnx/sample/forward.ts";
import { hostGraphs } from "../../../../src/engine/onnx/sample/host-place.ts";

afterEach(() => void vi.restoreAllMocks());

test("keeps at most 16 compiled graphs, releases the least recently used and compiles it again on use", async () => {
  const compile = vi.spyOn(Program, "compile");
  const release = vi.spyOn(Program.prototype, "release");
  const config = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const weightsOf = (contextLength: number) => ({
    config: { ...config, contextLength },
    layout: baseLayout(config),
    flat: new Float32Array(0),
    rotary: { cos: new Float32Array(0), sin: new Float32Array(0) },
  });
  const forward = new Forward(hostGraphs(1));
  for (let i = 0; i < 20; i++) {
    await forward.prepare("decode", weightsOf(64), false, false);
    await forward.prepare("decode", weightsOf(65 + i), false, false);
  }
  expect(compile).toHaveBeenCalledTimes(21);
  await vi.waitFor(() => expect(release).toHaveBeenCalledTimes(21 - 16));
  await forward.prepare("decode", weightsOf(65), false, false);
  expect(compile).toHaveBeenCalledTimes(22);
});
