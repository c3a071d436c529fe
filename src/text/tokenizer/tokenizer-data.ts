/** A tokenizer as plain data: everything that encoding and decoding need, validated and cheap to send to another thread. */
import { join } from "node:path";
import { DataError, UnsupportedError } from "../../base/errors.ts";
import type { AddedToken } from "./added-tokens.ts";
import type { MergeTableData } from "./bpe/merge-table.ts";
import type { BpeTables } from "./bpe/scan-model.ts";
import type { TextTableData } from "./bpe/text-table.ts";
import type { BpeModel } from "./bpe/word-encoder.ts";
import { bytesOfToken } from "./byte-alphabet.ts";
import { byteFallbackPipeline, bytesOfPiece, isByteFallback } from "./byte-fallback.ts";
import type { Component, TokenizerConfigFile, TokenizerFile } from "./files.ts";
import { addedAround, type AddedAround } from "./post-processor.ts";
import { requireByteLevel } from "./byte-level.ts";

/** Parts of `tokenizer.json` that process a text before its words are merged. */
export interface Pipeline {
  readonly normalizer: Component | null;
  readonly preTokenizer: Component | null;
}

/** Sources of chat templates. */
export interface TemplateSources {
  /** Name of the file with the templates, for messages. */
  readonly file: string;
  /** Undefined if the model has no chat template. */
  readonly default?: string | undefined;
  /** Used instead of `default` if the conversation has tools. */
  readonly toolUse?: string | undefined;
}

/**
 * Representation of bytes in the texts of tokens: the byte alphabet of GPT-2, or plain text with `▁` for spaces and tokens of single bytes
 * for other characters.
 */
export type TokenizerKind = "byte-level" | "byte-fallback";

/** Pipelines of a tokenizer. */
export interface Pipelines {
  /** Pipeline for whole texts. */
  readonly whole: Pipeline;
  /** Pipeline for text that continues other text; null = `whole`. */
  readonly continuation: Pipeline | null;
  /**
   * Whether text after an added token is encoded like the beginning of a text, not like a continuation. An example is a SentencePiece
   * tokenizer that puts `▁` in front of the text after each added token.
   */
  readonly restartsAfterTokens: boolean;
}

/** Keys of `tokenizer_config.json` with tokens that templates may read. */
const TEMPLATE_TOKENS = ["bos_token", "eos_token", "unk_token", "pad_token"] as const;

/** Tokens that the tokenizer class of transformers makes special, regardless of `special` in `tokenizer.json`. */
const SPECIAL_BY_CLASS: ReadonlyMap<string, string> = new Map([["GemmaTokenizer", "<mask>"]]);

/**
 * A loaded tokenizer without its code. The arrays are on `SharedArrayBuffer`s: a structured clone in another thread shares them, and takes
 * a few milliseconds.
 */
export interface TokenizerData {
  /** Directory of the model, for messages. */
  readonly directory: string;
  /** Texts of the vocabulary, by id. */
  readonly texts: TextTableData;
  /** Pairs of tokens that are merged. */
  readonly merges: MergeTableData;
  /** Settings of the BPE algorithm. */
  readonly model: BpeModel;
  readonly kind: TokenizerKind;
  readonly pipelines: Pipelines;
  readonly addedTokens: readonly AddedToken[];
  /** Tokens that the post-processor adds around a text. */
  readonly around: AddedAround;
  /** Number of rows of the model's embedding. */
  readonly vocabularySize: number;
  /** Bytes of the longest token. */
  readonly maxTokenBytes: number;
  /** Ids that end a turn, without duplicates. */
  readonly eosTokenIds: readonly number[];
  readonly templates: TemplateSources;
  /**
   * Special tokens by the names under which templates read them, such as `bos_token`; undefined for one that the tokenizer does not have.
   */
  readonly templateVariables: Readonly<Record<string, string | undefined>>;
}

/** Parsed files of a tokenizer's directory. */
export interface TokenizerSources {
  readonly directory: string;
  /** `tokenizer.json` without its vocabulary and merges. */
  readonly file: TokenizerFile;
  /** Vocabulary and merges of `tokenizer.json`. */
  readonly tables: BpeTables;
  /** `tokenizer_config.json`. */
  readonly config: TokenizerConfigFile;
  /** `vocab_size` of `config.json`; undefined = the largest id plus 1. */
  readonly vocabularySize: number | undefined;
  /** `eos_token_id`: ids that end a turn, and the file that has them. */
  readonly endTokens: { readonly file: "generation_config.json" | "config.json"; readonly ids: readonly number[] };
  readonly templates: TemplateSources;
}

/**
 * Checks the files of a tokenizer and derives its data.
 *
 * @throws DataError `E_DATA` for files that contradict each other.
 * @throws UnsupportedError `E_UNSUPPORTED` for another kind of tokenizer.
 */
