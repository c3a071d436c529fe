/** Placement of a program's nodes, read from a profile of its first run. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** Number of nodes on the device, and of nodes on the processor by operator. */
export interface Placement {
  readonly onDevice: number;
  readonly onProcessor: Readonly<Record<string, number>>;
}

/** Creates an empty directory and returns the prefix of the profile in it. */
export async function newProfile(): Promise<string> {
  return join(await mkdtemp(join(tmpdir(), "whetstone-profile-")), "profile");
}

interface ProfileEvent {
  readonly name: string;
  readonly args?: { readonly op_name?: string; readonly provider?: string };
}

/** Reads the profile with the given prefix and removes its directory. */
export async function readPlacement(prefix: string): Promise<Placement> {
  const directory = dirname(prefix);
  try {
    const [file] = await readdir(directory);
    const events = JSON.parse(await readFile(join(directory, file!), "utf8")) as ProfileEvent[];
    const nodes = events.filter(({ name, args }) => name.endsWith("_kernel_time") && args?.provider !== undefined);
    const onProcessor: Record<string, number> = {};
    let onDevice = 0;
    for (const { args } of nodes) {
      if (args!.provider !== "CPUExecutionProvider") onDevice++;
      else onProcessor[args!.op_name!] = (onProcessor[args!.op_name!] ?? 0) + 1;
    }
    return { onDevice, onProcessor };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
