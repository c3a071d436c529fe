/** Reads a tokenizer from a directory in Hugging Face layout or a GGUF file. */

import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { z } from "zod";
import { DataError, NotFoundError, UnsupportedError } from "../errors.ts";
import { isGgufPath, readGgufTokenizer } from "../gguf/model-files.ts";
import type { TemplateLimits } from "./chat-template.ts";
import { compileTemplate } from "./chat-template.ts";
import type { ChatTokenizer } from "./chat-tokenizer.ts";
import { BpeChatTokenizer, type BpeTokenizerParts } from "./bpe-tokenizer.ts";
import { bytesOfToken } from "./byte-alphabet.ts";
import { byteFallbackPipeline, byteOf, bytesOfPiece, isByteFallback } from "./byte-fallback.ts";
import type { Component, TokenizerConfigFile, TokenizerFile } from "./files.ts";
import { component, generationConfigFile, modelConfigFile, parseFile, readOptional, tokenizerConfigFile, tokenizerFile } from "./files.ts";
import { exactPreTokenizer } from "./pre-tokenizer.ts";
import { vetTokenizerFile } from "./vet-file.ts";

/** Options of {@link loadTokenizer}. */
export interface LoadTokenizerOptions {
  readonly signal?: AbortSignal | undefined;
  /** Limits of the chat template. */
  readonly templateLimits?: TemplateLimits | undefined;
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
  const { signal, templateLimits } = options;
  const { file, config, generation, model, templates: named } = await readTokenizerFiles(directory, signal);
  vetTokenizerFile("tokenizer.json", file);
  refuseSingleWords(file);
  requireMerges(file);
  await setImmediate();
  const kind = isByteFallback(file) ? byteFallback(file, config) : byteLevel(file);

