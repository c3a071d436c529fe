/** Pre-tokenizers that llama.cpp knows, by their form in `tokenizer.json`. */
import { UnsupportedError } from "../../errors.ts";
import type { Component, TokenizerFile } from "../../tokenizer/files.ts";

/** Pattern of Llama 3; Qwen 2 and 3 have the same with single digits. */
const wordsWithDigits = (digits: string) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
/** Pattern of GPT-2, built into the pre-tokenizer `ByteLevel`. */
const GPT_2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Patterns that split a text one after the other → identifier in llama.cpp. */
interface KnownPreTokenizer {
  readonly id: string;
  readonly patterns: readonly string[];
  /** Whether a word that is a token is taken whole, without merges. */
  readonly ignoresMerges: boolean;
}

/** @source https://github.com/ggml-org/llama.cpp, `llm_tokenizer_bpe` in `src/llama-vocab.cpp` */
const KNOWN: readonly KnownPreTokenizer[] = [
  { id: "gpt-2", patterns: [GPT_2], ignoresMerges: false },
  { id: "smollm", patterns: ["\\p{N}", GPT_2], ignoresMerges: false },
  { id: "llama-bpe", patterns: [wordsWithDigits("\\p{N}{1,3}")], ignoresMerges: true },
  { id: "smaug-bpe", patterns: [wordsWithDigits("\\p{N}{1,3}")], ignoresMerges: false },
  { id: "qwen2", patterns: [wordsWithDigits("\\p{N}")], ignoresMerges: false },
];

/**
 * Returns llama.cpp's identifier of a byte-level tokenizer's pre-tokenizer.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a pre-tokenizer that llama.cpp does not have; the message has its patterns.
 */
export function preTokenizerOf({ pre_tokenizer: preTokenizer, model }: TokenizerFile): string {
  const patterns = preTokenizer === null ? null : patternsOf(preTokenizer);
  const ignoresMerges = model["ignore_merges"] === true;
  const known = KNOWN.find(
    (each) => patterns !== null && each.patterns.join("\n") === patterns.join("\n") && each.ignoresMerges === ignoresMerges,
  );
  if (known !== undefined) return known.id;
  const found = patterns === null ? JSON.stringify(preTokenizer) : patterns.map((pattern) => `\`${pattern}\``).join(", then ");
  throw new UnsupportedError(
    `tokenizer.json: llama.cpp has no pre-tokenizer that splits text by ${found.slice(0, 1000)}${ignoresMerges ? " with `ignore_merges`" : ""}. ` +
      "Name one that splits your texts alike with the option `preTokenizer` (--pre-tokenizer), for example tekken, or export without a tokenizer (--no-tokenizer) for programs that pass token ids",
    { param: "preTokenizer" },
  );
}

/** Returns the patterns of a pre-tokenizer in order; null for a part that has no pattern. */
function patternsOf(part: Component): readonly string[] | null {
  switch (part.type) {
    case "Sequence": {
      const parts = (part["pretokenizers"] ?? []) as readonly Component[];
      const patterns = parts.map(patternsOf);
      return patterns.includes(null) ? null : patterns.flatMap((each) => each ?? []);
    }
    case "Split": {
      const { Regex: regex } = (part["pattern"] ?? {}) as { readonly Regex?: unknown };
      return typeof regex === "string" && part["behavior"] === "Isolated" && part["invert"] !== true ? [regex] : null;
    }
    case "Digits":
      return [part["individual_digits"] === true ? "\\p{N}" : "\\p{N}+"];
    case "ByteLevel":
      if (part["add_prefix_space"] === true) return null;
      return part["use_regex"] === false ? [] : [GPT_2];
    default:
      return null;
  }
}
