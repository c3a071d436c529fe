/** Reads a tokenizer from a directory in Hugging Face layout or a GGUF file. */

import { join } from "node:path";
import type { z } from "zod";
import { DataError, NotFoundError } from "../../base/errors.ts";
import { isGgufPath, readGgufTokenizer } from "../../base/gguf/model-files.ts";
import { parseFileJson } from "../../base/util/regular-file.ts";
import { BpeChatTokenizer } from "./bpe-tokenizer.ts";
import { scanTokenizerFile } from "./bpe/scan-model.ts";
import type { ChatTokenizer } from "./chat-tokenizer.ts";
import type { TokenizerConfigFile, TokenizerFile } from "./files.ts";
import {
  generationConfigFile,
  modelConfigFile,
  parseFile,
  readOptional,
  tokenizerConfigFile,
  tokenizerFile,
  validateFile,
} from "./files.ts";
import { tokenizerData, type TemplateSources, type TokenizerData } from "./tokenizer-data.ts";
import { vetTokenizerFile } from "./vet-file.ts";

/** Options of {@link loadTokenizer}. */
export interface LoadTokenizerOptions {
  readonly signal?: AbortSignal | undefined;
}

/**
 * Loads `tokenizer.json` and, where they exist, `tokenizer_config.json`, `generation_config.json`, `config.json` and
 * `chat_template.jinja` (which wins over the template in the config). From a GGUF file, reads the metadata.
 *
 * Byte-level BPE and BPE with byte fallback are supported: their tokens have exact bytes, which token-exact streaming and training need.
 *
 * @throws NotFoundError `E_NOT_FOUND` without a `tokenizer.json`.
 * @throws DataError `E_DATA` naming the file that does not parse or contradicts another.
 * @throws UnsupportedError `E_UNSUPPORTED` for another kind of tokenizer.
 * @example
 * ```ts
 * const tokenizer = await loadTokenizer("models/whetstone-tiny");
 * const prompt = tokenizer.encode(tokenizer.renderChat([{ role: "user", content: "hello" }]));
 * ```
 */
export async function loadTokenizer(directory: string, options: LoadTokenizerOptions = {}): Promise<ChatTokenizer> {
  return createTokenizer(await readTokenizerData(directory, options.signal));
}

/** Creates a tokenizer from its data, in milliseconds. Throws like {@link loadTokenizer} for templates and pipelines. */
export function createTokenizer(data: TokenizerData): ChatTokenizer {
  return new BpeChatTokenizer(data);
}

/** Reads the data of a tokenizer, which blocks the thread for up to a second. Throws like {@link loadTokenizer}. */
export async function readTokenizerData(directory: string, signal?: AbortSignal): Promise<TokenizerData> {
  const texts = await readTexts(directory, signal);
  const { rest, tables } = scanTokenizerFile("tokenizer.json", texts.tokenizer);
  const file = validateFile("tokenizer.json", rest, tokenizerFile);
  const { config, generation, model, templates } = parseSmallFiles(texts);
  if (tables === undefined) throw new DataError("tokenizer.json: model: expected `vocab` and `merges`");
  vetTokenizerFile("tokenizer.json", file);
  return tokenizerData({
    directory,
    file,
    tables,
    config,
    vocabularySize: model.vocab_size ?? undefined,
    // As in transformers, the end tokens of `config.json` count only if there is no `generation_config.json`.
    endTokens:
      generation === undefined
        ? { file: "config.json", ids: model.eos_token_id ?? [] }
        : { file: "generation_config.json", ids: generation.eos_token_id ?? [] },
    templates,
  });
}

/** Parsed files of a tokenizer's directory. */
export interface TokenizerFiles {
  readonly file: TokenizerFile;
  /** `tokenizer_config.json`, `{}` if the file does not exist. */
  readonly config: TokenizerConfigFile;
  /** `generation_config.json`; undefined if the file does not exist. */
  readonly generation: z.infer<typeof generationConfigFile> | undefined;
  /** `config.json`, `{}` if the file does not exist. */
  readonly model: z.infer<typeof modelConfigFile>;
  readonly templates: TemplateSources;
}

/**
 * Reads and validates the files of a tokenizer's directory, `tokenizer.json` with its whole vocabulary, without a check that the tokenizer
 * is supported. Throws like {@link loadTokenizer}.
 */
export async function readTokenizerFiles(directory: string, signal?: AbortSignal): Promise<TokenizerFiles> {
  const texts = await readTexts(directory, signal);
  const file = validateFile("tokenizer.json", parseFileJson("tokenizer.json", texts.tokenizer.toString()), tokenizerFile);
  return { file, ...parseSmallFiles(texts) };
}

/** Contents of the files of a tokenizer's directory; undefined for a file that does not exist. */
interface TokenizerTexts {
  readonly tokenizer: Buffer;
  readonly config: string | undefined;
  readonly generation: string | undefined;
  readonly model: string | undefined;
  readonly template: string | undefined;
}

/** Returns the metadata of a GGUF file as the contents of the files of a directory. */
async function readGgufTexts(path: string): Promise<TokenizerTexts> {
  const { tokenizer, config, generation, size } = await readGgufTokenizer(path);
  return {
    tokenizer: Buffer.from(JSON.stringify(tokenizer)),
    config: JSON.stringify(config),
    generation: JSON.stringify(generation),
    model: JSON.stringify({ vocab_size: size }),
    template: undefined,
  };
}

/** Reads the files of a directory, or the metadata of a GGUF file. */
async function readTexts(directory: string, signal: AbortSignal | undefined): Promise<TokenizerTexts> {
  signal?.throwIfAborted();
  if (await isGgufPath(directory)) return readGgufTexts(directory);
  const read = async (name: string): Promise<string | undefined> => (await readOptional(join(directory, name), signal))?.toString();
  const [tokenizer, config, generation, model, template] = await Promise.all([
    readOptional(join(directory, "tokenizer.json"), signal),
    read("tokenizer_config.json"),
    read("generation_config.json"),
    read("config.json"),
    read("chat_template.jinja"),
  ]);
  if (tokenizer === undefined) {
    throw new NotFoundError(`Expected a \`tokenizer.json\`, found none. A base model is a directory in Hugging Face layout.`);
  }
  return { tokenizer, config, generation, model, template };
}

/** Parses and validates all files but `tokenizer.json`. */
function parseSmallFiles({ config: configText, generation, model, template }: TokenizerTexts): Omit<TokenizerFiles, "file"> {
  const config = parseFile("tokenizer_config.json", configText ?? "{}", tokenizerConfigFile);
  return {
    config,
    generation: generation === undefined ? undefined : parseFile("generation_config.json", generation, generationConfigFile),
    model: parseFile("config.json", model ?? "{}", modelConfigFile),
    templates: templateSources(template, config.chat_template),
  };
}

/** Returns the chat templates: `chat_template.jinja` if it exists, else the templates of `tokenizer_config.json`. */
function templateSources(file: string | undefined, configured: TokenizerConfigFile["chat_template"]): TemplateSources {
  if (file !== undefined) return { file: "chat_template.jinja", default: file };
  const name = "tokenizer_config.json";
  if (configured === null || configured === undefined) return { file: name };
  if (typeof configured === "string") return { file: name, default: configured };
  const find = (wanted: string): string | undefined => configured.find((entry) => entry.name === wanted)?.template;
  return { file: name, default: find("default"), toolUse: find("tool_use") };
}
