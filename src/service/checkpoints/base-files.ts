/** Files of a base model for an archive, in Hugging Face layout. A base model in a GGUF file is converted while it is read. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { readModelConfig } from "../../engine/onnx/model/config.ts";
import { MODEL_CONFIG_FILE, MODEL_FILES, withDtype } from "../../engine/onnx/model/model-files.ts";
import { baseLayout, fileShape } from "../../engine/onnx/model/parameters.ts";
import { safetensorsHeader } from "../../engine/onnx/model/safetensors.ts";
import { openBaseWeights, WEIGHTS_FILE } from "../../engine/onnx/model/weight-source.ts";
import { GGUF_MODEL_FILES, isGgufPath, readModelFile } from "../../base/gguf/model-files.ts";
import { MAX_CONFIG_BYTES, readRegularFile } from "../../base/util/regular-file.ts";

/** File of a base model: on disk, as text, or as pieces of a known total size in bytes. */
export type BaseFile =
  | { readonly kind: "file"; readonly name: string; readonly path: string }
  | { readonly kind: "text"; readonly name: string; readonly text: string }
  | {
      readonly kind: "pieces";
      readonly name: string;
      readonly size: number;
      readonly pieces: AsyncIterable<Uint8Array>;
      /** Releases the open source, also if the pieces are not read. */
      readonly close: () => Promise<void>;
    };

/** Names of the weight files of a directory: one file, or shards with their index. */
const WEIGHT_FILE_NAME = /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/u;
/** Max bytes of a text file that is converted from the metadata of a GGUF file. */
const MAX_CONVERTED_BYTES = 256 * 2 ** 20;

/** Options of {@link baseFilesOf}. */
type WeightOptions = { readonly withWeights: boolean };

/**
 * Returns the files of a base model.
 *
 * @param path - Directory in Hugging Face layout, or GGUF file.
 * @param options - `withWeights`: whether to include the weights. Without them, the configuration names the type of trained weights,
 *   float32.
 */
export async function baseFilesOf(path: string, { withWeights }: WeightOptions): Promise<BaseFile[]> {
  return (await isGgufPath(path)) ? convertedFiles(path, { withWeights }) : storedFiles(path, { withWeights });
}

/** Returns the files of a directory in Hugging Face layout. */
async function storedFiles(directory: string, { withWeights }: WeightOptions): Promise<BaseFile[]> {
  const names = (await readdir(directory)).filter((name) => MODEL_FILES.includes(name) || (withWeights && WEIGHT_FILE_NAME.test(name)));
  return Promise.all(
    names.sort().map(async (name): Promise<BaseFile> => {
      const path = join(directory, name);
      if (name !== MODEL_CONFIG_FILE || withWeights) return { kind: "file", name, path };
      return { kind: "text", name, text: withDtype(await readRegularFile(path, { maxBytes: MAX_CONFIG_BYTES }), "float32") };
    }),
  );
}

/** Returns the files converted from a GGUF file. */
async function convertedFiles(path: string, { withWeights }: WeightOptions): Promise<BaseFile[]> {
  const files: BaseFile[] = [];
  for (const name of GGUF_MODEL_FILES) {
    const text = await readModelFile(path, name, { maxBytes: MAX_CONVERTED_BYTES });
    if (text !== undefined) files.push({ kind: "text", name, text });
  }
  if (withWeights) files.push(await convertedWeights(path));
  return files;
}

/** Returns all weights of a GGUF file as float32 in one safetensors file. Its pieces are the header, then one tensor each. */
async function convertedWeights(path: string): Promise<BaseFile> {
  const layout = baseLayout(await readModelConfig(path));
  const source = await openBaseWeights(path);
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  const names: string[] = [];
  let dataEnd = 0;
  for (const parameter of layout.parameters) {
    for (const { name, width } of parameter.files) {
      const shape = fileShape(parameter, width);
      const start = dataEnd;
      dataEnd += shape.reduce((bytes, size) => bytes * size, Float32Array.BYTES_PER_ELEMENT);
      header[name] = { dtype: "F32", shape, data_offsets: [start, dataEnd] };
      names.push(name);
    }
  }
  const headerBytes = safetensorsHeader(header);
  const pieces = async function* () {
    yield headerBytes;
    for (const name of names) {
      const values = await source.read(name);
      yield new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    }
  };
  return { kind: "pieces", name: WEIGHTS_FILE, size: headerBytes.length + dataEnd, pieces: pieces(), close: () => source.close() };
}
