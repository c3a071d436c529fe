/** Placement of a program's nodes, read from a profile of its first run. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { first } from "../../../base/util/values.ts";

/** Counts of the nodes of a program, by place of computation. */
export interface Placement {
  /** Number of nodes on the device. */
  readonly onDevice: number;
  /** Number of nodes on the processor that compute with integers only: shapes, and the indices of tokens, which the process has anyway. */
  readonly integers: number;
  /** Number of other nodes on the processor, by operator. Each costs a transfer to the processor and back. */
  readonly onProcessor: Readonly<Record<string, number>>;
}

/** Creates an empty directory and returns the prefix of the profile in it. */
export async function newProfile(): Promise<string> {
  return join(await mkdtemp(join(tmpdir(), "whetstone-profile-")), "profile");
}

/** Fields of a node in a profile of ONNX Runtime. */
interface ProfiledNode {
  readonly op_name: string;
  readonly provider: string;
  /** Type and shape of each input, such as `{"int64": [4]}`. */
  readonly input_type_shape?: readonly Readonly<Record<string, readonly number[]>>[];
}

/** Event in a profile; only events of nodes have a `provider`. */
interface ProfileEvent {
  readonly name: string;
  readonly args?: ProfiledNode | { readonly provider?: undefined };
}

/** Removes the directory of a profile. */
export async function dropProfile(prefix: string): Promise<void> {
  await rm(dirname(prefix), { recursive: true, force: true });
}

/** Reads the profile with the given prefix and removes its directory. */
export async function readPlacement(prefix: string): Promise<Placement> {
  const directory = dirname(prefix);
  try {
    const file = first(await readdir(directory));
    const events = JSON.parse(await readFile(join(directory, file), "utf8")) as ProfileEvent[];
    const nodes = events.flatMap(({ name, args }) => (name.endsWith("_kernel_time") && args?.provider !== undefined ? [args] : []));
    const onProcessor: Record<string, number> = {};
    let [onDevice, integers] = [0, 0];
    for (const { op_name: op, provider, input_type_shape: inputs } of nodes) {
      const types = inputs?.flatMap(Object.keys) ?? [];
      if (provider !== "CPUExecutionProvider") onDevice++;
      else if (op === "Shape" || (types.length > 0 && types.every((type) => type.startsWith("int")))) integers++;
      else onProcessor[op] = (onProcessor[op] ?? 0) + 1;
    }
    return { onDevice, integers, onProcessor };
  } finally {
    await dropProfile(prefix);
  }
}