export function tokenizerData(sources: TokenizerSources): TokenizerData {
  const { directory, file, tables, config, templates } = sources;
  const kind = isByteFallback(file) ? "byte-fallback" : "byte-level";
  const pipelines = pipelinesOf(file, config, kind);
  const classSpecial = specialOfClass(config);
  const addedTokens = file.added_tokens.map((token) => addedTokenOf(token, token.content === classSpecial));
  const minSize = addedTokens.reduce((size, { id }) => Math.max(size, id + 1), tables.texts.size);
  const vocabularySize = sources.vocabularySize ?? minSize;
  if (vocabularySize < minSize)
    throw new DataError(
      `${join(directory, "config.json")}: \`vocab_size\` is ${vocabularySize}, but tokenizer.json has ids up to ${minSize - 1}.`,
    );
  return {
    directory,
    texts: tables.texts.data,
    merges: tables.merges.data,
    model: modelOf(file, kind),
    kind,
    pipelines,
    addedTokens,
    around: addedAround(file.post_processor),
    vocabularySize,
    templates,
    templateVariables: Object.fromEntries(TEMPLATE_TOKENS.map((name) => [name, config[name] ?? undefined])),
    eosTokenIds: resolveEos(sources, addedTokens, vocabularySize),
    maxTokenBytes: maxTokenBytes(tables, kind, addedTokens),
  };
}

/**
 * Returns the bytes that a token of the vocabulary stands for. A byte-level token with characters outside the byte alphabet, such as an
 * added token, stands for the UTF-8 of its text.
 *
 * @param text - UTF-8 of the token's text in `tokenizer.json`.
 */
export function bytesOfText(text: Uint8Array, kind: TokenizerKind): Uint8Array {
  return kind === "byte-level" ? (bytesOfToken(text) ?? text.slice()) : bytesOfPiece(Buffer.from(text).toString());
}

/** Returns the pipelines of a tokenizer. @throws UnsupportedError `E_UNSUPPORTED` naming the part that is not supported. */
function pipelinesOf(file: TokenizerFile, config: TokenizerConfigFile, kind: TokenizerKind): Pipelines {
  if (kind === "byte-level") {
    requireByteLevel(file);
    return { whole: pipelineOf(file), continuation: null, restartsAfterTokens: false };
  }
  const { file: whole, continuation, prefix } = byteFallbackPipeline(file, config);
  return { whole: pipelineOf(whole), continuation: pipelineOf(continuation), restartsAfterTokens: prefix === "always" };
}

function pipelineOf(file: TokenizerFile): Pipeline {
  return { normalizer: file.normalizer, preTokenizer: file.pre_tokenizer };
}

/** Returns the settings of the BPE model. */
function modelOf({ model }: TokenizerFile, kind: TokenizerKind): BpeModel {
  for (const key of ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]) {
    const value = model[key] ?? "";
    // A setting without effect is missing, null or an empty text; for `dropout`, also 0.
    if (value !== "" && value !== 0)
      throw new UnsupportedError(`tokenizer.json: \`model.${key}\` is not supported. Expected a model without it.`);
  }
  const unknown = model["unk_token"];
  return {
    symbols: kind === "byte-level" ? "bytes" : "characters",
    byteFallback: kind === "byte-fallback",
    unknownToken: typeof unknown === "string" ? unknown : null,
    fuseUnknown: model["fuse_unk"] === true,
    ignoreMerges: model["ignore_merges"] === true,
  };
}

/** Returns the token that the tokenizer class makes special; undefined without one. */
function specialOfClass(config: TokenizerConfigFile): string | undefined {
  const name = config["tokenizer_class"];
  // Before transformers 5, the classes that use the `tokenizers` library had the suffix `Fast`.
  return typeof name === "string" ? SPECIAL_BY_CLASS.get(name.replace(/Fast$/u, "")) : undefined;
}

function addedTokenOf(entry: TokenizerFile["added_tokens"][number], isSpecialByClass: boolean): AddedToken {
  const { id, content, special, single_word: singleWord, lstrip, rstrip, normalized } = entry;
  // The default of `normalized` depends on the file alone: the class changes only `special`.
  return { id, content, special: special || isSpecialByClass, singleWord, lstrip, rstrip, normalized: normalized ?? !special };
}

/** Returns the number of bytes of the longest token. */
function maxTokenBytes({ texts }: BpeTables, kind: TokenizerKind, addedTokens: readonly AddedToken[]): number {
  let max = addedTokens.reduce((length, { content }) => Math.max(length, Buffer.byteLength(content)), 1);
  const { starts, ends } = texts.data;
  for (let id = 0; id < texts.size; id++) {
    // A token has at most as many bytes as its text, so shorter texts need no decoding.
    if (ends[id]! - starts[id]! > max) max = Math.max(max, bytesOfText(texts.text(id), kind).length);
  }
  return max;
}

/** Returns the ids that end a turn: the tokenizer's `eos_token` first, then `endTokens`, without duplicates. */
function resolveEos(
  { directory, tables, config, endTokens }: TokenizerSources,
  added: readonly AddedToken[],
  size: number,
): readonly number[] {
  const ids = new Set<number>();
  const eos = config.eos_token ?? undefined;
  if (eos !== undefined) {
    const id = added.find(({ content }) => content === eos)?.id ?? tables.texts.findText(eos);
    // `findText` returns -1 for a text that is not in the vocabulary.
    if (id < 0)
      throw new DataError(`${join(directory, "tokenizer_config.json")}: \`eos_token\` ${JSON.stringify(eos)} is not in tokenizer.json.`);
    ids.add(id);
  }
  for (const id of endTokens.ids) {
    if (id >= size) throw new DataError(`${join(directory, endTokens.file)}: \`eos_token_id\` ${id} is outside the vocabulary of ${size}.`);
    ids.add(id);
  }
  return [...ids];
}
