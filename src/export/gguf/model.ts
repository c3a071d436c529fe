/** Export of a model as one GGUF file. */
import type { ExportDtype } from "../element-encoders.ts";
import type { MergedWeights } from "../merged-weights.ts";
import { ggufModel, readRawConfig } from "./architecture.ts";
import { ggufTensor, typeMetadata } from "./tensors.ts";
import { ggufTokenizer } from "./tokenizer.ts";
import { type Metadata, type MetadataValue, writeGguf } from "./writer.ts";

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
  const model = ggufModel(await readRawConfig(base), weights.config);
  const { vocabularySize } = weights.config;
  const tokenizer = preTokenizer === null ? NO_TOKENIZER : await ggufTokenizer(base, { vocabularySize, preTokenizer });
  const general: [string, MetadataValue][] = [
    ["general.type", { type: "string", value: "model" }],
    ["general.name", { type: "string", value: name }],
  ];
  const metadata: Metadata = new Map([...model.metadata, ...general, ...typeMetadata(dtype), ...tokenizer.metadata]);
  const tensors = weights.tensors.map(({ name: hubName, shape }) =>
    ggufTensor({ ...model.tensorOf(hubName), shape, dtype, read: () => weights.read(hubName) }),
  );
  for (const [tensor, factors] of model.ropeFactors)
    tensors.push(ggufTensor({ name: tensor, shape: [factors.length], dtype, interleavedHeads: 0, offset: 0, read: () => factors }));
  await writeGguf(path, { metadata, tensors }, signal);
  return tokenizer.warnings;
}

/** Metadata of a file without tokenizer. */
const NO_TOKENIZER = { metadata: [["tokenizer.ggml.model", { type: "string", value: "none" }] as const], warnings: [] };
