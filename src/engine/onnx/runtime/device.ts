/** Devices that compute graphs: the processor, and a GPU through WebGPU. */
import type { InferenceSession } from "onnxruntime-node";
import type { Graph } from "../graph/index.ts";
import { lower, type LoweredInputs, runCopiesLate } from "../graph/lower.ts";
import { CPU_LOWERINGS } from "../graph/lowerings/cpu.ts";
import { WEBGPU_LOWERINGS } from "../graph/lowerings/webgpu.ts";
import type { Placement } from "./placement.ts";
import type { Tensor } from "./program.ts";

/** Bytes that crossed between the process's memory and the device's. */
export interface TransferCount {
  uploaded: number;
  downloaded: number;
}

/** Device that computes graphs and holds their resident outputs. */
export interface Device {
  readonly name: "cpu" | "webgpu";
  /** Whether each input from the process's memory costs a transfer of its own. */
  readonly packsInputs: boolean;
  /** Replaces the operators that the device lacks. @param inputs - Inputs in another form. */
  readonly lower: (graph: Graph, inputs: LoweredInputs) => Graph;
  /**
   * Returns the options of a session.
   *
   * @param resident - Outputs that stay in the device's memory.
   * @param hasStored - Whether the graph has inputs in another form than float32, which each node converts for itself.
   */
  readonly sessionOptions: (resident: readonly string[], hasStored: boolean) => InferenceSession.SessionOptions;
  /** Counts the bytes that a run transferred. */
  readonly count: (inputs: readonly Tensor[], outputs: readonly Tensor[]) => void;
  /** Returns what to do about an error of the runtime, as a sentence with a space before it; empty if there is nothing to say. */
  readonly remedyOf: (message: string) => string;
  /** Called once per program with the placement of its nodes; null if every node is placed on the device by definition. */
  readonly onPlacement: ((placement: Placement & { readonly program: string }) => void) | null;
}

/**
 * Optimizers of the runtime that change none of this engine's graphs: they search for operators or patterns that the graphs do not have, which
 * takes a third of the compilation of a gradient graph with 8,000 nodes.
 */
export const INEFFECTIVE: readonly string[] = [
  ...["AttentionFusion", "EmbedLayerNormFusion", "GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion"],
  ...["LayerNormFusionL1", "LayerNormFusionL2", "SkipLayerNormFusion", "BiasSkipLayerNormFusion"],
  ...["GeluFusionL1", "GeluFusionL2", "FastGeluFusion", "BiasGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion"],
  ...["ConvAddFusion", "ConvBNFusion", "ConvMulFusion", "NchwcTransformer", "NhwcTransformer"],
  ...["GemmActivationFusion", "GemmSumFusion", "GemmTransposeFusion", "MatMulActivationFusion"],
  ...["MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion", "MatMulNBitsFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion"],
  ...["QDQPropagationTransformer", "QDQFinalCleanupTransformer", "DoubleQDQPairsRemover", "WeightBiasQuantization"],
  ...["GatherSliceToSplitFusion", "GatherToSliceFusion", "DivMulFusion", "NotWhereFusion", "LabelEncoderFusion"],
  ...["CastElimination", "CastChainElimination", "ExpandElimination"],
];

/** The processor. */
export const cpu: Device = {
  name: "cpu",
  packsInputs: false,
  lower(graph, inputs) {
    const lowered = lower(graph, CPU_LOWERINGS, inputs);
    return inputs.stored?.size ? runCopiesLate(lowered) : lowered;
  },
  sessionOptions: (_resident, hasStored) => ({
    executionProviders: ["cpu"],
    extra: {
      optimization: { disable_specified_optimizers: INEFFECTIVE.join(";") },
      // Optimizations for quantized products would copy each dequantization for every node that reads it.
      ...(hasStored ? { session: { disable_quant_qdq: "1" } } : {}),
    },
  }),
  count: () => {},
  remedyOf: () => "",
  onPlacement: null,
};

/**
 * Creates a device that computes with WebGPU.
 *
 * @param onPlacement - Called once per program, after its first run. @default not called
 */
export function webgpu(onPlacement: Device["onPlacement"] = null): Device & { readonly transferred: TransferCount } {
  const transferred = { uploaded: 0, downloaded: 0 };
  return {
    name: "webgpu",
    transferred,
    packsInputs: true,
    lower: (graph, inputs) => runCopiesLate(lower(graph, WEBGPU_LOWERINGS, inputs)),
    sessionOptions: (resident, hasStored) => ({
      executionProviders: ["webgpu"],
      extra: { optimization: { disable_specified_optimizers: (hasStored ? [...SLOWER, ...MERGING] : SLOWER).join(";") } },
      preferredOutputLocation: Object.fromEntries(resident.map((output) => [output, "gpu-buffer"])),
    }),
    count(inputs, outputs) {
      addTransfer(transferred, inputs, outputs);
    },
    remedyOf: (message) =>
      OUT_OF_MEMORY.test(message)
        ? ' The memory of the device is too small: train an adapter instead of all parameters, send shorter rows, use a smaller base model, store its weights in float16 (weightPrecision), set a smaller deviceMemory, or start the service with device "cpu"'
        : "",
    onPlacement,
  };
}

/** Optimizers that would turn the products of the lowered graph into the slower kernel for transposed matrices. */
const SLOWER = ["MatMulAddFusion", "GemmTransposeFusion"];
/** Optimizers that would merge the float32 copies of a weight, so that it stays in memory from its first use to its last. */
const MERGING = ["CommonSubexpressionElimination"];

/**
 * Messages of the provider when a buffer does not fit into the memory or exceeds the adapter's limit. When the memory is full, the provider
 * reports the first use of the buffer that it could not allocate.
 */
const OUT_OF_MEMORY = /out.of.(?:device.)?memory|\[Invalid Buffer|max buffer size limit|maxStorageBufferBindingSize/iu;

/**
 * Returns whether a process can no longer use its device after an error with this message: the device was lost, or its memory was full.
 * After a failed allocation, the provider keeps returning the invalid buffer, even if memory has been freed since.
 */
export function endsDevice(message: string): boolean {
  return /device lost|out.of.(?:device.)?memory|\[Invalid Buffer/iu.test(message);
}

/** Adds the bytes that a run transfers to a count. */
export function addTransfer(count: TransferCount, inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
  count.uploaded += bytesInProcess(inputs);
  count.downloaded += bytesInProcess(outputs);
}

/** Returns the bytes of the tensors that lie in the process's memory. */
function bytesInProcess(tensors: readonly Tensor[]): number {
  return tensors.reduce((sum, tensor) => sum + (tensor.location === "cpu" ? (tensor.data as Float32Array).byteLength : 0), 0);
}
