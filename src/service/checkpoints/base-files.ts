/** Files of a base model for an archive, in Hugging Face layout. The files of a GGUF file are made while they are read. */
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

const WEIGHTS = /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/u;
/** Maximum size of a file that is made from the metadata of a GGUF file, in bytes. */
const MAX_MADE_BYTES = 256 * 2 ** 20;

/**
 * Returns the files of a base model, sorted by name.
 *
 * @param path - Directory in Hugging Face layout, or GGUF file.
 * @param withWeights - Whether to include the weights. Without them, the configuration has the type of trained weights, float32.
 */
export async function baseFilesOf(path: string, withWeights: boolean): Promise<BaseFile[]> {
  return (await isGgufPath(path)) ? madeFiles(path, withWeights) : storedFiles(path, withWeights);
}

/** Returns the files of a directory in Hugging Face layout. */
async function storedFiles(directory: string, withWeights: boolean): Promise<BaseFile[]> {
  const names = (await readdir(directory)).filter((name) => MODEL_FILES.includes(name) || (withWeights && WEIGHTS.test(name)));
  return Promise.all(
    names.sort().map(async (name): Promise<BaseFile> => {
      const path = join(directory, name);
      if (name !== MODEL_CONFIG_FILE || withWeights) return { kind: "file", name, path };
      return { kind: "text", name, text: withDtype(await readRegularFile(path, { maxBytes: MAX_CONFIG_BYTES }), "float32") };
    }),
  );
}

/** Returns files made from a GGUF file. */
async function madeFiles(path: string, withWeights: boolean): Promise<BaseFile[]> {
  const files: BaseFile[] = [];
  for (const name of GGUF_MODEL_FILES) {
    const text = await readModelFile(path, name, { maxBytes: MAX_MADE_BYTES });
    if (text !== undefined) files.push({ kind: "text", name, text });
  }
  if (withWeights) files.push(await weightsOf(path));
  return files;
}

/** Returns all weights as float32 in one safetensors file. */
async function weightsOf(path: string): Promise<BaseFile> {
  const layout = baseLayout(await readModelConfig(path));
  const source = await openBaseWeights(path);
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  const names: string[] = [];
  let end = 0;
  for (const parameter of layout.parameters) {
    for (const { name, width } of parameter.files) {
      const shape = fileShape(parameter, width);
      const start = end;
      end += shape.reduce((bytes, size) => bytes * size, Float32Array.BYTES_PER_ELEMENT);
      header[name] = { dtype: "F32", shape, data_offsets: [start, end] };
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
  return { kind: "pieces", name: WEIGHTS_FILE, size: headerBytes.length + end, pieces: pieces(), close: () => source.close() };
}
