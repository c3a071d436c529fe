/** Adapter that the tests of the device `webgpu` run on: a software driver where one is installed, else none. */
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";

/** Driver files of SwiftShader, as Debian's package `chromium` installs them. */
export const SOFTWARE_DRIVERS: readonly string[] = [
  "/usr/lib/chromium/vk_swiftshader_icd.json",
  "/usr/lib64/chromium-browser/vk_swiftshader_icd.json",
];

const chosen = process.env["VK_DRIVER_FILES"] ?? process.env["VK_ICD_FILENAMES"];
/** Driver file of the adapter; undefined without one. */
export const adapterDriver = chosen ?? SOFTWARE_DRIVERS.find(existsSync);

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
