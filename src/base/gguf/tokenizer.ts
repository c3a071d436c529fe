/** Conversion of the tokenizer in GGUF metadata to the files of a tokenizer in Hugging Face layout. */
import { DataError, UnsupportedError } from "../errors.ts";
import type { GgufHeader } from "./header.ts";
import type { GgufMetadata } from "./metadata.ts";
import { mergesFromScores } from "./merges.ts";
import { type GgufPreTokenizer, preTokenizerIds, preTokenizerWithId } from "./pre-tokenizers.ts";
import { readVocabulary, TOKEN_TYPES, type GgufVocabulary } from "./vocabulary.ts";
import { itemAt } from "../util/values.ts";

/** Files of a tokenizer, as parsed JSON. */
export interface GgufTokenizer {
  /** `tokenizer.json`. */
  readonly tokenizer: Readonly<Record<string, unknown>>;
  /** `tokenizer_config.json`, with the chat templates. */
  readonly config: Readonly<Record<string, unknown>>;
  /** `generation_config.json`: ids of the special tokens. */
  readonly generation: Readonly<Record<string, unknown>>;
  /** Number of token ids: the rows of the embedding. */
  readonly size: number;
}

/** Object of `tokenizer.json`. */
type Json = Readonly<Record<string, unknown>>;

/**
 * Reads the tokenizer.
 *
 * @throws DataError `E_DATA` naming the key, UnsupportedError `E_UNSUPPORTED` for a model or a pre-tokenizer that is not supported.
 */
export function readTokenizer({ metadata, tensors }: GgufHeader): GgufTokenizer {
  const vocabulary = readVocabulary(metadata);
  const kind = kindOf(metadata, vocabulary);
  const { texts, special } = vocabulary;
  const textOf = (id: number | undefined) => (id === undefined ? null : itemAt(texts, id));
  const [bos, eos] = [special.bos, special.eos];
  const addsBos = metadata.boolean("tokenizer.ggml.add_bos_token") ?? kind.addsBos;
  const addsEos = metadata.boolean("tokenizer.ggml.add_eos_token") ?? false;
  return {
    tokenizer: {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: addedTokens(vocabulary),
      ...kind.tokenizerKeys,
      post_processor: postProcessor(texts, addsBos ? bos : undefined, addsEos ? eos : undefined),
    },
    config: {
      bos_token: textOf(bos),
      eos_token: textOf(eos),
      unk_token: textOf(special.unknown),
      pad_token: textOf(special.padding),
      add_bos_token: addsBos,
      add_eos_token: addsEos,
      clean_up_tokenization_spaces: false,
      chat_template: chatTemplates(metadata),
    },
    generation: {
      bos_token_id: bos ?? null,
      eos_token_id: endTokens(metadata, vocabulary),
      pad_token_id: special.padding ?? null,
    },
    size: sizeOf(texts.length, tensors.get("token_embd.weight")?.shape[0], metadata.label),
  };
}

/** Returns the rows of the embedding; for a file without weights, the number of tokens. */
function sizeOf(tokens: number, rows: number | undefined, label: string): number {
  if (rows !== undefined && rows < tokens)
    throw new DataError(`${label}: tokenizer.ggml.tokens: expected at most ${rows} tokens, the rows of token_embd.weight, got ${tokens}`);
  return rows ?? tokens;
}

/** Merges in order, as `tokenizer.json` has them: "left right", or both parts. */
type Merges = readonly (string | readonly [string, string])[];

/** Parts of the tokenizer that depend on its kind (`tokenizer.ggml.model`). */
interface TokenizerKind {
  /** Keys of `tokenizer.json`. */
  readonly tokenizerKeys: Json;
  /** Whether the BOS is added if the file has no `tokenizer.ggml.add_bos_token`. */
  readonly addsBos: boolean;
}

/** Returns the tokenizer of the kind that the file names. @throws UnsupportedError `E_UNSUPPORTED` for another kind. */
function kindOf(metadata: GgufMetadata, vocabulary: GgufVocabulary): TokenizerKind {
  const model = metadata.required("tokenizer.ggml.model", metadata.string("tokenizer.ggml.model"));
  switch (model) {
    case "gpt2":
      return byteLevel(metadata, vocabulary);
    case "llama":
      return sentencePiece(metadata, vocabulary);
    case "gemma4":
      return piecesWithMerges(metadata, vocabulary);
    default:
      throw new UnsupportedError(
        `${metadata.label}: tokenizer.ggml.model: ${JSON.stringify(model.slice(0, 100))} is not supported; "gpt2", "llama" and "gemma4" are`,
      );
  }
}

