/** Validation of the device options of the embedded engine. */
import { ConfigError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";
import { DEVICE_CHOICES, type DeviceChoice, WEIGHT_PRECISIONS, type WeightPrecision } from "../../engine-info.ts";

/** Min memory of a device in bytes. */
const MIN_MEMORY = 1e9;

/** Options that select a device; see `OnnxEngineOptions`. */
export interface DeviceOptions {
  readonly device?: DeviceChoice | undefined;
  readonly deviceMemory?: number | undefined;
  readonly weightPrecision?: WeightPrecision | undefined;
}

/** Device options with defaults applied. */
export interface CheckedDevice {
  readonly device: DeviceChoice;
  /** Memory of the device in bytes; undefined for the default. */
  readonly deviceMemory: number | undefined;
  readonly weightPrecision: WeightPrecision;
}

/** Names of the device options in messages: options, flags or environment variables. */
export type DeviceOptionNames = Readonly<Record<keyof DeviceOptions, string>>;

/** Names of the device options in programs. */
export const DEVICE_OPTION_NAMES: DeviceOptionNames = {
  device: "device",
  deviceMemory: "deviceMemory",
  weightPrecision: "weightPrecision",
};

/**
 * Returns the device options with defaults applied.
 *
 * @param names - Names of the options in messages.
 * @throws ConfigError `E_CONFIG` for an unknown device or precision, for a memory that is not valid, and for a memory or float16 weights
 *   with the processor.
 */
export function checkedDevice(options: DeviceOptions, names: DeviceOptionNames = DEVICE_OPTION_NAMES): CheckedDevice {
  const { device = "cpu", deviceMemory, weightPrecision = "float32" } = options;
  checkChoice(names.device, device, DEVICE_CHOICES);
  checkMemory(names.deviceMemory, deviceMemory);
  checkChoice(names.weightPrecision, weightPrecision, WEIGHT_PRECISIONS);
  if (device === "cpu" && deviceMemory !== undefined) rejectOnProcessor(names.deviceMemory, "is");
  if (device === "cpu" && weightPrecision === "float16") rejectOnProcessor(names.weightPrecision, `"float16" is`);
  return { device, deviceMemory, weightPrecision };
}

function checkChoice(param: string, value: string, choices: readonly string[]): void {
  if (choices.includes(value)) return;
  const accepted = choices.map((choice) => JSON.stringify(choice)).join(", ");
  throw new ConfigError(`Expected \`${param}\` to be one of ${accepted}, got ${shown(value)}`, { param });
}

function checkMemory(param: string, memory: number | undefined): void {
  if (memory === undefined || (Number.isSafeInteger(memory) && memory >= MIN_MEMORY)) return;
  throw new ConfigError(`Expected \`${param}\` to be a whole number of bytes from ${MIN_MEMORY} (1 GB), got ${shown(memory)}`, { param });
}

function rejectOnProcessor(param: string, what: string): never {
  throw new ConfigError(`\`${param}\` ${what} for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"`, {
    param,
  });
}
