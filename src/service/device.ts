/** Device of the embedded engine: its choice, and warnings about operators that it lacks. */
import { DEVICE_CHOICES, type DeviceChoice } from "../engine/engine-info.ts";
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
  if (option !== undefined) return checked("device", option);
  const variable = process.env["WHETSTONE_DEVICE"]?.trim() ?? "";
  return variable === "" ? "cpu" : checked("WHETSTONE_DEVICE", variable);
}

function checked(param: string, value: string): DeviceChoice {
  const device = DEVICE_CHOICES.find((choice) => choice === value);
  if (device !== undefined) return device;
  const accepted = DEVICE_CHOICES.map((choice) => JSON.stringify(choice)).join(", ");
  throw new ConfigError(`Expected \`${param}\` to be one of ${accepted}, got ${JSON.stringify(value)}`, { param });
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
