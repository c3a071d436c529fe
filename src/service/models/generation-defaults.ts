/** Sampling defaults of a model from its `generation_config.json`. */
import { z } from "zod";
import { DataError, WhetstoneError } from "../../base/errors.ts";
import { chatCompletionRequest, FIELD_ROWS, type FieldsWith } from "../../base/schema/chat-fields.ts";
import { readModelFile } from "../../base/gguf/model-files.ts";
import { parseFileJson, reasonOf } from "../../base/util/regular-file.ts";
import { camelCase, type CamelCase } from "../../base/util/letter-case.ts";

/** Fields of a chat request with a default that a model can set: name, valid range, and default of models that do not set it. */
const MODEL_FIELDS = FIELD_ROWS.flatMap(([name, { range, modelDefault }]) =>
  modelDefault === undefined ? [] : [{ name, range, modelDefault }],
);

/** Keys of the file with an effect. Their values must be in the ranges of the fields. */
const generationConfig = z
  .looseObject({
    ...Object.fromEntries(MODEL_FIELDS.map(({ name }) => [name, chatCompletionRequest.shape[name]])),
    max_new_tokens: z.int().min(1).nullish(),
  })
  .refine((config) =>
    MODEL_FIELDS.every(({ name, range, modelDefault }) => range?.has((config[name] ?? modelDefault) as number) !== false),
  );

/** Maximum size of the file, in bytes. */
const MAX_FILE_BYTES = 1024 * 1024;

/** Sampling defaults of a model, for fields that a request leaves out. */
export type GenerationDefaults = { readonly [Name in FieldsWith<{ readonly modelDefault: number }> as CamelCase<Name>]: number } & {
  /** Maximum number of output tokens; null for as many as fit the context. */
  readonly maxTokens: number | null;
};

/**
 * Reads the defaults of a model from its `generation_config.json`. If the file or a key is missing, the default is neutral: temperature 1,
 * repetition penalty 1, everything else off. A request's own value takes precedence.
 *
 * @param directory - The model, a directory in Hugging Face layout or a GGUF file.
 * @throws DataError `E_DATA` for a file that cannot be read or parsed.
 */
export async function readGenerationDefaults(directory: string): Promise<GenerationDefaults> {
  const name = "generation_config.json";
  let config: z.infer<typeof generationConfig>;
  try {
    const text = (await readModelFile(directory, name, { maxBytes: MAX_FILE_BYTES })) ?? "{}";
    config = generationConfig.parse(parseFileJson(name, text));
  } catch (cause) {
    if (WhetstoneError.isInstance(cause)) throw cause;
    if (!(cause instanceof z.ZodError)) throw new DataError(`${name} cannot be read: ${reasonOf(cause)}`, { cause });
    const [issue] = cause.issues;
    const where = issue === undefined || issue.path.length === 0 ? "" : ` at "${issue.path.join(".")}"`;
    throw new DataError(`${name}: expected sampling defaults within their bounds${where}`, { cause });
  }
  const defaults = MODEL_FIELDS.map(({ name, modelDefault }) => [camelCase(name), config[name] ?? modelDefault]);
  return { ...Object.fromEntries(defaults), maxTokens: config.max_new_tokens ?? null } as GenerationDefaults;
}
