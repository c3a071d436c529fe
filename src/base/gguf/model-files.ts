/**
 * Files of a base model by name. The path of a base model is a directory in Hugging Face layout or a GGUF file; the files of the latter are
 * made from its metadata.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isMissingFile } from "../util/file-system-error.ts";
import { readRegularFile } from "../util/regular-file.ts";
import { modelConfig } from "./architectures.ts";
import { type GgufFile, openGguf } from "./file.ts";
import { type GgufTokenizer, readTokenizer } from "./tokenizer.ts";

/** Names of the files that are made from the metadata of a GGUF file. */
export const GGUF_MODEL_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] as const;

/** Limits of {@link readModelFile}. */
export interface ReadModelFileOptions {
  /** Maximum size of the file in bytes. */
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

/** Whether the path of a base model is a GGUF file: any path that is a file. */
export async function isGgufPath(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isFile(),
    () => false,
  );
}

/**
 * Returns the text of a file of a base model; undefined if the model has no such file.
 *
 * @param path - Directory in Hugging Face layout, or GGUF file.
 * @param name - Name of the file, such as `config.json`.
 * @throws DataError `E_DATA` for a file that is too large or not a regular one, and for metadata that are invalid.
 * @throws UnsupportedError `E_UNSUPPORTED` for metadata that are not supported.
 */
export async function readModelFile(path: string, name: string, { maxBytes, signal }: ReadModelFileOptions): Promise<string | undefined> {
  if (await isGgufPath(path)) {
    const value = await ggufModelFile(path, name);
    signal?.throwIfAborted();
    return value === undefined ? undefined : `${JSON.stringify(value, null, 2)}\n`;
  }
  return readRegularFile(join(path, name), { maxBytes, signal }).catch((error: unknown) => {
    if (isMissingFile(error)) return undefined;
    throw error;
  });
}

/** Returns one of {@link GGUF_MODEL_FILES} as JSON; undefined for another name. */
async function ggufModelFile(path: string, name: string): Promise<unknown> {
  if (!(GGUF_MODEL_FILES as readonly string[]).includes(name)) return undefined;
  return withGguf(path, async (file) => {
    if (name === "config.json") return modelConfig(file);
    const { tokenizer, config, generation } = readTokenizer(file);
    if (name === "tokenizer.json") return tokenizer;
    return name === "tokenizer_config.json" ? config : generation;
  });
}

/** Reads the tokenizer of a GGUF file. Throws the errors of {@link readModelFile}. */
export function readGgufTokenizer(path: string): Promise<GgufTokenizer> {
  return withGguf(path, async (file) => readTokenizer(file));
}

/** Opens a GGUF file for the duration of `read`. */
async function withGguf<T>(path: string, read: (file: GgufFile) => Promise<T>): Promise<T> {
  const file = await openGguf(path);
  try {
    return await read(file);
  } finally {
    await file.close();
  }
}
