/** Where weights are read from: one safetensors file, or several that an index tells apart. */
import { access } from "node:fs/promises";
import { basename, join } from "node:path";
import { DataError, UnsupportedError } from "../../../errors.ts";
import { parseFileJson, readRegularFile } from "../../../util/regular-file.ts";
import { openSafetensors, type OpenSafetensors } from "./safetensors.ts";

/** The weights file of a model directory. */
export const WEIGHTS_FILE = "model.safetensors";

/** Says which file holds which tensor, where there are several. */
const INDEX_FILE = "model.safetensors.index.json";

/** Size of the largest index, in bytes. */
const MAX_INDEX_BYTES = 16 * 1024 * 1024;
/** Files that are open at once. */
const MAX_SHARDS = 1024;

/** Tensors by name, read one at a time. */
export interface WeightSource {
  /** Name of the file that names the tensors, without its directory; for messages. */
  readonly label: string;
  shapeOf(name: string): readonly number[] | undefined;
  read(name: string): Promise<Float32Array>;
  /** Checks the numbers of a tensor as {@link read} does, without keeping them. */
  check(name: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the one file at `path`.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` when there is none.
 * @throws DataError `E_DATA` for a file that is not whole.
 */
export async function openWeights(path: string): Promise<WeightSource> {
  if (!(await exists(path))) throw new UnsupportedError(`Expected weights in ${basename(path)}, found no such file`);
  const file = await openSafetensors(path);
  return {
    label: basename(path),
    shapeOf: (name) => file.shapes.get(name),
    read: (name) => file.read(name),
    check: (name) => file.check(name),
    close: () => file.close(),
  };
}

/**
 * Opens a base model's weights: `model.safetensors`, or else the files that `model.safetensors.index.json` names.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` when there is neither.
 * @throws DataError `E_DATA` for a file that is not whole, or an index that does not fit its files.
 */
export async function openBaseWeights(directory: string): Promise<WeightSource> {
  const whole = join(directory, WEIGHTS_FILE);
  const index = join(directory, INDEX_FILE);
  if (await exists(whole)) return openWeights(whole);
  if (await exists(index)) return openShards(directory, index);
  throw new UnsupportedError(`Expected weights in ${WEIGHTS_FILE}, or in files that ${INDEX_FILE} names; found no such file`);
}

async function openShards(directory: string, index: string): Promise<WeightSource> {
  const fileOf = await readIndex(index);
  const files = new Map<string, OpenSafetensors>();
  const close = async () => {
    await Promise.all([...files.values()].map((file) => file.close()));
  };
  try {
    for (const name of new Set(fileOf.values())) files.set(name, await openSafetensors(join(directory, name)));
  } catch (error) {
    await close();
    throw error;
  }
  const holder = (name: string) => files.get(fileOf.get(name) ?? "");
  const require = (name: string): OpenSafetensors => {
    const file = holder(name);
    if (!file) throw new DataError(`${INDEX_FILE}: expected tensor "${name}", found none`);
    return file;
  };
  return {
    label: INDEX_FILE,
    shapeOf: (name) => holder(name)?.shapes.get(name),
    read: async (name) => require(name).read(name),
    check: async (name) => require(name).check(name),
    close,
  };
}

/** The file of each tensor. A file is named without a directory: an index cannot point outside its own. */
async function readIndex(index: string): Promise<Map<string, string>> {
  const content = parseFileJson(index, await readRegularFile(index, { maxBytes: MAX_INDEX_BYTES }));
  const map = (content as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== "object" || map === null)
    throw new DataError(`${INDEX_FILE}: expected "weight_map" to be an object, got ${typeof map}`);
  const entries = Object.entries(map as Record<string, unknown>);
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

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