/** Returns a byte-level tokenizer, as in GPT-2. */
function byteLevel(metadata: GgufMetadata, vocabulary: GgufVocabulary): TokenizerKind {
  const preTokenizer = preTokenizerOf(metadata);
  const byteLevelPart = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const splits = preTokenizer.patterns.map((regex) => ({ type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false }));
  return {
    tokenizerKeys: {
      normalizer: preTokenizer.isNormalized === true ? { type: "NFC" } : null,
      pre_tokenizer: { type: "Sequence", pretokenizers: [...splits, byteLevelPart] },
      decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
      model: bpeModel(vocabulary, requireMerges(metadata), { ignore_merges: preTokenizer.ignoresMerges }),
    },
    addsBos: preTokenizer.addsBos === true,
  };
}

/** Returns the pre-tokenizer that the file names. @throws UnsupportedError `E_UNSUPPORTED` for an unknown identifier. */
function preTokenizerOf(metadata: GgufMetadata): GgufPreTokenizer {
  const id = metadata.string("tokenizer.ggml.pre");
  if (id === undefined)
    throw new DataError(
      `${metadata.label}: expected the metadata key tokenizer.ggml.pre, found none: convert the model again with a newer llama.cpp`,
    );
  const preTokenizer = preTokenizerWithId(id);
  if (preTokenizer !== undefined) return preTokenizer;
  throw new UnsupportedError(
    `${metadata.label}: tokenizer.ggml.pre: ${JSON.stringify(id.slice(0, 100))} is not supported; ${preTokenizerIds().join(", ")} are`,
  );
}

function requireMerges(metadata: GgufMetadata): string[] {
  return metadata.required("tokenizer.ggml.merges", metadata.strings("tokenizer.ggml.merges"));
}

/** Character that stands for a space in the tokens of SentencePiece. */
const SPACE = "▁";

/** Returns a tokenizer in the style of SentencePiece, which merges neighbors by the scores of the tokens that they make. */
function sentencePiece(metadata: GgufMetadata, vocabulary: GgufVocabulary): TokenizerKind {
  const scores = metadata.required("tokenizer.ggml.scores", metadata.numbers("tokenizer.ggml.scores"));
  if (scores.length < vocabulary.texts.length)
    throw new DataError(
      `${metadata.label}: tokenizer.ggml.scores: expected ${vocabulary.texts.length} values, one per token, got ${scores.length}`,
    );
  if (metadata.boolean("tokenizer.ggml.remove_extra_whitespaces") === true)
    throw new UnsupportedError(`${metadata.label}: tokenizer.ggml.remove_extra_whitespaces: true is not supported`);
  const hasPrefix = metadata.boolean("tokenizer.ggml.add_space_prefix") ?? true;
  return { tokenizerKeys: pieceTokenizer(vocabulary, mergesFromScores(vocabulary, scores), { hasPrefix }), addsBos: true };
}

/** Returns a tokenizer with the pieces of SentencePiece and explicit merges, as in Gemma 4. */
function piecesWithMerges(metadata: GgufMetadata, vocabulary: GgufVocabulary): TokenizerKind {
  return { tokenizerKeys: pieceTokenizer(vocabulary, requireMerges(metadata), { hasPrefix: false }), addsBos: true };
}

/** Returns the keys of `tokenizer.json` of a tokenizer with the pieces of SentencePiece. `hasPrefix`: a space is inserted before a text. */
function pieceTokenizer(vocabulary: GgufVocabulary, merges: Merges, { hasPrefix }: { readonly hasPrefix: boolean }): Json {
  const replace = { type: "Replace", pattern: { String: " " }, content: SPACE };
  const unknown = vocabulary.texts.find((_, id) => vocabulary.types[id] === TOKEN_TYPES.unknown);
  return {
    normalizer: hasPrefix ? { type: "Sequence", normalizers: [{ type: "Prepend", prepend: SPACE }, replace] } : replace,
    pre_tokenizer: null,
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: SPACE }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        ...(hasPrefix ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : []),
      ],
    },
    model: bpeModel(vocabulary, merges, { unk_token: unknown ?? null, fuse_unk: true, byte_fallback: true }),
  };
}

