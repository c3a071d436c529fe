/** Pre-tokenizers that the tokenizer library reads differently from the reference, said in terms that both read alike. */

import type { Component, TokenizerFile } from "./files.ts";

/** How byte-level pre-tokenizers cut text into words unless they are told not to (the GPT-2 pattern). */
const BYTE_LEVEL_WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/**
 * The same pre-tokenizer as the library carries it out exactly.
 *
 * - `Digits` of the reference takes every Unicode number (`½`, `٣`) as a digit, the library only ASCII ones.
 * - The built-in pattern of `ByteLevel` means Unicode white space by `\s`: with U+0085, without U+FEFF. The library means
 *   that too in a `Split`, but not in its own copy of the pattern. Where a space is put in front of the text this cannot be
 *   said as a `Split`, and stays as it is: there, only these two characters are cut differently.
 */
export function exactPreTokenizer(given: TokenizerFile["pre_tokenizer"]): TokenizerFile["pre_tokenizer"] {
  if (given === null) return null;
  switch (given.type) {
    case "Sequence":
      return { ...given, pretokenizers: ((given["pretokenizers"] ?? []) as readonly Component[]).map(exactPreTokenizer) };
    case "Digits":
      return isolate(given["individual_digits"] === true ? "\\p{N}" : "\\p{N}+");
    case "ByteLevel":
      if (given["use_regex"] === false || given["add_prefix_space"] === true) return given;
      return { type: "Sequence", pretokenizers: [isolate(BYTE_LEVEL_WORDS), { ...given, use_regex: false }] };
    default:
      return given;
  }
}

function isolate(regex: string): Component {
  return { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false };
}
