/** Writer of a model directory in Hugging Face layout, with all weights in one safetensors file. */
import { open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MODEL_CONFIG_FILE, MODEL_FILES, withDtype } from "../engine/onnx/model/model-files.ts";
import { safetensorsHeader } from "../engine/onnx/model/safetensors.ts";
import { WEIGHTS_FILE } from "../engine/onnx/model/weight-source.ts";
import { readModelFile } from "../base/gguf/model-files.ts";
import { encodedBytes, ENCODERS, type ExportDtype } from "./element-encoders.ts";
import type { MergedWeights } from "./merged-weights.ts";

/** Maximum size of a model's file other than weights, in bytes. */
const MAX_FILE_BYTES = 256 * 2 ** 20;
/** Names of element types in safetensors. */
const SAFETENSORS_NAMES: Readonly<Record<Exclude<ExportDtype, "q8_0">, string>> = { float32: "F32", float16: "F16", bfloat16: "BF16" };

/**
 * Writes a complete model: weights in one file, and configuration, tokenizer and chat template of the base.
 *
 * @param directory - Existing empty directory.
 * @param source - `base`: directory with the base's files, or GGUF file; `weights`: open weights; `dtype`: type of all tensors.
 */
export async function writeHuggingFace(
  directory: string,
  source: {
    readonly base: string;
    readonly weights: MergedWeights;
    readonly dtype: keyof typeof SAFETENSORS_NAMES;
    readonly signal: AbortSignal | undefined;
  },
): Promise<void> {
  const { base, weights, dtype, signal } = source;
  for (const name of MODEL_FILES) {
    const text = await readModelFile(base, name, { maxBytes: MAX_FILE_BYTES, signal });
    if (text !== undefined) await writeFile(join(directory, name), name === MODEL_CONFIG_FILE ? withDtype(text, dtype) : text);
  }
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let dataEnd = 0;
  for (const { name, shape } of weights.tensors) {
    const elements = shape.reduce((product, size) => product * size, 1);
    const dataStart = dataEnd;
    dataEnd += encodedBytes(ENCODERS[dtype], elements);
    header[name] = { dtype: SAFETENSORS_NAMES[dtype], shape, data_offsets: [dataStart, dataEnd] };
  }
  const file = await open(join(directory, WEIGHTS_FILE), "wx");
  try {
    await file.writeFile(safetensorsHeader(header));
    for (const { name } of weights.tensors) {
      signal?.throwIfAborted();
      await file.writeFile(ENCODERS[dtype].encode(await weights.read(name)));
    }
    await file.sync();
  } finally {
    await file.close();
  }
}
