/** The files of a directory in Hugging Face layout, as far as tokenizing needs them. */

import { basename } from "node:path";
import { z } from "zod";
import { DataError, UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import { parseFileJson, readRegularFileBytes, reasonOf } from "../../base/util/regular-file.ts";
import { first } from "../../base/util/values.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Max size of a file, in bytes; the `tokenizer.json` of a vocabulary of 256,000 tokens has 34 MB. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** A normalizer, pre-tokenizer, post-processor or decoder of `tokenizer.json`. The keys other than `type` are its settings. */
export const component = z.looseObject({ type: z.string() });
export type Component = z.infer<typeof component>;

/**
 * Validates the settings of a part of the pipeline.
 *
 * @param kind - Kind of the part for messages, such as `pre-tokenizer`.
 * @throws UnsupportedError `E_UNSUPPORTED` naming the part and the setting.
 */
export function componentSettings<T extends z.ZodType>(kind: string, schema: T, part: Component): z.infer<T> {
  const result = schema.safeParse(part);
  if (result.success) return result.data;
  const { path, message } = first(result.error.issues);
  throw new UnsupportedError(`tokenizer.json: the ${kind} \`${part.type}\` has unsupported settings: ${path.join(".")}: ${message}`);
}

/** `tokenizer.json`. */
export const tokenizerFile = z.looseObject({
  model: z.looseObject({
    type: z.string().optional(),
    vocab: z.record(z.string(), z.int()),
    merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
  }),
  added_tokens: z
    .array(
      z.looseObject({
        id: z.int().min(0),
        content: z.string().min(1),
        special: z.boolean().default(false),
        single_word: z.boolean().default(false),
        lstrip: z.boolean().default(false),
        rstrip: z.boolean().default(false),
        normalized: z.boolean().optional(),
      }),
    )
    .default([]),
  normalizer: component.nullish().transform((value) => value ?? null),
  pre_tokenizer: component.nullish().transform((value) => value ?? null),
  post_processor: component.nullish().transform((value) => value ?? null),
  decoder: component.nullish().transform((value) => value ?? null),
});

export type TokenizerFile = z.infer<typeof tokenizerFile>;

/** A special token: its text, or an object with the text in `content`. */
const tokenText = z
  .union([z.string(), z.looseObject({ content: z.string() })])
  .transform((value) => (typeof value === "string" ? value : value.content));
/** `tokenizer_config.json`. */
export const tokenizerConfigFile = z.looseObject({
  bos_token: tokenText.nullish(),
  eos_token: tokenText.nullish(),
  unk_token: tokenText.nullish(),
  pad_token: tokenText.nullish(),
  chat_template: z.union([z.string(), z.array(z.looseObject({ name: z.string(), template: z.string() }))]).nullish(),
});
export type TokenizerConfigFile = z.infer<typeof tokenizerConfigFile>;

const tokenId = z.int().min(0);
/** Schema of a token id or a list of ids; parsed to a list. */
const tokenIds = z.union([tokenId.transform((id) => [id]), z.array(tokenId)]).nullish();
/** `generation_config.json`. */
export const generationConfigFile = z.looseObject({ eos_token_id: tokenIds });
/** `config.json`, as far as the tokenizer needs it. */
export const modelConfigFile = z.looseObject({ eos_token_id: tokenIds, vocab_size: z.int().min(1).nullish() });

/**
 * Returns the contents of a file; undefined if the file does not exist.
 *
 * @throws DataError `E_DATA` for a file that is too large or cannot be read.
 */
export async function readOptional(path: string, signal: AbortSignal | undefined): Promise<Buffer | undefined> {
  try {
    return await readRegularFileBytes(path, { maxBytes: MAX_FILE_BYTES, signal });
  } catch (error) {
    signal?.throwIfAborted();
    if (WhetstoneError.isInstance(error)) throw error;
    if (isMissingFile(error)) return undefined;
    throw new DataError(`${basename(path)} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

/**
 * Parses a file and validates it.
 *
 * @throws DataError `E_DATA` naming the file and the place in it.
 */
export function parseFile<T extends z.ZodType>(path: string, text: string, schema: T): z.infer<T> {
  return validateFile(path, parseFileJson(path, text), schema);
}

/**
 * Validates the value of a file.
 *
 * @throws DataError `E_DATA` naming the file and the place in it.
 */
export function validateFile<T extends z.ZodType>(path: string, value: unknown, schema: T): z.infer<T> {
  const result = schema.safeParse(value);
  if (!result.success) {
    const issue = result.error.issues[0];
    throw new DataError(`${path}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}`, { cause: result.error });
  }
  return result.data;
}
