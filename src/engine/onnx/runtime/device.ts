/** Devices that compute graphs: the processor, and a GPU through WebGPU. */
import type { InferenceSession } from "onnxruntime-node";
import type { Graph } from "../graph/index.ts";
import { lower } from "../graph/lower.ts";
import { CPU_LOWERINGS } from "../graph/lowerings/cpu.ts";
import { WEBGPU_LOWERINGS } from "../graph/lowerings/webgpu.ts";
import type { Placement } from "./placement.ts";
import type { Tensors } from "./program.ts";

/** Bytes that crossed between the process's memory and the device's. */
export interface TransferCount {
  uploaded: number;
  downloaded: number;
}

/** Where graphs are computed and their resident outputs lie. */
export interface Device {
  readonly name: "cpu" | "webgpu";
  /** Replaces the operators that the device lacks. */
  readonly lower: (graph: Graph) => Graph;
  /** Returns the options of a session. @param resident - Outputs that stay in the device's memory. */
  readonly sessionOptions: (resident: readonly string[]) => InferenceSession.SessionOptions;
  /** Configuration entries of a session, nested by the parts of their names. */
  readonly extra: Readonly<Record<string, unknown>>;
  /** Counts the bytes that a run transferred. */
  readonly count: (feeds: Tensors, results: Tensors) => void;
  /** Called once per program with the placement of its nodes; null if every node is placed on the device by definition. */
  readonly onPlacement: ((placement: Placement & { readonly program: string }) => void) | null;
}

/** The processor. */
export const cpu: Device = {
  name: "cpu",
  lower: (graph) => lower(graph, CPU_LOWERINGS),
  sessionOptions: () => ({ executionProviders: ["cpu"] }),
  extra: {},
  count: () => {},
  onPlacement: null,
};

/**
 * Creates the device behind WebGPU.
 *
 * @param onPlacement - Called once per program, after its first run. @default not called
 */
export function webgpu(onPlacement: Device["onPlacement"] = null): Device & { readonly transferred: TransferCount } {
  const transferred = { uploaded: 0, downloaded: 0 };
  return {
    name: "webgpu",
    transferred,
    lower: (graph) => lower(graph, WEBGPU_LOWERINGS),
    sessionOptions: (resident) => ({
      executionProviders: ["webgpu"],
      preferredOutputLocation: Object.fromEntries(resident.map((output) => [output, "gpu-buffer"])),
    }),
    // Token ids are 64-bit integers.
    extra: { ep: { webgpuexecutionprovider: { enableInt64: "1" } } },
    count(feeds, results) {
      addTransfer(transferred, feeds, results);
    },
    onPlacement,
  };
}

/** Adds the bytes that a run transfers to a count. */
export function addTransfer(count: TransferCount, feeds: Tensors, results: Tensors): void {
  count.uploaded += bytesInProcess(feeds);
  count.downloaded += bytesInProcess(results);
}

/** Returns the bytes of the tensors that lie in the process's memory. */
function bytesInProcess(tensors: Tensors): number {
  return Object.values(tensors).reduce(
    (sum, tensor) => sum + (tensor.location === "cpu" ? (tensor.data as Float32Array).byteLength : 0),
    0,
  );
}
