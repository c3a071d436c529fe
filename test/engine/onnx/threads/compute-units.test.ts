import { describe, expect, onTestFinished, test } from "vitest";
import { ConfigError, EngineError } from "../../../../src/errors.ts";
import { type ComputeUnit, deviceUnit, processorUnit } from "../../../../src/engine/onnx/threads/compute-unit.ts";
import { ComputeUnits } from "../../../../src/engine/onnx/threads/compute-units.ts";
import { missingAdapter } from "../../../support/adapter.ts";

const onDeath = () => {};

/** Starts units whose device does not start: `start` returns the reason. */
function unitsWithout(start: () => Error): { units: ComputeUnits; processor: ComputeUnit } {
  const processor = processorUnit({
    samplers: 1,
    sampler: { threads: 1, maxRows: 1 },
    trainer: { threads: 1, niceness: 0 },
    onDeath,
  });
  const units = new ComputeUnits(processor, () => Promise.reject(start()));
  onTestFinished(() => units.close());
  return { units, processor };
}

const isSmall = () => Promise.resolve(false);

describe("with `auto`, a large model", () => {
  test("is computed by the processor if no device can be opened", async () => {
    const { units, processor } = unitsWithout(() => new EngineError("no adapter"));
    expect(await units.of("base", isSmall)).toBe(processor);
  });

  test("is rejected if the device lacks a feature that the settings need; small models and the shutdown are not affected", async () => {
    const reason = new ConfigError("no shader-f16", { param: "weightPrecision" });
    const { units, processor } = unitsWithout(() => reason);
    await expect(units.of("large", isSmall)).rejects.toBe(reason);
    await expect(units.of("large", isSmall)).rejects.toBe(reason);
    expect(await units.of("small", () => Promise.resolve(true))).toBe(processor);
  });
});

test.skipIf(missingAdapter !== null)("a software adapter is rejected where it is not accepted", { timeout: 60_000 }, async () => {
  const start = deviceUnit({
    sampler: { threads: 1 },
    weightPrecision: "float32",
    onDeath,
    onFallback: () => {},
    acceptsSoftware: false,
  });
  await expect(start).rejects.toMatchObject({ code: "E_ENGINE", message: expect.stringMatching(/Expected a hardware adapter, got ".+"/) });
});
