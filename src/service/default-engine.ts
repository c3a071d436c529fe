import type { OnnxEngineOptions } from "../engine/onnx/engine.ts";
import type { Engine } from "../engine/port.ts";
import { chooseDevice, chooseDeviceMemory, chooseWeightPrecision, warnOfFallbacks, warnOfMissingDevice } from "./device.ts";
import type { Hub } from "./hub/hub.ts";
import type { ServiceLogger } from "./logger.ts";
import { SHIPPED_BASE, shippedDirectory } from "./shipped-base.ts";

/** Options of the service that configure its embedded engine. */
export interface DefaultEngineOptions extends Pick<
  OnnxEngineOptions,
  "samplers" | "samplerThreads" | "trainerThreads" | "device" | "deviceMemory" | "weightPrecision"
> {
  readonly baseModels?: Readonly<Record<string, string>> | undefined;
  readonly allowedBaseRoots?: readonly string[] | undefined;
}

/** Starts the embedded engine on the shipped base model, the given base models and the base models of the hub. */
export async function createDefaultEngine(options: DefaultEngineOptions, hub: Hub | null, logger: ServiceLogger): Promise<Engine> {
  const { baseModels = {}, allowedBaseRoots = [], samplers, samplerThreads, trainerThreads } = options;
  // Imported lazily: a service with a custom engine needs no native binary.
  const { createOnnxEngine } = await import("../engine/index.ts");
  const device = chooseDevice(options.device);
  const weightPrecision = chooseWeightPrecision(options.weightPrecision, device);
  return createOnnxEngine({
    baseModels: { [SHIPPED_BASE]: shippedDirectory(), ...baseModels },
    allowedRoots: [...allowedBaseRoots],
    device,
    deviceMemory: chooseDeviceMemory(options.deviceMemory, device),
    weightPrecision,
    onFallback: warnOfFallbacks(logger),
    onDeviceUnavailable: warnOfMissingDevice(logger, weightPrecision),
    onWorkerDeath: (death) => logger.error("A worker of the engine died; it is restarted", { ...death }),
    resolveBase: hub === null ? undefined : (base) => hub.directoryOf(base),
    samplers,
    samplerThreads,
    trainerThreads,
  });
}
