/** A tokenizer as data: everything that encoding needs, checked, and cheap to send to another thread. */
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

/** Parts of a pipeline that a text passes before its words are merged. */
export interface Pipeline {
  readonly normalizer: Component | null;
  readonly preTokenizer: Component | null;
}

/** Sources of chat templates. */
export interface TemplateSources {
  /** File of the templates, for messages. */
  readonly file: string;
  readonly default?: string | undefined;
  /** Used instead of `default` if the conversation has tools. */
  readonly toolUse?: string | undefined;
}

/** Kind of a BPE tokenizer: relation of its tokens to bytes, and the encoding of text that continues other text. */
export interface TokenizerKind {
  readonly name: "byte-level" | "byte-fallback";
  readonly pipeline: Pipeline;
  /** Pipeline for text that continues other text; null = the same. */
  readonly continuation: Pipeline | null;
  /** Whether text after an added token is encoded like the beginning of a text. */
  readonly restartsAfterTokens: boolean;
}

/**
 * A loaded tokenizer without its code. The arrays are on `SharedArrayBuffer`s: a structured clone in another thread shares them, and takes
 * a few milliseconds.
 */
export interface TokenizerData {
  /** Directory of the model, for messages. */
  readonly directory: string;
  readonly texts: TextTableData;
  readonly merges: MergeTableData;
  readonly model: BpeModel;
  readonly kind: TokenizerKind;
  readonly addedTokens: readonly AddedToken[];
  readonly around: AddedAround;
  readonly vocabularySize: number;
  /** Bytes of the longest token. */
  readonly maxTokenBytes: number;
  readonly eosTokenIds: readonly number[];
  readonly templates: TemplateSources;
  readonly templateVariables: Readonly<Record<string, string | undefined>>;
}

/** Files of a tokenizer's directory, with the vocabulary and merges of `file` in `tables`. */
export interface TokenizerSources {
  readonly directory: string;
  readonly file: TokenizerFile;
  readonly tables: BpeTables;
  readonly config: TokenizerConfigFile;
  /** `vocab_size` of `config.json`; undefined = as many rows as the tokenizer has ids. */
  readonly vocabularySize: number | undefined;
  /** Ids of `generation_config.json` or `config.json` that end a turn. */
  readonly eosIds: readonly number[];
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
  const kind = kindOf(file, config);
  const alsoSpecial = SPECIAL_BY_CLASS.get(String(config["tokenizer_class"]).replace(/Fast$/u, ""));
  const addedTokens = file.added_tokens.map((token) => addedTokenOf(token, token.content === alsoSpecial));
  const needed = addedTokens.reduce((size, { id }) => Math.max(size, id + 1), tables.texts.size);
  const vocabularySize = sources.vocabularySize ?? needed;
  if (vocabularySize < needed)
    throw new DataError(
      `${join(directory, "config.json")}: \`vocab_size\` is ${vocabularySize}, but tokenizer.json has ids up to ${needed - 1}.`,
    );
  const data = {
    directory,
    texts: tables.texts.data,
    merges: tables.merges.data,
    model: modelOf(file, kind.name),
    kind,
    addedTokens,
    around: addedAround(file.post_processor),
    vocabularySize,
    templates,
    templateVariables: Object.fromEntries(TEMPLATE_TOKENS.map((name) => [name, config[name] ?? undefined])),
  };
  const eosTokenIds = resolveEos(sources, addedTokens, vocabularySize);
  return { ...data, eosTokenIds, maxTokenBytes: maxTokenBytes(tables, kind.name, addedTokens) };
}

/** Returns the bytes of a token of the vocabulary from the UTF-8 of its text. */
export function bytesOfText(text: Uint8Array, kind: TokenizerKind["name"]): Uint8Array {
  return kind === "byte-level" ? (bytesOfToken(text) ?? text.slice()) : bytesOfPiece(Buffer.from(text).toString());
}

function kindOf(file: TokenizerFile, config: TokenizerConfigFile): TokenizerKind {
  if (!isByteFallback(file)) {
    requireByteLevel(file);
    const pipeline = { normalizer: file.normalizer, preTokenizer: file.pre_tokenizer };
    return { name: "byte-level", pipeline, continuation: null, restartsAfterTokens: false };
  }
  const { file: whole, continuation, prefix } = byteFallbackPipeline(file, config);
  return {
    name: "byte-fallback",
    pipeline: { normalizer: whole.normalizer, preTokenizer: whole.pre_tokenizer },
    continuation: { normalizer: continuation.normalizer, preTokenizer: continuation.pre_tokenizer },
    restartsAfterTokens: prefix === "always",
  };
}

function modelOf({ model }: TokenizerFile, kind: TokenizerKind["name"]): BpeModel {
  for (const key of ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]) {
    const value = model[key] ?? "";
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

/** Tokens of the configuration that templates may read. */
const TEMPLATE_TOKENS = ["bos_token", "eos_token", "unk_token", "pad_token"] as const;

/** Tokens that the tokenizer class of transformers makes special, regardless of the file. */
const SPECIAL_BY_CLASS: ReadonlyMap<string, string> = new Map([["GemmaTokenizer", "<mask>"]]);

function addedTokenOf(entry: TokenizerFile["added_tokens"][number], isAlsoSpecial: boolean): AddedToken {
  const { id, content, special, single_word: singleWord, lstrip, rstrip, normalized } = entry;
  return { id, content, special: special || isAlsoSpecial, singleWord, lstrip, rstrip, normalized: normalized ?? !special };
}

function maxTokenBytes({ texts }: BpeTables, kind: TokenizerKind["name"], addedTokens: readonly AddedToken[]): number {
  let max = addedTokens.reduce((length, { content }) => Math.max(length, Buffer.byteLength(content)), 1);
  const { starts, ends } = texts.data;
  for (let id = 0; id < texts.size; id++) {
    // A token has at most as many bytes as its text.
    if (ends[id]! - starts[id]! > max) max = Math.max(max, bytesOfText(texts.text(id), kind).length);
  }
  return max;
}

function resolveEos(
  { directory, tables, config, eosIds }: TokenizerSources,
  added: readonly AddedToken[],
  size: number,
): readonly number[] {
  const ids = new Set<number>();
  const eos = config.eos_token ?? undefined;
  if (eos !== undefined) {
    const id = added.find(({ content }) => content === eos)?.id ?? tables.texts.findText(eos);
    if (id < 0)
      throw new DataError(`${join(directory, "tokenizer_config.json")}: \`eos_token\` ${JSON.stringify(eos)} is not in tokenizer.json.`);
    ids.add(id);
  }
  for (const id of eosIds) {
    if (id >= size)
      throw new DataError(`${join(directory, "generation_config.json")}: \`eos_token_id\` ${id} is outside the vocabulary of ${size}.`);
    ids.add(id);
  }
  return [...ids];
}
