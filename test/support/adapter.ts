/** Adapter that the tests of the device `webgpu` run on: a software driver where one is installed, else none. */
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";

/** Driver files of lavapipe, which is several times as fast as SwiftShader, as Mesa installs them. */
const LAVAPIPE = ["", ".x86_64", ".aarch64"].map((machine) => `/usr/share/vulkan/icd.d/lvp_icd${machine}.json`);
/** Driver files of SwiftShader, as packages of Chromium install them. */
export const SWIFTSHADER: readonly string[] = [
  "/usr/lib/chromium/vk_swiftshader_icd.json",
  "/usr/lib64/chromium-browser/vk_swiftshader_icd.json",
];

/** Whether WebGPU accepts an installed lavapipe: Mesa 25, with Vulkan 1.4, is accepted, and Mesa 22, with Vulkan 1.3, is not. */
function isAccepted(file: string): boolean {
  const driver = JSON.parse(readFileSync(file, "utf8")) as { ICD: { api_version: string } };
  return Number.parseFloat(driver.ICD.api_version) >= 1.4;
}

const chosen = process.env["VK_DRIVER_FILES"] ?? process.env["VK_ICD_FILENAMES"];
/** Driver file of the adapter; undefined without one. */
export const adapterDriver = chosen ?? LAVAPIPE.find((file) => existsSync(file) && isAccepted(file)) ?? SWIFTSHADER.find(existsSync);

const LOADERS = ["/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "/usr/lib/aarch64-linux-gnu/libvulkan.so.1", "/usr/lib64/libvulkan.so.1"];

/** Reason why the tests of the device cannot run here; null if they can. */
export const missingAdapter =
  adapterDriver === undefined || !existsSync(adapterDriver) || !LOADERS.some(existsSync) ? "no Vulkan driver, see CONTRIBUTING.md" : null;

// The Vulkan loader reads these variables, also in child processes.
if (missingAdapter === null) {
  process.env["VK_DRIVER_FILES"] = adapterDriver;
  process.env["VK_ICD_FILENAMES"] = adapterDriver;
  // Otherwise the driver complains on standard error.
  process.env["XDG_RUNTIME_DIR"] ??= tmpdir();
}
