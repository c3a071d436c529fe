/** Whether the adapter of the tests can store float16 weights. */
import { existsSync } from "node:fs";
import { vi } from "vitest";
import { createOnnxEngine, type OnnxEngineOptions } from "../../src/engine/index.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { adapterDriver, missingAdapter, SWIFTSHADER } from "./adapter.ts";

/** Driver of SwiftShader, which has no shader-f16; undefined if it is not installed. */
export const driverWithoutFloat16 = SWIFTSHADER.find(existsSync);

/**
 * Starts an engine with float16 weights. Its device has a process of its own, so other tests keep their driver.
 *
 * @param driver - Driver file of the device. @default the driver of the other tests
 */
export async function createFloat16Engine(options: OnnxEngineOptions, driver = adapterDriver) {
  vi.stubEnv("VK_DRIVER_FILES", driver);
  vi.stubEnv("VK_ICD_FILENAMES", driver);
  try {
    return await createOnnxEngine({ device: "webgpu", weightPrecision: "float16", ...options });
  } finally {
    vi.unstubAllEnvs();
  }
}

/** Returns the error of an engine with float16 weights if the adapter lacks the feature; null if the engine starts. Other errors are thrown. */
async function reason(): Promise<string | null> {
  try {
    await (await createFloat16Engine({ baseModels: {} })).close();
    return null;
  } catch (error) {
    if (error instanceof ConfigError && error.message.includes("requires f16")) return error.message;
    throw error;
  }
}

/** Reason why tests of float16 weights cannot run here; null if they can. */
export const missingFloat16 = missingAdapter ?? (await reason());
