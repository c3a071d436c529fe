/** Validation of the device options of the embedded engine. */
import { ConfigError } from "../../../errors.ts";
import { DEVICE_CHOICES, type DeviceChoice, WEIGHT_PRECISIONS, type WeightPrecision } from "../../engine-info.ts";

/** Min memory of a device in bytes. */
const MIN_MEMORY = 1e9;

/** Options that select a device; see `OnnxEngineOptions`. */
interface DeviceSelection {
  readonly device?: DeviceChoice | undefined;
  readonly deviceMemory?: number | undefined;
  readonly weightPrecision?: WeightPrecision | undefined;
}

/** Device options with defaults applied. */
interface CheckedDevice {
  readonly device: DeviceChoice;
  readonly weightPrecision: WeightPrecision;
}

/**
 * Returns the chosen device and the precision of its weights.
 *
 * @throws ConfigError `E_CONFIG` for an unknown device or precision, for a memory that is not valid, and for a memory or float16 weights with
 *   the processor.
 */
export function checkedDevice({ device = "cpu", deviceMemory, weightPrecision = "float32" }: DeviceSelection): CheckedDevice {
  if (!DEVICE_CHOICES.includes(device))
    throw new ConfigError(`Expected \`device\` to be "auto", "cpu" or "webgpu", got ${JSON.stringify(device)}`, { param: "device" });
  checkMemory(device, deviceMemory);
  const param = "weightPrecision";
  if (!WEIGHT_PRECISIONS.includes(weightPrecision))
    throw new ConfigError(`Expected \`${param}\` to be "float32" or "float16", got ${JSON.stringify(weightPrecision)}`, { param });
  if (weightPrecision === "float16" && device === "cpu")
    throw new ConfigError(`\`${param}\` "float16" is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"`, {
      param,
    });
  return { device, weightPrecision };
}

function checkMemory(device: DeviceChoice, memory: number | undefined): void {
  if (memory === undefined) return;
  const param = "deviceMemory";
  if (!Number.isSafeInteger(memory) || memory < MIN_MEMORY)
    throw new ConfigError(`Expected \`${param}\` to be a whole number of bytes from ${MIN_MEMORY} (1 GB), got ${memory}`, { param });
  if (device === "cpu")
    throw new ConfigError(`\`${param}\` is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"`, { param });
}
