/** Engine of a service: a given one, or the embedded engine with the service's options. */
import { checkThreadCounts } from "../../engine/onnx/counts.ts";
import type { OnnxEngineOptions } from "../../engine/onnx/engine.ts";
import { BaseCatalog } from "../../engine/onnx/model/base-catalog.ts";
import type { Engine } from "../../engine/port.ts";
import { ConfigError } from "../../base/errors.ts";
import { chooseDevice, fallbackWarning, missingGpuWarning } from "./device.ts";
import type { Hub, HubOptions } from "../hub/hub.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { SHIPPED_BASE, shippedDirectory } from "./shipped-base.ts";

/** Options of the service that configure its embedded engine. */
interface DefaultEngineOptions extends Pick<
  OnnxEngineOptions,
  "samplers" | "samplerThreads" | "trainerThreads" | "device" | "deviceMemory" | "weightPrecision" | "rolloutPrecision"
> {
  readonly baseModels?: Readonly<Record<string, string>> | undefined;
  readonly allowedBaseRoots?: readonly string[] | "any" | undefined;
}

/** Options of the service that select its engine. */
export interface EngineOptions extends DefaultEngineOptions {
  readonly engine?: Engine | undefined;
  readonly hub?: HubOptions | null | undefined;
}

/** Starts the embedded engine of a service. */
export type StartEngine = (hub: Hub | null, logger: ServiceLogger) => Promise<Engine>;

/**
 * Checks the options of the engine. Starts and writes nothing.
 *
 * @returns a function that starts the embedded engine; null for a given engine.
 * @throws ConfigError `E_CONFIG` for an option of the embedded engine that is not valid, or that a given engine would ignore.
 */
export async function checkEngine(options: EngineOptions): Promise<StartEngine | null> {
  if (options.engine === undefined) return checkDefaultEngine(options);
  rejectIgnored(options);
  return null;
}

/** Rejects options of the embedded engine that a given engine would ignore. @throws ConfigError `E_CONFIG` */
function rejectIgnored(options: EngineOptions): void {
  const { baseModels, allowedBaseRoots, samplers, samplerThreads, trainerThreads, ...others } = options;
  const { device, deviceMemory, weightPrecision, rolloutPrecision } = others;
  // Without a hub, no engine fetches a base model.
  const hub = others.hub ?? undefined;
  const deviceOptions = { device, deviceMemory, weightPrecision, rolloutPrecision };
  const ignored = { baseModels, allowedBaseRoots, hub, samplers, samplerThreads, trainerThreads, ...deviceOptions };
  for (const [param, value] of Object.entries(ignored)) {
    if (value === undefined) continue;
    throw new ConfigError(
      `\`${param}\` is an option of the embedded engine, and \`engine\` selects another one: omit one of them, or configure the engine where it is created`,
      { param },
    );
  }
}

/** Checks the options of the embedded engine, which runs the shipped base model, the given base models and the base models of the hub. */
async function checkDefaultEngine(options: DefaultEngineOptions): Promise<StartEngine> {
  const { allowedBaseRoots = [], samplers, samplerThreads, trainerThreads } = options;
  const device = chooseDevice(options);
  checkThreadCounts(options);
  const baseModels = { [SHIPPED_BASE]: shippedDirectory(), ...options.baseModels };
  await new BaseCatalog({ baseModels }).check();
  return async (hub, logger) => {
    // Imported lazily: a service with a custom engine needs no native binary.
    const { createOnnxEngine } = await import("../../engine/index.ts");
    return createOnnxEngine({
      baseModels,
      allowedRoots: allowedBaseRoots,
      ...device,
      onFallback: fallbackWarning(logger),
      onDeviceUnavailable: missingGpuWarning(logger, device.weightPrecision),
      onWorkerDeath: (death) => logger.error("A worker of the engine died; it is restarted", { ...death }),
      resolveBase: hub === null ? undefined : (base) => hub.directoryOf(base),
      samplers,
      samplerThreads,
      trainerThreads,
    });
  };
}