  const compile = (name: string, source: string): ReturnType<typeof compileTemplate> => {
    try {
      return compileTemplate(source, templateLimits);
    } catch (error) {
      throw new DataError(`${name}: ${(error as Error).message}`, { cause: error });
    }
  };
  const { bos_token: bos, eos_token: eos, unk_token: unk, pad_token: pad } = config;
  return new BpeChatTokenizer({
    ...kind,
    directory,
    config: { ...config, clean_up_tokenization_spaces: false },
    vocabularySize: model.vocab_size ?? undefined,
    eosToken: eos ?? undefined,
    // As in the reference layout, the model's own config speaks where no generation config does.
    eosIds: (generation === undefined ? model.eos_token_id : generation.eos_token_id) ?? [],
    template: named.default === undefined ? undefined : compile(named.file, named.default),
    toolTemplate: named.toolUse === undefined ? undefined : compile(named.file, named.toolUse),
    templateVariables: {
      bos_token: bos ?? undefined,
      eos_token: eos ?? undefined,
      unk_token: unk ?? undefined,
      pad_token: pad ?? undefined,
    },
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

/** Reads the tokenizer of a GGUF file. */
async function readGgufFiles(path: string): Promise<TokenizerFiles> {
  const { tokenizer, config: ggufConfig, generation, size } = await readGgufTokenizer(path);
  const config = tokenizerConfigFile.parse(ggufConfig);
  return {
    file: tokenizer as TokenizerFile,
    config,
    generation: generationConfigFile.parse(generation),
    model: { vocab_size: size },
    templates: templateSources(undefined, config.chat_template),
  };
}

/** Reads and validates the files of a tokenizer's directory, without a check that the tokenizer is supported. Throws like {@link loadTokenizer}. */
export async function readTokenizerFiles(directory: string, signal?: AbortSignal): Promise<TokenizerFiles> {
  signal?.throwIfAborted();
  if (await isGgufPath(directory)) return readGgufFiles(directory);
  const read = (name: string): Promise<string | undefined> => readOptional(join(directory, name), signal);
  const [tokenizerText, configText, generationText, modelText, templateText] = await Promise.all([
    read("tokenizer.json"),
    read("tokenizer_config.json"),
    read("generation_config.json"),
    read("config.json"),
    read("chat_template.jinja"),
  ]);
  if (tokenizerText === undefined) {
    throw new NotFoundError(`Expected a \`tokenizer.json\`, found none. A base model is a directory in Hugging Face layout.`);
  }
  const file = await parseFile("tokenizer.json", tokenizerText, tokenizerFile);
  const config = await parseFile("tokenizer_config.json", configText ?? "{}", tokenizerConfigFile);
  const generation =
    generationText === undefined ? undefined : await parseFile("generation_config.json", generationText, generationConfigFile);
  const model = await parseFile("config.json", modelText ?? "{}", modelConfigFile);
  return { file, config, generation, model, templates: templateSources(templateText, config.chat_template) };
}

interface TemplateSources {
  readonly file: string;
  readonly default?: string | undefined;
  readonly toolUse?: string | undefined;
}

function templateSources(file: string | undefined, configured: TokenizerConfigFile["chat_template"]): TemplateSources {
  if (file !== undefined) return { file: "chat_template.jinja", default: file };
  const name = "tokenizer_config.json";
  if (configured === null || configured === undefined) return { file: name };
  if (typeof configured === "string") return { file: name, default: configured };
  const find = (wanted: string): string | undefined => configured.find((entry) => entry.name === wanted)?.template;
  return { file: name, default: find("default"), toolUse: find("tool_use") };
}

/** File for the library, and what its tokens stand for. */
type Kind = Pick<BpeTokenizerParts, "alphabet" | "file">;

function byteFallback(file: TokenizerFile, config: TokenizerConfigFile): Kind {
  const pipeline = byteFallbackPipeline(file, config);
  return {
    file: pipeline.file,
    alphabet: {
      bytesOf: bytesOfPiece,
      isByteToken: (token) => byteOf(token) !== undefined,
      continuation: pipeline.continuation,
      restartsAfterTokens: pipeline.prefix === "always",
    },
  };
}

function byteLevel(file: TokenizerFile): Kind {
  requireByteLevel(file);
  return {
    file: { ...file, pre_tokenizer: exactPreTokenizer(file.pre_tokenizer) },
    alphabet: { bytesOf: bytesOfToken, isByteToken: () => false, continuation: undefined, restartsAfterTokens: false },
  };
}

function requireByteLevel(file: TokenizerFile): void {
  const type = file.model.type ?? "BPE";
  const has = (part: Component | null, list: string): boolean =>
    part !== null &&
    (part.type === "ByteLevel" ||
      (part.type === "Sequence" &&
        z
          .array(component)
          .safeParse(part[list])
          .data?.some((inner) => has(inner, list)) === true));
  if (type !== "BPE" || !has(file.pre_tokenizer, "pretokenizers") || !has(file.decoder, "decoders")) {
    throw new UnsupportedError(
      `tokenizer.json: expected a BPE tokenizer with \`byte_fallback\`, or a byte-level one (pre-tokenizer and decoder \`ByteLevel\`), got model \`${type}\`, ` +
        `pre-tokenizer \`${file.pre_tokenizer?.type ?? "none"}\`, decoder \`${file.decoder?.type ?? "none"}\`.`,
    );
  }
}

/** The library finds such a token inside other words too, which would make other ids than the reference does. */
function refuseSingleWords(file: TokenizerFile): void {
  const token = file.added_tokens.find((added) => added.single_word);
  if (token !== undefined) {
    throw new UnsupportedError(
      `tokenizer.json: the added token ${JSON.stringify(token.content)} has \`single_word\`, which is not supported. Expected added tokens without it.`,
    );
  }
}

function requireMerges(file: TokenizerFile): void {
  const { vocab, merges } = file.model;
  for (const [index, merge] of merges.entries()) {
    const [left = "", right = ""] = typeof merge === "string" ? merge.split(" ", 2) : merge;
    if (!Object.hasOwn(vocab, left + right)) {
      throw new DataError(`tokenizer.json: model.merges.${index} makes ${JSON.stringify(left + right)}, which is not in the vocabulary.`);
    }
  }
}