/** Returns the model of a `tokenizer.json`. `overrides` replaces defaults. */
function bpeModel(vocabulary: GgufVocabulary, merges: Merges, overrides: Json): Json {
  return {
    type: "BPE",
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    fuse_unk: false,
    byte_fallback: false,
    ignore_merges: false,
    vocab: vocabularyObject(vocabulary),
    merges,
    ...overrides,
  };
}

/** Padding of the vocabulary to the rows of the embedding, written by llama.cpp's converter. */
const PADDING = /^\[PAD\d+\]$/u;

/** Returns ids by text, without padding. The object has no prototype, so that every text can be a key. */
function vocabularyObject({ texts, types }: GgufVocabulary): Record<string, number> {
  const ids = Object.create(null) as Record<string, number>;
  for (const [id, text] of texts.entries()) {
    const isPadding = types[id] === TOKEN_TYPES.unused && PADDING.test(text);
    if (!isPadding) ids[text] = id;
  }
  return ids;
}

/** Returns the added tokens, which a tokenizer finds in a text before it splits the rest. */
function addedTokens({ texts, types }: GgufVocabulary): Json[] {
  const isAdded = (type: number | undefined) =>
    type === TOKEN_TYPES.control || type === TOKEN_TYPES.userDefined || type === TOKEN_TYPES.unknown;
  return texts.flatMap((content, id) =>
    isAdded(types[id])
      ? [
          {
            id,
            content,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: types[id] !== TOKEN_TYPES.userDefined,
          },
        ]
      : [],
  );
}

/** Returns the post-processor that adds the BOS before a text and the EOS after it. */
function postProcessor(texts: readonly string[], bos: number | undefined, eos: number | undefined): Json | null {
  const added = [bos, eos].filter((id) => id !== undefined);
  if (added.length === 0) return null;
  const special = (id: number | undefined, type: number) =>
    id === undefined ? [] : [{ SpecialToken: { id: itemAt(texts, id), type_id: type } }];
  const sequence = (id: string, type: number) => [...special(bos, type), { Sequence: { id, type_id: type } }, ...special(eos, type)];
  return {
    type: "TemplateProcessing",
    single: sequence("A", 0),
    pair: [...sequence("A", 0), ...sequence("B", 1)],
    special_tokens: Object.fromEntries(
      added.map((id) => {
        const text = itemAt(texts, id);
        return [text, { id: text, ids: [id], tokens: [text] }];
      }),
    ),
  };
}

/** Returns the template, or the default and the named templates. */
function chatTemplates(metadata: GgufMetadata): string | Json[] | null {
  const template = metadata.string("tokenizer.chat_template") ?? null;
  const names = metadata.strings("tokenizer.chat_templates") ?? [];
  if (names.length === 0) return template;
  const named = names.map((name) => ({ name, template: metadata.string(`tokenizer.chat_template.${name}`) }));
  const missing = named.find((each) => each.template === undefined);
  if (missing !== undefined)
    throw new DataError(
      `${metadata.label}: expected the metadata key tokenizer.chat_template.${missing.name}, which tokenizer.chat_templates names`,
    );
  return [...(template === null ? [] : [{ name: "default", template }]), ...named];
}

/** Texts of tokens that end a turn; llama.cpp recognizes them in files without `tokenizer.ggml.eot_token_id`. */
const TURN_ENDS = ["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|end_of_text|>"];

/** Returns the ids that end an answer: EOS, and the end of turn or, in a file without one, {@link TURN_ENDS} in the chat template. */
function endTokens(metadata: GgufMetadata, { ids, types, special }: GgufVocabulary): number[] {
  const template = metadata.string("tokenizer.chat_template") ?? "";
  const recognized = TURN_ENDS.flatMap((text) => {
    const id = template.includes(text) ? ids.get(text) : undefined;
    return id !== undefined && types[id] === TOKEN_TYPES.control ? [id] : [];
  });
  const turnEnds = special.eot === undefined ? recognized : [special.eot];
  const ends = special.eos === undefined ? turnEnds : [special.eos, ...turnEnds];
  return [...new Set(ends)];
}
