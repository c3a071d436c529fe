/** Validation of the device options of the embedded engine. */
import { ConfigError } from "../../../errors.ts";
import { DEVICE_CHOICES, type DeviceChoice } from "../../engine-info.ts";

/** Min memory of a device in bytes. */
const MIN_MEMORY = 1e9;

/** Options that select a device; see `OnnxEngineOptions`. */
interface DeviceSelection {
  readonly device?: DeviceChoice | undefined;
  readonly deviceMemory?: number | undefined;
}

/**
 * Returns the chosen device.
 *
 * @throws ConfigError `E_CONFIG` for an unknown device, and for a memory that is not valid or belongs to the processor.
 */
export function checkedDevice({ device = "cpu", deviceMemory: memory }: DeviceSelection): DeviceChoice {
  if (!DEVICE_CHOICES.includes(device))
    throw new ConfigError(`Expected \`device\` to be "auto", "cpu" or "webgpu", got ${JSON.stringify(device)}`, { param: "device" });
  if (memory === undefined) return device;
  const param = "deviceMemory";
  if (!Number.isSafeInteger(memory) || memory < MIN_MEMORY)
    throw new ConfigError(`Expected \`${param}\` to be a whole number of bytes from ${MIN_MEMORY} (1 GB), got ${memory}`, { param });
  if (device === "cpu")
    throw new ConfigError(`\`${param}\` is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"`, { param });
  return device;
}
