/** Files of a model repository that make up a base model. */
import { join } from "node:path";
import { MAX_INDEX_BYTES, readRegularFile } from "../../base/util/regular-file.ts";
import { pathExists } from "../../base/util/file-system-error.ts";

/** File with all weights. */
const WEIGHTS_FILE = "model.safetensors";
/** File that lists the shards of sharded weights. */
const INDEX_FILE = "model.safetensors.index.json";
/** Names of shards. */
const SHARD_NAME = /^model-\d+-of-\d+\.safetensors$/u;

/** Files that every base model must have. */
const REQUIRED_FILES = ["config.json", "tokenizer.json"];
/** Files that are used if present. */
const OPTIONAL_FILES = ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];

/**
 * Selects the files to fetch from a repository: required and optional files, and the weights as a single file or else as an index with its
 * shards.
 *
 * @param names - Names of all files at the root of the repository.
 * @returns the names to fetch, or the name of a missing file.
 */
export function filesToFetch(names: readonly string[]): { readonly files: readonly string[] } | { readonly missing: string } {
  const present = new Set(names);
  const missing = REQUIRED_FILES.find((name) => !present.has(name));
  if (missing !== undefined) return { missing };
  let weights: readonly string[];
  if (present.has(WEIGHTS_FILE)) weights = [WEIGHTS_FILE];
  else if (present.has(INDEX_FILE)) weights = [INDEX_FILE, ...names.filter((name) => SHARD_NAME.test(name))];
  else return { missing: `${WEIGHTS_FILE} or ${INDEX_FILE}` };
  return { files: [...REQUIRED_FILES, ...OPTIONAL_FILES.filter((name) => present.has(name)), ...weights] };
}

/** Whether a directory has all files of a base model. */
export async function isComplete(directory: string): Promise<boolean> {
  return (await missingFrom(directory)) === null;
}

/** Returns the first file, weight shards included, that a directory lacks for a base model; null if the base model is complete. */
export async function missingFrom(directory: string): Promise<string | null> {
  for (const name of REQUIRED_FILES) if (!(await pathExists(join(directory, name)))) return name;
  if (await pathExists(join(directory, WEIGHTS_FILE))) return null;
  let shards: Set<string>;
  try {
    const text = await readRegularFile(join(directory, INDEX_FILE), { maxBytes: MAX_INDEX_BYTES });
    const { weight_map: shardByTensor } = JSON.parse(text) as { weight_map: Record<string, string> };
    shards = new Set(Object.values(shardByTensor));
  } catch {
    return `an ${INDEX_FILE} that can be read`;
  }
  // A name that is not a shard's could lead out of the directory, and counts as missing.
  for (const name of shards) if (!SHARD_NAME.test(name) || !(await pathExists(join(directory, name)))) return name;
  return null;
}
