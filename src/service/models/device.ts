/** Device of the embedded engine: its choice, and warnings about a missing GPU or about operators that the GPU lacks. */
import type { DeviceChoice, RolloutPrecision, WeightPrecision } from "../../engine/engine-info.ts";
import type { OnnxEngineOptions } from "../../engine/onnx/engine.ts";
import {
  type CheckedDevice,
  checkedDevice,
  DEVICE_OPTION_NAMES,
  type DeviceOptionNames,
  type DeviceOptions,
} from "../../engine/onnx/threads/device-options.ts";
import { ConfigError } from "../../base/errors.ts";
import { parseBytes } from "../../base/util/units.ts";
import type { ServiceLogger } from "../common/logger.ts";

/**
 * Returns the device options to use: each option, else its environment variable `WHETSTONE_DEVICE`, `WHETSTONE_DEVICE_MEMORY`,
 * `WHETSTONE_WEIGHT_PRECISION` or `WHETSTONE_ROLLOUT_PRECISION`, else its default.
 *
 * Variables without effect on the device are ignored, because an environment may set them for all programs of a machine:
 *
 * - with "cpu": `WHETSTONE_DEVICE_MEMORY`, and `WHETSTONE_WEIGHT_PRECISION` with the value "float16";
 * - with another device: `WHETSTONE_ROLLOUT_PRECISION`, and `WHETSTONE_WEIGHT_PRECISION` with the value "int8" or "int4".
 *
 * Options without effect are rejected, because a caller who gives them expects an effect.
 *
 * @param names - Names of the options in messages; they differ between the library and the command line.
 * @throws ConfigError `E_CONFIG` for an option or variable that is not valid; the message names it.
 */
export function chooseDevice(options: DeviceOptions, names: DeviceOptionNames = DEVICE_OPTION_NAMES): CheckedDevice {
  const device = options.device ?? (environmentVariable("WHETSTONE_DEVICE") as DeviceChoice | undefined);
  const isCpu = device === undefined || device === "cpu";
  return checkedDevice(
    {
      device,
      deviceMemory: options.deviceMemory ?? (isCpu ? undefined : memoryOfVariable()),
      weightPrecision: options.weightPrecision ?? weightPrecisionOfVariable({ isCpu }),
      rolloutPrecision: options.rolloutPrecision ?? (isCpu ? rolloutPrecisionOfVariable() : undefined),
    },
    // Names of the options or variables, for errors.
    {
      device: options.device === undefined ? "WHETSTONE_DEVICE" : names.device,
      deviceMemory: options.deviceMemory === undefined ? "WHETSTONE_DEVICE_MEMORY" : names.deviceMemory,
      weightPrecision: options.weightPrecision === undefined ? "WHETSTONE_WEIGHT_PRECISION" : names.weightPrecision,
      rolloutPrecision: options.rolloutPrecision === undefined ? "WHETSTONE_ROLLOUT_PRECISION" : names.rolloutPrecision,
    },
  );
}

/** Returns an environment variable; undefined if it is not set or blank. */
function environmentVariable(name: string): string | undefined {
  return process.env[name]?.trim() || undefined;
}

/** Returns `WHETSTONE_WEIGHT_PRECISION`; undefined if it is a precision of other devices. */
function weightPrecisionOfVariable({ isCpu }: { readonly isCpu: boolean }): WeightPrecision | undefined {
  const precision = environmentVariable("WHETSTONE_WEIGHT_PRECISION") as WeightPrecision | undefined;
  const ofOtherDevices: readonly (WeightPrecision | undefined)[] = isCpu ? ["float16"] : ["int8", "int4"];
  return ofOtherDevices.includes(precision) ? undefined : precision;
}

/** Returns `WHETSTONE_ROLLOUT_PRECISION`; `checkedDevice` checks its value. */
function rolloutPrecisionOfVariable(): RolloutPrecision | undefined {
  return environmentVariable("WHETSTONE_ROLLOUT_PRECISION") as RolloutPrecision | undefined;
}

/** Returns `WHETSTONE_DEVICE_MEMORY` in bytes. @throws ConfigError `E_CONFIG` for a value that is not a size. */
function memoryOfVariable(): number | undefined {
  const param = "WHETSTONE_DEVICE_MEMORY";
  const text = environmentVariable(param);
  if (text === undefined) return undefined;
  const bytes = parseBytes(text);
  if (bytes !== null) return bytes;
  throw new ConfigError(`Expected \`${param}\` to be a size such as 24GB, or a number of bytes, got ${JSON.stringify(text)}`, { param });
}

/**
 * Returns a callback of the engine for the device "auto" without a usable GPU. It logs that large models run on the processor.
 *
 * Large models are those above `MAX_SMALL` in `engine/onnx/model/size.ts`; with "auto", smaller ones always run on the processor.
 *
 * @param weightPrecision - Precision of the weights on a GPU; the processor stores float32.
 */
export function missingGpuWarning(
  logger: ServiceLogger,
  weightPrecision: WeightPrecision,
): NonNullable<OnnxEngineOptions["onDeviceUnavailable"]> {
  const weights = weightPrecision === "float16" ? ", with float32 weights instead of float16" : "";
  return (reason) => logger.warn(`No GPU can be used: models of more than 16 M weights run on the processor${weights}`, { reason });
}

/** Returns a callback of the engine that logs one warning per operator that the processor computes in place of the GPU. */
export function fallbackWarning(logger: ServiceLogger): NonNullable<OnnxEngineOptions["onFallback"]> {
  const logged = new Set<string>();
  return ({ program, onProcessor }) => {
    for (const [operator, nodes] of Object.entries(onProcessor)) {
      if (logged.has(operator)) continue;
      logged.add(operator);
      logger.warn("The processor computes an operator that the device lacks, which costs a transfer per node", {
        operator,
        program,
        nodes,
      });
    }
  };
}
