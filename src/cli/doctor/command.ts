/** Command `whetstone doctor`: runs all checks and prints a line per result, with remedies. */
import { Command, Option } from "commander";
import { DEVICE_CHOICES, type DeviceChoice } from "../../engine/engine-info.ts";
import { defaultDataDirectory } from "../../service/disk/data-directory.ts";
import { EXIT_FAILURE } from "../failure.ts";
import { type OutputOptions, printResult } from "../output.ts";
import { readPackage } from "../package.ts";
import type { Check } from "./check.ts";
import { checkDevice } from "./device.ts";
import { checkDataDirectory, checkNativePackages, checkNode } from "./installation.ts";
import { checkService } from "./service.ts";

/** Creates the command `whetstone doctor`, which checks the installation and the service. Changes nothing. */
export function doctorCommand(): Command {
  return new Command("doctor")
    .description("check Node, native packages, data directory, GPU and service; exit code 1 if a check fails")
    .option("--data-dir <path>", "data directory to check (default: WHETSTONE_HOME, or .whetstone)")
    .addOption(new Option("--device <name>", "device to check (default: WHETSTONE_DEVICE, or cpu)").choices(DEVICE_CHOICES))
    .action(run);
}

/** Options of the command. */
interface DoctorOptions extends OutputOptions {
  readonly dataDir?: string;
  readonly device?: DeviceChoice;
}

/** Runs the command. */
async function run({ dataDir = defaultDataDirectory(), device, ...options }: DoctorOptions): Promise<void> {
  const { version, engines } = await readPackage();
  const checks = [
    checkNode(engines.node),
    ...(await checkNativePackages()),
    ...(await checkDataDirectory(dataDir)),
    ...(await checkDevice(device)),
    ...(await checkService(dataDir, version)),
  ];
  const ok = checks.every(({ status }) => status !== "fail");
  printResult(options, { ok, version, checks }, () => checks.flatMap(describe));
  if (!ok) process.exitCode = EXIT_FAILURE;
}

/** Returns a check as lines: its result, and its remedy. */
function describe({ name, status, message, remedy }: Check): string[] {
  return [`${status}  ${name}: ${message}`, ...(remedy === null ? [] : [`      ${remedy}`])];
}
