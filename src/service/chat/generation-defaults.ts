import { join } from "node:path";
import { z } from "zod";
import { InternalError } from "../../errors.ts";
import { parseFileJson, readRegularFile } from "../../util/regular-file.ts";

const generationConfig = z.looseObject({
  temperature: z.number().min(0).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.int().min(-1).nullish(),
  max_new_tokens: z.int().min(1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  repetition_penalty: z.number().gt(0).nullish(),
});

/** Maximum size of the file, in bytes. */
const MAX_FILE_BYTES = 1024 * 1024;

/** Sampling defaults of a model, for fields that a request leaves out. */
export interface GenerationDefaults {
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  /** Maximum number of output tokens; null for as many as fit the context. */
  readonly maxTokens: number | null;
  readonly minP: number;
  readonly repetitionPenalty: number;
}

/**
 * Reads the defaults of a model from its `generation_config.json`. If the file or a key is missing, the default is neutral: temperature 1,
 * repetition penalty 1, everything else off. A request's own value takes precedence.
 *
 * @param directory - The model, in Hugging Face layout.
 * @throws InternalError `E_INTERNAL` for a file that cannot be read or parsed: a client cannot fix it.
 */
export async function readGenerationDefaults(directory: string): Promise<GenerationDefaults> {
  const path = join(directory, "generation_config.json");
  let config: z.infer<typeof generationConfig>;
  try {
    config = generationConfig.parse(parseFileJson(path, await readRegularFile(path, { maxBytes: MAX_FILE_BYTES })));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT")
      throw new InternalError(`Expected ${path} to hold sampling defaults within their bounds`, { cause });
    config = {};
  }
  return {
    temperature: config.temperature ?? 1,
    topP: config.top_p ?? 1,
    topK: config.top_k ?? 0,
    maxTokens: config.max_new_tokens ?? null,
    minP: config.min_p ?? 0,
    repetitionPenalty: config.repetition_penalty ?? 1,
  };
}
