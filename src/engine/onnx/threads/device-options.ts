/** Validation of the device options of the embedded engine. */
import { ConfigError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";
import {
  DEVICE_CHOICES,
  type DeviceChoice,
  type DevicePrecision,
  type ProcessorPrecision,
  ROLLOUT_PRECISIONS,
  type RolloutPrecision,
  WEIGHT_PRECISIONS,
  type WeightPrecision,
} from "../../engine-info.ts";

/** Min memory of a device in bytes. */
const MIN_MEMORY = 1e9;

/** Options that select a device; see `OnnxEngineOptions`. */
export interface DeviceOptions {
  readonly device?: DeviceChoice | undefined;
  readonly deviceMemory?: number | undefined;
  readonly weightPrecision?: WeightPrecision | undefined;
  readonly rolloutPrecision?: RolloutPrecision | undefined;
}

/** Device options with defaults applied. */
export interface CheckedDevice {
  readonly device: DeviceChoice;
  /** Memory of the device in bytes; undefined for the default. */
  readonly deviceMemory: number | undefined;
  readonly weightPrecision: WeightPrecision;
  readonly rolloutPrecision: RolloutPrecision;
}

/** Names of the device options in messages: options, flags or environment variables. */
export type DeviceOptionNames = Readonly<Record<keyof DeviceOptions, string>>;

/** Names of the device options in programs. */
export const DEVICE_OPTION_NAMES: DeviceOptionNames = {
  device: "device",
  deviceMemory: "deviceMemory",
  weightPrecision: "weightPrecision",
  rolloutPrecision: "rolloutPrecision",
};

/**
 * Returns the device options with defaults applied.
 *
 * @param names - Names of the options in messages.
 * @throws ConfigError `E_CONFIG` for an unknown device or precision, for a memory that is not valid, for a memory or float16 weights with
 *   the processor, and for weights in int8 or int4 and rollouts in int8 with another device.
 */
export function checkedDevice(options: DeviceOptions, names: DeviceOptionNames = DEVICE_OPTION_NAMES): CheckedDevice {
  const { device = "cpu", deviceMemory, weightPrecision = "float32", rolloutPrecision = "float32" } = options;
  checkChoice(names.device, device, DEVICE_CHOICES);
  checkMemory(names.deviceMemory, deviceMemory);
  checkChoice(names.weightPrecision, weightPrecision, WEIGHT_PRECISIONS);
  if (device === "cpu" && deviceMemory !== undefined) rejectOnProcessor(names.deviceMemory, "is");
  if (device === "cpu" && weightPrecision === "float16") rejectOnProcessor(names.weightPrecision, `"float16" is`);
  if (device !== "cpu" && isInBlocks(weightPrecision)) rejectOffProcessor(names.weightPrecision, weightPrecision, device);
  checkChoice(names.rolloutPrecision, rolloutPrecision, ROLLOUT_PRECISIONS);
  if (device !== "cpu" && rolloutPrecision === "int8") rejectOffProcessor(names.rolloutPrecision, "int8", device);
  return { device, deviceMemory, weightPrecision, rolloutPrecision };
}

/** @throws ConfigError `E_CONFIG` unless `value` is one of the choices. */
function checkChoice(param: string, value: string, choices: readonly string[]): void {
  if (choices.includes(value)) return;
  const accepted = choices.map((choice) => JSON.stringify(choice)).join(", ");
  throw new ConfigError(`Expected \`${param}\` to be one of ${accepted}, got ${shown(value)}`, { param });
}

/** @throws ConfigError `E_CONFIG` for a memory size that is not an integer of at least {@link MIN_MEMORY}. */
function checkMemory(param: string, memory: number | undefined): void {
  if (memory === undefined || (Number.isSafeInteger(memory) && memory >= MIN_MEMORY)) return;
  throw new ConfigError(`Expected \`${param}\` to be a whole number of bytes from ${MIN_MEMORY} (1 GB), got ${shown(memory)}`, { param });
}

/** @throws ConfigError `E_CONFIG` for an option of GPUs; `what` continues the sentence about it up to "for a GPU". */
function rejectOnProcessor(param: string, what: string): never {
  throw new ConfigError(`\`${param}\` ${what} for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"`, {
    param,
  });
}

/** Returns the type in which the processor stores weights: float32 in place of float16, for models without a GPU on the device "auto". */
export function processorPrecision(precision: WeightPrecision): ProcessorPrecision {
  return precision === "float16" ? "float32" : precision;
}

/** Returns the type in which a GPU stores weights. */
export function devicePrecision(precision: WeightPrecision): DevicePrecision {
  return precision === "float16" ? "float16" : "float32";
}

/** Whether weights are stored in blocks of 4 or 8 bits. */
function isInBlocks(precision: WeightPrecision): boolean {
  return precision === "int4" || precision === "int8";
}

/** @throws ConfigError `E_CONFIG` for a value that only the processor supports. */
function rejectOffProcessor(param: string, value: string, device: DeviceChoice): never {
  throw new ConfigError(`\`${param}\` "${value}" is for the processor, got the device "${device}": omit it, or select the device "cpu"`, {
    param,
  });
}
