import { describe, expect, onTestFinished, test } from "vitest";
import { ConfigError, EngineError } from "../../../../src/base/errors.ts";
import {
  type ComputeUnit,
  deviceUnit,
  driverRemedy,
  processorUnit,
  withoutSource,
} from "../../../../src/engine/onnx/threads/compute-unit.ts";
import { ComputeUnits } from "../../../../src/engine/onnx/threads/compute-units.ts";
import { missingAdapter } from "../../../support/adapter.ts";

const onDeath = () => {};

/** Starts units with a device that fails to start: `start` returns the reason. */
function unitsWithout(start: () => Error): { units: ComputeUnits; processor: ComputeUnit; reported: Error[] } {
  const processor = processorUnit({
    samplers: 1,
    sampler: { threads: 1, maxRows: 1 },
    trainer: { threads: 1, niceness: 0 },
    precisions: { weightPrecision: "float32", rolloutPrecision: "float32" },
    onDeath,
  });
  const reported: Error[] = [];
  const units = new ComputeUnits(
    processor,
    () => Promise.reject(start()),
    (error) => reported.push(error),
  );
  onTestFinished(() => units.close());
  return { units, processor, reported };
}

const isSmall = () => Promise.resolve(false);

describe("with `auto`, a large model", () => {
  test("is computed by the processor if no device can be opened, and the reason is reported once", async () => {
    const reason = new EngineError("no adapter");
    const { units, processor, reported } = unitsWithout(() => reason);
    expect(await units.of("small", () => Promise.resolve(true))).toBe(processor);
    expect(reported).toEqual([]);
    expect(await units.of("base", isSmall)).toBe(processor);
    expect(await units.of("other", isSmall)).toBe(processor);
    expect(reported).toEqual([reason]);
  });

  test("is rejected if the device lacks a feature that the settings need; small models and the shutdown are not affected", async () => {
    const reason = new ConfigError("no shader-f16", { param: "weightPrecision" });
    const { units, processor, reported } = unitsWithout(() => reason);
    await expect(units.of("large", isSmall)).rejects.toBe(reason);
    await expect(units.of("large", isSmall)).rejects.toBe(reason);
    expect(await units.of("small", () => Promise.resolve(true))).toBe(processor);
    expect(reported).toEqual([]);
  });
});

test("messages of ONNX Runtime lose their position in its source code, the failed condition and the name of the graph", () => {
  const file = "/onnxruntime_src/onnxruntime/core/providers/webgpu/webgpu_context.cc";
  const initialize = "onnxruntime::webgpu::WebGpuContext::Initialize(const WebGpuContextConfig&)::<lambda()>";
  const reason = "Failed to get a WebGPU adapter: No supported adapters.";
  const condition = "adapter_result.status == wgpu::RequestAdapterStatus::Success was false.";
  expect(withoutSource(`The graph "open" did not compile: ${file}:136 ${initialize} ${condition} ${reason}`)).toBe(reason);
  expect(withoutSource(`C:\\a\\webgpu_context.cc:136 ${initialize} ${condition}\n${reason}`)).toBe(reason);
  expect(withoutSource(`${file}:9 The device was lost`)).toBe("The device was lost");
  expect(withoutSource("The process of the device exited with code 1")).toBe("The process of the device exited with code 1");
});

test.each([
  ["linux", "Vulkan loader libvulkan.so.1 (Debian and Ubuntu: apt-get install libvulkan1)"],
  ["win32", "Direct3D 12"],
  ["darwin", "driver of the GPU"],
] as const)("the remedy for a missing adapter names the requirements of %s", (platform, needed) => {
  expect(driverRemedy(platform)).toContain(needed);
});

test.skipIf(missingAdapter !== null)("a software adapter is rejected where it is not accepted", async () => {
  const start = deviceUnit({
    sampler: { threads: 1 },
    weightPrecision: "float32",
    onDeath,
    onFallback: () => {},
    acceptsSoftware: false,
  });
  await expect(start).rejects.toMatchObject({ code: "E_ENGINE", message: expect.stringMatching(/Expected a hardware adapter, got ".+"/) });
});
