/** Device of the embedded engine: its choice, and warnings if it is missing or lacks operators. */
import { DEVICE_CHOICES, type DeviceChoice, WEIGHT_PRECISIONS, type WeightPrecision } from "../engine/engine-info.ts";
import type { OnnxEngineOptions } from "../engine/onnx/engine.ts";
import { ConfigError } from "../errors.ts";
import { parseBytes } from "../util/units.ts";
import type { ServiceLogger } from "./logger.ts";

/**
 * Returns the device to use: the option, else the environment variable `WHETSTONE_DEVICE`, else "cpu".
 *
 * @throws ConfigError `E_CONFIG` for any other value than "auto", "cpu" and "webgpu".
 */
export function chooseDevice(option: DeviceChoice | undefined): DeviceChoice {
  if (option !== undefined) return checked("device", option, DEVICE_CHOICES);
  const variable = process.env["WHETSTONE_DEVICE"]?.trim() ?? "";
  return variable === "" ? "cpu" : checked("WHETSTONE_DEVICE", variable, DEVICE_CHOICES);
}

function checked<T extends string>(param: string, value: string, choices: readonly T[]): T {
  const chosen = choices.find((choice) => choice === value);
  if (chosen !== undefined) return chosen;
  const accepted = choices.map((choice) => JSON.stringify(choice)).join(", ");
  throw new ConfigError(`Expected \`${param}\` to be one of ${accepted}, got ${JSON.stringify(value)}`, { param });
}

/**
 * Returns the precision of weights that are not trained: the option, else the environment variable `WHETSTONE_WEIGHT_PRECISION`, which has no
 * effect with the device "cpu"; undefined for the default of the engine.
 *
 * @throws ConfigError `E_CONFIG` for any other value than "float32" and "float16".
 */
export function chooseWeightPrecision(option: WeightPrecision | undefined, device: DeviceChoice): WeightPrecision | undefined {
  if (option !== undefined) return checked("weightPrecision", option, WEIGHT_PRECISIONS);
  const variable = process.env["WHETSTONE_WEIGHT_PRECISION"]?.trim() ?? "";
  return device === "cpu" || variable === "" ? undefined : checked("WHETSTONE_WEIGHT_PRECISION", variable, WEIGHT_PRECISIONS);
}

/**
 * Returns the memory of the device in bytes: the option, else the environment variable `WHETSTONE_DEVICE_MEMORY`, which has no effect with the
 * device "cpu"; undefined for the default of the engine.
 *
 * @throws ConfigError `E_CONFIG` if the variable is not a size.
 */
export function chooseDeviceMemory(option: number | undefined, device: DeviceChoice): number | undefined {
  const param = "WHETSTONE_DEVICE_MEMORY";
  const variable = process.env[param]?.trim() ?? "";
  if (option !== undefined || device === "cpu" || variable === "") return option;
  const bytes = parseBytes(variable);
  if (bytes === null)
    throw new ConfigError(`Expected \`${param}\` to be a size such as 24GB, or a number of bytes, got ${JSON.stringify(variable)}`, {
      param,
    });
  return bytes;
}

/**
 * Returns a callback of the engine that logs that large models run on the processor, because the device "auto" found no GPU.
 *
 * @param weightPrecision - Precision of the weights on a GPU; the processor stores float32.
 */
export function warnOfMissingDevice(
  logger: ServiceLogger,
  weightPrecision: WeightPrecision | undefined,
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
