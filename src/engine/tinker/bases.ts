/** Base models of a Tinker server. Weights are on the server; configurations and tokenizers are local. */
import { z } from "zod";
import { ConfigError, DataError, NotFoundError } from "../../base/errors.ts";
import { readModelFile } from "../../base/gguf/model-files.ts";
import { MAX_CONFIG_BYTES, parseFileJson } from "../../base/util/regular-file.ts";
import type { BaseModelInfo } from "../port.ts";
import type { capabilitiesAnswer } from "./answers.ts";

/** Base model with its name on the server. */
export interface RemoteBase {
  readonly info: BaseModelInfo;
  readonly serverName: string;
}

/** Sizes in a `config.json`; models of text and images have them under `text_config`. */
const sizes = z.looseObject({ vocab_size: z.int().positive(), max_position_embeddings: z.int().positive() });
const configuration = z.union([sizes, z.looseObject({ text_config: sizes }).transform((outer) => outer.text_config)]);

/**
 * Returns the base models that are available both locally and on the server. The server's name is the identifier, or ends with a slash
 * and the identifier.
 *
 * @param directories - Directories in Hugging Face layout, or GGUF files, by identifier, from which configuration and tokenizer are read.
 * @returns Base models by identifier.
 * @throws ConfigError `E_CONFIG` if no base model is available on both sides.
 * @throws DataError `E_DATA` for a directory without a readable configuration.
 */
export async function matchBases(
  directories: Readonly<Record<string, string>>,
  { supported_models: served }: z.infer<typeof capabilitiesAnswer>,
): Promise<ReadonlyMap<string, RemoteBase>> {
  const bases = new Map<string, RemoteBase>();
  for (const [id, directory] of Object.entries(directories)) {
    const servedModel = served.find(({ model_name: name }) => name === id || name.replace(/\/+$/, "").endsWith(`/${id}`));
    if (servedModel === undefined) continue;
    const info = await describeBase(id, directory, servedModel.max_context_length ?? Infinity);
    bases.set(id, { info, serverName: servedModel.model_name });
  }
  if (bases.size > 0) return bases;
  throw new ConfigError(
    `The Tinker server has ${served.map(({ model_name: name }) => name).join(", ") || "no models"}, and here are the tokenizers of ${Object.keys(directories).join(", ")}. Name the directory of one of its models, with configuration and tokenizer, as a base model`,
    { param: "baseModels" },
  );
}

/** Returns the base model of an identifier. @throws NotFoundError `E_NOT_FOUND` for an unknown identifier. */
export function findBase(bases: ReadonlyMap<string, RemoteBase>, id: string): RemoteBase {
  const base = bases.get(id);
  if (base !== undefined) return base;
  throw new NotFoundError(`The base model "${id}" does not exist here. Expected one of: ${[...bases.keys()].join(", ")}`, {
    param: "base_model",
  });
}

/** Reads vocabulary size and context length of a base model from its local configuration. */
async function describeBase(id: string, directory: string, maxContextLength: number): Promise<BaseModelInfo> {
  const name = "config.json";
  try {
    const text = (await readModelFile(directory, name, { maxBytes: MAX_CONFIG_BYTES })) ?? "{}";
    const { vocab_size: vocabularySize, max_position_embeddings: localLength } = configuration.parse(parseFileJson(name, text));
    return { id, directory, vocabularySize, contextLength: Math.min(localLength, maxContextLength), parameters: NaN };
  } catch (cause) {
    throw new DataError(`${name} of ${directory}: expected vocab_size and max_position_embeddings of the base model "${id}"`, { cause });
  }
}
