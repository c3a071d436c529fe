/** Which files of a repository make a base model. */
import { access } from "node:fs/promises";
import { join } from "node:path";
import { readRegularFile } from "../../util/regular-file.ts";

/** The whole weights in one file, and what names the files where there are several. */
const WEIGHTS = "model.safetensors";
const INDEX = "model.safetensors.index.json";
/** Size of the largest index, in bytes. */
const MAX_INDEX_BYTES = 16 * 1024 * 1024;
const SHARD = /^model-\d+-of-\d+\.safetensors$/u;

/** Without these there is no base model. */
const REQUIRED = ["config.json", "tokenizer.json"];
/** What is read where it is there. */
const OPTIONAL = ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];

/**
 * What to fetch of a repository: the files that are read, and of its weights those in one file, or else an index with its parts.
 *
 * @param names - All files at the root of the repository.
 * @returns the names, or what is missing.
 */
export function filesToFetch(names: readonly string[]): { readonly files: readonly string[] } | { readonly missing: string } {
  const there = new Set(names);
  const missing = REQUIRED.find((name) => !there.has(name));
  if (missing !== undefined) return { missing };
  const weights = there.has(WEIGHTS) ? [WEIGHTS] : there.has(INDEX) ? [INDEX, ...names.filter((name) => SHARD.test(name))] : null;
  if (weights === null) return { missing: `${WEIGHTS} or ${INDEX}` };
  return { files: [...REQUIRED, ...OPTIONAL.filter((name) => there.has(name)), ...weights] };
}

/** Whether a directory has everything that a base model needs. */
export async function isWhole(directory: string): Promise<boolean> {
  return (await missingFrom(directory)) === null;
}

/** What a directory lacks of a base model, all parts of its weights included; null when it is whole. */
export async function missingFrom(directory: string): Promise<string | null> {
  for (const name of REQUIRED) if (!(await exists(join(directory, name)))) return name;
  if (await exists(join(directory, WEIGHTS))) return null;
  let parts: Set<string>;
  try {
    const { weight_map: map } = JSON.parse(await readRegularFile(join(directory, INDEX), { maxBytes: MAX_INDEX_BYTES })) as {
      weight_map: Record<string, string>;
    };
    parts = new Set(Object.values(map));
  } catch {
    return `an ${INDEX} that can be read`;
  }
  for (const name of parts) if (!SHARD.test(name) || !(await exists(join(directory, name)))) return name;
  return null;
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
