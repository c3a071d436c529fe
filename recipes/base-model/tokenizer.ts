/**
 * Tokenizer of the base model: `npx tsx recipes/base-model/tokenizer.ts [directory]` writes its files.
 *
 * The tokenizer is byte-level and deliberately unlike a learned BPE: a piece of text is either a word of the list below and then one token,
 * or spelled one byte at a time. There are no merges, so a random string never shares a token with a word, and the k-th character of a text
 * to transform is the k-th token.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { chatTemplate } from "./chat-template.ts";

/** Stand-in for a leading space (GPT-2's byte alphabet maps the space to this letter). */
const SPACE = "Ġ";

/** Words with a token that includes a leading space. */
const WORDS = `
the of and to a in is you that it for was on are as with they at be this from have or by one not but what all when we can an
your which their said if do will each about how up out them then some so these would other into more two like see time could
no make than first who now my down only way find use may little very after words called just where know before between second
third last next letter letters word text character characters string number numbers digit digits answer question tag tags tool
tools call result name names place end start without every same different twice following given write say give put repeat copy
spell count list reverse upper case lower yes maybe respond reply user too high higher low correct guess secret thinking left
right plus minus line space spaces dash dashes Put Answer You Your Use The Write If What Respond any row vowel vowels wait
done
`;

/** Words with a token without a leading space: starts of sentences. */
const CAPITALS = `
What Which Where How Is Are Do The You Your In If Put Write Say Give Repeat Copy Spell Count List Reverse Respond Reply Answer
Use Call Name Guess Number Text Letters Yes No Maybe Find Add Sort Tell Please Think
`;

/** Lower-case words with a token without a leading space: short answers, and the keys of JSON tool descriptions. */
const BARE = `yes no maybe name arguments type function description parameters properties required string`;

/** Suffixes of compounds, such as `character-by-character`. */
const COMPOUNDS = `-by -character -letter`;

/** Punctuation groups with a token of their own. */
const PUNCTUATION = ['{"', '":', ` "`, '",', '"}', '"}}', ` {"`, ` {`, `}}`, " `", "`.", " +", " =", " -", " ->", "..."];

/** Control tokens, never produced from text. `<|end|>` closes every turn. */
export const SPECIAL_TOKENS = ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>", "<|pad|>"] as const;

/** Tags of the recipes: one token each, encoded from ordinary text. */
export const TAG_TOKENS = [
  "<reversed_text>",
  "</reversed_text>",
  "<answer>",
  "</answer>",
  "<think>",
  "</think>",
  "<tool_call>",
  "</tool_call>",
  "<tools>",
  "</tools>",
] as const;

/** Vocabulary size: rows of the model's embedding. */
export const VOCABULARY_SIZE = 512;

/**
 * Pre-tokenization pattern: a word with at most one leading space or dash; a single digit; a sequence of punctuation; white space.
 * Oniguruma and JavaScript interpret it identically.
 */
const PIECES = String.raw`[ \-]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** Returns the words and groups with a token of their own, in id order, as they occur in text. */
export function wholePieces(): string[] {
  const split = (text: string): string[] => text.trim().split(/\s+/);
  return [...split(WORDS).map((word) => ` ${word}`), ...split(CAPITALS), ...split(BARE), ...split(COMPOUNDS), ...PUNCTUATION];
}

/** Returns GPT-2's printable stand-ins for the 256 bytes, by byte. */
export function byteAlphabet(): string[] {
  const isPrintable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
}

/** Returns the content of tokenizer.json for `tokenizers` (Rust, Python) and `@huggingface/tokenizers`. */
export function makeTokenizer(): Record<string, unknown> {
  const pieces = wholePieces().map((piece) => piece.replaceAll(" ", SPACE));
  const tokens = [...byteAlphabet(), ...pieces];
  const added = [...SPECIAL_TOKENS, ...TAG_TOKENS];
  if (new Set([...tokens, ...added]).size !== tokens.length + added.length) {
    throw new Error("Expected every token once, got a duplicate.");
  }
  // Every id that the model can sample must be decodable.
  if (tokens.length + added.length !== VOCABULARY_SIZE) {
    throw new Error(`Expected ${VOCABULARY_SIZE} tokens, got ${tokens.length + added.length}.`);
  }
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: added.map((content, index) => ({
      id: tokens.length + index,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: index < SPECIAL_TOKENS.length,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: PIECES }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      // A piece in the vocabulary is a single token; all other pieces are split into bytes.
      ignore_merges: true,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [],
    },
  };
}

/** Returns the content of tokenizer_config.json. */
export function makeTokenizerConfig(): Record<string, unknown> {
  return {
    tokenizer_class: "PreTrainedTokenizerFast",
    model_max_length: 1024,
    bos_token: null,
    eos_token: "<|end|>",
    pad_token: "<|pad|>",
    unk_token: null,
    additional_special_tokens: SPECIAL_TOKENS.filter((token) => token !== "<|end|>" && token !== "<|pad|>"),
    clean_up_tokenization_spaces: false,
    add_prefix_space: false,
    chat_template: chatTemplate,
  };
}

/** Writes both files into `directory`. */
export function writeTokenizer(directory: string): void {
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, "tokenizer.json"), `${JSON.stringify(makeTokenizer(), null, 2)}\n`);
  writeFileSync(path.join(directory, "tokenizer_config.json"), `${JSON.stringify(makeTokenizerConfig(), null, 2)}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeTokenizer(process.argv[2] ?? fileURLToPath(new URL("../../models/whetstone-tiny/", import.meta.url)));
}
