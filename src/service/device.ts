/** Device of the embedded engine: its choice, and warnings about operators that it lacks. */
import { DEVICE_CHOICES, type DeviceChoice } from "../engine/engine-info.ts";
import type { OnnxEngineOptions } from "../engine/onnx/engine.ts";
import { ConfigError } from "../errors.ts";
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
