/** Source of weights: one safetensors file, several files with an index, or a GGUF file. */
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { DataError, UnsupportedError } from "../../../base/errors.ts";
import { isGgufPath } from "../../../base/gguf/model-files.ts";
import { openGgufWeights } from "../../../base/gguf/weights.ts";
import { MAX_INDEX_BYTES, parseFileJson, readRegularFile } from "../../../base/util/regular-file.ts";
import { openSafetensors, type OpenSafetensors, type WeightSource } from "./safetensors.ts";
import { pathExists } from "../../../base/util/file-system-error.ts";

/** Name of the weights file in a model directory. */
export const WEIGHTS_FILE = "model.safetensors";

/** Name of the index that maps tensors to files, for weights in several files. */
const INDEX_FILE = "model.safetensors.index.json";

/** Maximum number of files in an index, all of which are open at the same time. */
const MAX_SHARDS = 1024;

/**
 * Opens a single weights file.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the file does not exist.
 * @throws DataError `E_DATA` for a truncated or invalid file.
 */
export async function openWeights(path: string): Promise<WeightSource> {
  if (!(await pathExists(path))) throw new UnsupportedError(`Expected weights in ${basename(path)}, found no such file`);
  return openSafetensors(path);
}

/**
 * Opens the weights of a base model. In a directory, these are `model.safetensors` or, if it is missing, the files that
 * `model.safetensors.index.json` names.
 *
 * @param directory - Directory of the model, or a GGUF file.
 * @throws UnsupportedError `E_UNSUPPORTED` if the directory has neither file.
 * @throws DataError `E_DATA` for a truncated or invalid file, or an invalid index.
 */
export async function openBaseWeights(directory: string): Promise<WeightSource> {
  if (await isGgufPath(directory)) return openGgufFile(directory);
  const whole = join(directory, WEIGHTS_FILE);
  const index = join(directory, INDEX_FILE);
  if (await pathExists(whole)) return openWeights(whole);
  if (await pathExists(index)) return openShards(directory, index);
  throw new UnsupportedError(`Expected weights in ${WEIGHTS_FILE}, or in files that ${INDEX_FILE} names; found no such file`);
}

/**
 * Returns the names, sizes and times of change of a base model's weight files, as a text that differs if one of them was replaced.
 *
 * @param directory - Directory of the model, or a GGUF file.
 */
export async function weightsVersion(directory: string): Promise<string> {
  if (await isGgufPath(directory)) return fileVersion(directory);
  const names = (await readdir(directory)).filter((name) => name.endsWith(".safetensors")).sort();
  return (await Promise.all(names.map((name) => fileVersion(join(directory, name))))).join("\n");
}

async function fileVersion(path: string): Promise<string> {
  const { size, mtimeMs } = await stat(path);
  return `${path} ${size} ${mtimeMs}`;
}

/** Opens a GGUF file as a source of weights. */
async function openGgufFile(path: string): Promise<WeightSource> {
  const weights = await openGgufWeights(path);
  return {
    ...weights,
    async read(name) {
      const values = new Float32Array((weights.shapeOf(name) ?? []).reduce((a, b) => a * b, 1));
      await weights.readPieces(name, (piece, first) => values.set(piece, first));
      return values;
    },
    readInto: (name, target) => weights.readPieces(name, (piece, first) => target.set(piece, first)),
    check: (name) => weights.readPieces(name, () => {}),
  };
}

/** Opens all files that an index names as one source of weights. */
async function openShards(directory: string, index: string): Promise<WeightSource> {
  const fileNames = await readIndex(index);
  const files = new Map<string, OpenSafetensors>();
  const close = async () => {
    await Promise.all([...files.values()].map((file) => file.close()));
  };
  try {
    for (const name of new Set(fileNames.values())) files.set(name, await openSafetensors(join(directory, name)));
  } catch (error) {
    await close();
    throw error;
  }
  const findFile = (tensor: string) => files.get(fileNames.get(tensor) ?? "");
  const fileOf = (tensor: string): OpenSafetensors => {
    const file = findFile(tensor);
    if (!file) throw new DataError(`${INDEX_FILE}: expected tensor "${tensor}", found none`);
    return file;
  };
  return {
    label: INDEX_FILE,
    shapeOf: (name) => findFile(name)?.shapes.get(name),
    read: async (name) => fileOf(name).read(name),
    readInto: async (name, ...more) => fileOf(name).readInto(name, ...more),
    readPieces: async (name, visit) => fileOf(name).readPieces(name, visit),
    check: async (name) => fileOf(name).check(name),
    close,
  };
}

/** Reads the file name of each tensor. Names with a directory are refused, so an index cannot reference files outside its directory. */
async function readIndex(index: string): Promise<Map<string, string>> {
  const content = parseFileJson(index, await readRegularFile(index, { maxBytes: MAX_INDEX_BYTES }));
  const weightMap = (content as { weight_map?: unknown } | null)?.weight_map;
  if (typeof weightMap !== "object" || weightMap === null)
    throw new DataError(`${INDEX_FILE}: expected "weight_map" to be an object, got ${typeof weightMap}`);
  const entries = Object.entries(weightMap as Record<string, unknown>);
  const files = new Set(entries.map(([, file]) => file));
  if (files.size > MAX_SHARDS) throw new DataError(`${INDEX_FILE}: expected at most ${MAX_SHARDS} files, got ${files.size}`);
  return new Map(
    entries.map(([tensor, file]) => {
      if (typeof file !== "string" || file !== basename(file) || !file.endsWith(".safetensors"))
        throw new DataError(
          `${INDEX_FILE}: expected "weight_map.${tensor.slice(0, 100)}" to be the name of a .safetensors file here, got ${String(JSON.stringify(file)).slice(0, 100)}`,
        );
      return [tensor, file];
    }),
  );
}
