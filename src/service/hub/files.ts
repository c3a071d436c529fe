/** Files of a model repository that make up a base model. */

import { join } from "node:path";
import { MAX_INDEX_BYTES, readRegularFile } from "../../base/util/regular-file.ts";
import { pathExists } from "../../base/util/file-system-error.ts";

/** Weights in a single file, or the index that lists the files of sharded weights. */
const WEIGHTS = "model.safetensors";
const INDEX = "model.safetensors.index.json";
const SHARD = /^model-\d+-of-\d+\.safetensors$/u;

/** Files that every base model must have. */
const REQUIRED = ["config.json", "tokenizer.json"];
/** Files that are used if present. */
const OPTIONAL = ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];

/**
 * Selects the files to fetch from a repository: required and optional files, and the weights as a single file or else as an index with its
 * shards.
 *
 * @param names - Names of all files at the root of the repository.
 * @returns the names to fetch, or the name of a missing file.
 */
export function filesToFetch(names: readonly string[]): { readonly files: readonly string[] } | { readonly missing: string } {
  const present = new Set(names);
  const missing = REQUIRED.find((name) => !present.has(name));
  if (missing !== undefined) return { missing };
  const weights = present.has(WEIGHTS) ? [WEIGHTS] : present.has(INDEX) ? [INDEX, ...names.filter((name) => SHARD.test(name))] : null;
  if (weights === null) return { missing: `${WEIGHTS} or ${INDEX}` };
  return { files: [...REQUIRED, ...OPTIONAL.filter((name) => present.has(name)), ...weights] };
}

/** Whether a directory has all files of a base model. */
export async function isWhole(directory: string): Promise<boolean> {
  return (await missingFrom(directory)) === null;
}

/** Returns the first file, weight shards included, that a directory lacks for a base model; null if the base model is complete. */
export async function missingFrom(directory: string): Promise<string | null> {
  for (const name of REQUIRED) if (!(await pathExists(join(directory, name)))) return name;
  if (await pathExists(join(directory, WEIGHTS))) return null;
  let shards: Set<string>;
  try {
    const { weight_map: map } = JSON.parse(await readRegularFile(join(directory, INDEX), { maxBytes: MAX_INDEX_BYTES })) as {
      weight_map: Record<string, string>;
    };
    shards = new Set(Object.values(map));
  } catch {
    return `an ${INDEX} that can be read`;
  }
  for (const name of shards) if (!SHARD.test(name) || !(await pathExists(join(directory, name)))) return name;
  return null;
}
