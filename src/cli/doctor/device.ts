/** Check of the device that a service would use. */
import type { DeviceChoice } from "../../engine/engine-info.ts";
import { WhetstoneError } from "../../base/errors.ts";
import { chooseDevice } from "../../service/models/device.ts";
import { DEVICE_FLAGS } from "../engine-options.ts";
import { type Check, guarded, pass, problem } from "./check.ts";
import { first, messageOf } from "../../base/util/values.ts";

/** Remedy if the GPU cannot be opened. */
const REMEDY = 'Follow the remedy in the message, or select the device "cpu"';

/** Opens the GPU that the flag `--device` or the environment variables select. Returns no check if they select the CPU. */
export async function checkDevice(option: DeviceChoice | undefined): Promise<Check[]> {
  try {
    const chosen = chooseDevice({ device: option }, DEVICE_FLAGS);
    return chosen.device === "cpu" ? [] : [await guarded("device", REMEDY, () => open(chosen))];
  } catch (error) {
    return [problem("fail", "device", messageOf(error), "Correct the variable")];
  }
}

/** Starts an engine on the GPU and reports the adapter that it uses. */
async function open({ device, ...options }: ReturnType<typeof chooseDevice>): Promise<Check> {
  const { createOnnxEngine } = await import("../../engine/index.ts");
  const { driverRemedy, isSoftware } = await import("../../engine/onnx/threads/compute-unit.ts");
  const engine = await createOnnxEngine({ ...options, baseModels: {}, device: "webgpu" }).catch((error: unknown) => {
    // Without a GPU, `auto` runs models on the CPU. Other errors fail the check, such as a GPU without a required feature.
    if (device === "auto" && WhetstoneError.isInstance(error) && error.code === "E_ENGINE") return error;
    throw error;
  });
  const consequence = "models of more than 16 M weights run on the processor";
  if (engine instanceof Error) return problem("warn", "device", `${consequence}: ${engine.message}`, REMEDY);
  const info = first(engine.devices!());
  await engine.close();
  const name = info.adapter ?? "an adapter whose name the system does not report";
  if (device === "auto" && isSoftware(info))
    return problem(
      "warn",
      "device",
      `${consequence}: ${name} computes on the processor`,
      `${driverRemedy()}, or select the device "webgpu" to use this adapter`,
    );
  return pass("device", `WebGPU computes on ${name}, with weights in ${options.weightPrecision}`);
}
