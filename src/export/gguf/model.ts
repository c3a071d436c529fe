/** Export of a model as one GGUF file. */
import { CONFIG_FILE } from "../../engine/onnx/model/model-files.ts";
import { readModelFile } from "../../gguf/model-files.ts";
import { MAX_CONFIG_BYTES, parseFileJson } from "../../util/regular-file.ts";
import { encodedBytes, ENCODERS, type ExportDtype } from "../element-encoders.ts";
import type { MergedWeights } from "../merged-weights.ts";
import { ggufModel, interleaveHeads, type MappedTensor } from "./architecture.ts";
import { ggufTokenizer } from "./tokenizer.ts";
import { type GgufTensor, type Metadata, type MetadataValue, writeGguf } from "./writer.ts";

/** Numbers of an element type in ggml, and of a file with mostly this type. */
const GGML_TYPES: Readonly<Record<ExportDtype, { readonly tensor: number; readonly file: number }>> = {
  float32: { tensor: 0, file: 0 },
  float16: { tensor: 1, file: 1 },
  q8_0: { tensor: 8, file: 7 },
  bfloat16: { tensor: 30, file: 32 },
};
/** Version of the quantization formats. */
const QUANTIZATION_VERSION = 2;

/** Model to write, and the form of the file. */
export interface GgufSource {
  /** Directory with configuration and tokenizer. */
  readonly base: string;
  readonly weights: MergedWeights;
  /** Value of `general.name`. */
  readonly name: string;
  /** Type of matrices; vectors are float32. */
  readonly dtype: ExportDtype;
  /** llama.cpp's identifier of the pre-tokenizer; undefined to choose by pattern; null for a file without tokenizer. */
  readonly preTokenizer: string | null | undefined;
  readonly signal: AbortSignal | undefined;
}

/**
 * Writes a model as GGUF.
 *
 * @param path - Path of the file, which must not exist.
 * @returns sentences about known differences.
 * @throws UnsupportedError `E_UNSUPPORTED` for a model or a tokenizer that llama.cpp does not have.
 */
export async function exportGguf(path: string, source: GgufSource): Promise<readonly string[]> {
  const { base, weights, name, dtype, preTokenizer, signal } = source;
  const text = (await readModelFile(base, CONFIG_FILE, { maxBytes: MAX_CONFIG_BYTES })) ?? "{}";
  const { architectures } = parseFileJson(CONFIG_FILE, text) as { readonly architectures: readonly string[] };
  const model = ggufModel(architectures[0]!, weights.config);
  const { vocabularySize } = weights.config;
  const tokenizer = preTokenizer === null ? NO_TOKENIZER : await ggufTokenizer(base, { vocabularySize, preTokenizer });
  const general: [string, MetadataValue][] = [
    ["general.type", { type: "string", value: "model" }],
    ["general.name", { type: "string", value: name }],
    ["general.file_type", { type: "uint32", value: GGML_TYPES[dtype].file }],
    ["general.quantization_version", { type: "uint32", value: QUANTIZATION_VERSION }],
  ];
  const metadata: Metadata = new Map([...model.metadata, ...general, ...tokenizer.metadata]);
  const tensors = weights.tensors.map(({ name: file, shape }) => tensorOf(model.tensorOf(file), shape, dtype, weights));
  if (model.ropeFactors !== null) tensors.push(ropeFactors(model.ropeFactors));
  await writeGguf(path, { metadata, tensors }, signal);
  return tokenizer.warnings;
}

const NO_TOKENIZER = { metadata: [["tokenizer.ggml.model", { type: "string", value: "none" }] as const], warnings: [] };

function tensorOf(
  { name, file, interleavedHeads }: MappedTensor,
  shape: readonly number[],
  dtype: ExportDtype,
  weights: MergedWeights,
): GgufTensor {
  const rowLength = shape.at(-1)!;
  // llama.cpp computes with vectors in float32. Rows of other lengths than whole blocks of Q8_0 are float16, as in its own converter.
  const type = shape.length === 1 ? "float32" : rowLength % ENCODERS[dtype].blockLength === 0 ? dtype : "float16";
  const elements = shape.reduce((a, b) => a * b, 1);
  return {
    name,
    shape,
    type: GGML_TYPES[type].tensor,
    bytes: encodedBytes(ENCODERS[type], elements),
    async data() {
      const values = await weights.read(file);
      return ENCODERS[type].encode(
        interleavedHeads === 0 ? values : interleaveHeads(values, interleavedHeads, shape.length === 1 ? 1 : rowLength),
      );
    },
  };
}

function ropeFactors(factors: Float32Array): GgufTensor {
  return {
    name: "rope_freqs.weight",
    shape: [factors.length],
    type: GGML_TYPES.float32.tensor,
    bytes: factors.byteLength,
    data: () => ENCODERS.float32.encode(factors),
  };
}
