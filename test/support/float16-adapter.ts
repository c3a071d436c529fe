/** Adapter that the tests of float16 weights run on: the adapter of the other tests or, if it is SwiftShader, Mesa's software driver. */
import { existsSync } from "node:fs";
import { vi } from "vitest";
import { createOnnxEngine, type OnnxEngineOptions } from "../../src/engine/index.ts";
import { ConfigError, EngineError } from "../../src/errors.ts";
import { adapterDriver, missingAdapter, SOFTWARE_DRIVERS } from "./adapter.ts";

/** Driver files of lavapipe, as Debian's package `mesa-vulkan-drivers` installs them. */
const FLOAT16_DRIVERS = ["/usr/share/vulkan/icd.d/lvp_icd.json", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"];
const isUsable = adapterDriver !== undefined && !SOFTWARE_DRIVERS.includes(adapterDriver);
const driver = isUsable ? adapterDriver : FLOAT16_DRIVERS.find(existsSync);

/** Driver of SwiftShader, which has no shader-f16; undefined if it is not installed. */
export const driverWithoutFloat16 = SOFTWARE_DRIVERS.find(existsSync);

/**
 * Starts an engine with float16 weights. Its device has a process of its own, so other tests keep their driver.
 *
 * @param driverFile - Driver of the device. @default the driver of this adapter
 */
export async function createFloat16Engine(options: OnnxEngineOptions, driverFile = driver) {
  vi.stubEnv("VK_DRIVER_FILES", driverFile);
  vi.stubEnv("VK_ICD_FILENAMES", driverFile);
  try {
    return await createOnnxEngine({ device: "webgpu", weightPrecision: "float16", ...options });
  } finally {
    vi.unstubAllEnvs();
  }
}

/** Returns why no engine with float16 weights starts; null if one does. */
async function reason(): Promise<string | null> {
  if (driver === undefined) return "no Vulkan driver with shader-f16, see CONTRIBUTING.md";
  try {
    await (await createFloat16Engine({ baseModels: {} })).close();
    return null;
  } catch (error) {
    if (error instanceof ConfigError || error instanceof EngineError) return error.message;
    throw error;
  }
}

/** Reason why these tests cannot run here; null if they can. */
export const missingFloat16 = missingAdapter ?? (await reason());

/** Reason why tests without a process of their own cannot use float16 weights; null if they can. */
export const missingFloat16Here =
  missingFloat16 ?? (isUsable ? null : "SwiftShader has no shader-f16; choose a driver with VK_DRIVER_FILES");
