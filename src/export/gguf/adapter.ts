/** Export of an adapter as a GGUF file, for the option `--lora` of llama.cpp. */
import { readModelConfig } from "../../engine/onnx/model/config.ts";
import { openAdapterWeights } from "../adapter-weights.ts";
import type { ExportDtype } from "../element-encoders.ts";
import { ggufModel, readRawConfig } from "./architecture.ts";
import { ggufTensor, typeMetadata } from "./tensors.ts";
import { type WrittenTensor, type Metadata, writeGguf } from "./writer.ts";

/** Adapter to write, and the form of the file. */
export interface GgufAdapterSource {
  /** Directory with the base's `config.json`; its weights are not read. */
  readonly base: string;
  /** Directory of the adapter in PEFT layout. */
  readonly adapter: string;
  /** Value of `general.name`. */
  readonly name: string;
  /** Type of the matrices. */
  readonly dtype: ExportDtype;
  readonly signal: AbortSignal | undefined;
}

/**
 * Writes an adapter as GGUF: per linear layer `<tensor of the base>.lora_a`, shape `[rank, in]`, and `.lora_b`, shape `[out, rank]`.
 * llama.cpp adds `(alpha / rank) · B·A·x` to the output of the layer, with the rank from the shapes. The rows of `B` of query and key
 * projections are reordered as in the base.
 *
 * @param path - Path of the file, which must not exist.
 * @throws UnsupportedError `E_UNSUPPORTED` for a base that llama.cpp does not have.
 * @throws DataError `E_DATA` for an adapter that does not fit the base.
 * @source https://github.com/ggml-org/llama.cpp, `convert_lora_to_gguf.py` and `src/llama-adapter.cpp`
 */
export async function exportGgufAdapter(path: string, { base, adapter, name, dtype, signal }: GgufAdapterSource): Promise<void> {
  const config = await readModelConfig(base);
  const architecture = ggufModel(await readRawConfig(base), config);
  const weights = await openAdapterWeights(adapter, config);
  try {
    const metadata: Metadata = new Map([
      ["general.architecture", { type: "string", value: architecture.name }],
      ["general.type", { type: "string", value: "adapter" }],
      ["adapter.type", { type: "string", value: "lora" }],
      ["adapter.lora.alpha", { type: "float32", value: weights.alpha }],
      ["general.name", { type: "string", value: name }],
      ...typeMetadata(dtype),
    ]);
    const tensors = [...weights.targets].flatMap(([target, [height, width]]): WrittenTensor[] => {
      const { name: tensor, interleavedHeads } = architecture.tensorOf(target);
      const shared = { dtype, offset: 0 };
      const [a, b] = [() => weights.read(target, "A"), () => weights.read(target, "B")];
      return [
        ggufTensor({ ...shared, name: `${tensor}.lora_a`, shape: [weights.rank, width], interleavedHeads: 0, read: a }),
        ggufTensor({ ...shared, name: `${tensor}.lora_b`, shape: [height, weights.rank], interleavedHeads, read: b }),
      ];
    });
    await writeGguf(path, { metadata, tensors }, signal);
  } finally {
    await weights.close();
  }
}
