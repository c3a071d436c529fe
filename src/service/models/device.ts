/** Device of the embedded engine: its choice, and warnings if it is missing or lacks operators. */
import type { DeviceChoice, WeightPrecision } from "../../engine/engine-info.ts";
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

function variable(name: string): string | undefined {
  return process.env[name]?.trim() || undefined;
}

/**
 * Returns the device options to use: each option, else its environment variable `WHETSTONE_DEVICE`, `WHETSTONE_DEVICE_MEMORY` or
 * `WHETSTONE_WEIGHT_PRECISION`, else its default. The last two variables have no effect with the device "cpu".
 *
 * @param names - Names of the options in messages.
 * @throws ConfigError `E_CONFIG` for an option or variable that is not valid; the message names it.
 */
export function chooseDevice(options: DeviceOptions, names: DeviceOptionNames = DEVICE_OPTION_NAMES): CheckedDevice {
  const device = options.device ?? (variable("WHETSTONE_DEVICE") as DeviceChoice | undefined);
  const isProcessor = device === undefined || device === "cpu";
  return checkedDevice(
    {
      device,
      deviceMemory: options.deviceMemory ?? (isProcessor ? undefined : memoryOfVariable()),
      weightPrecision:
        options.weightPrecision ?? (isProcessor ? undefined : (variable("WHETSTONE_WEIGHT_PRECISION") as WeightPrecision | undefined)),
    },
    {
      device: options.device === undefined ? "WHETSTONE_DEVICE" : names.device,
      deviceMemory: options.deviceMemory === undefined ? "WHETSTONE_DEVICE_MEMORY" : names.deviceMemory,
      weightPrecision: options.weightPrecision === undefined ? "WHETSTONE_WEIGHT_PRECISION" : names.weightPrecision,
    },
  );
}

function memoryOfVariable(): number | undefined {
  const param = "WHETSTONE_DEVICE_MEMORY";
  const text = variable(param);
  if (text === undefined) return undefined;
  const bytes = parseBytes(text);
  if (bytes !== null) return bytes;
  throw new ConfigError(`Expected \`${param}\` to be a size such as 24GB, or a number of bytes, got ${JSON.stringify(text)}`, { param });
}

/**
 * Returns a callback of the engine that logs that large models run on the processor, because the device "auto" found no GPU.
 *
 * @param weightPrecision - Precision of the weights on a GPU; the processor stores float32.
 */
export function warnOfMissingDevice(
  logger: ServiceLogger,
  weightPrecision: WeightPrecision,
): NonNullable<OnnxEngineOptions["onDeviceUnavailable"]> {
  const weights = weightPrecision === "float16" ? ", with float32 weights instead of float16" : "";
  return (reason) => logger.warn(`No GPU can be used: models of more than 16 M weights run on the processor${weights}`, { reason });
}

/** Returns a callback of the engine that logs one warning per operator that the processor computes in place of the device. */
export function warnOfFallbacks(logger: ServiceLogger): NonNullable<OnnxEngineOptions["onFallback"]> {
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
