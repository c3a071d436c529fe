/**
 * Parts of the npm package `@huggingface/tokenizers`: normalizers, and the translation of regular expressions from Oniguruma to JavaScript.
 */
import { Tokenizer } from "@huggingface/tokenizers";
import type { Component } from "./files.ts";

/** Creates a tokenizer with an empty vocabulary, for the sake of its two compiled parts. */
function libraryTokenizer(normalizer: Component | null, preTokenizer: Component | null): Tokenizer {
  const model = { type: "BPE", vocab: {}, merges: [] };
  return new Tokenizer(
    { added_tokens: [], decoder: null, model, normalizer, post_processor: null, pre_tokenizer: preTokenizer, version: "1.0" },
    {},
  );
}

/**
 * Returns the function of a normalizer.
 *
 * @throws Error for a normalizer that the library does not have.
 */
export function libraryNormalizer(part: Component): (text: string) => string {
  const { normalizer } = libraryTokenizer(part, null);
  return (text) => normalizer?.normalize(text) ?? text;
}

/**
 * Translates a regular expression of a tokenizer.
 *
 * @param source - In the syntax of Oniguruma.
 * @returns an expression with the flags `gu`.
 * @throws SyntaxError for an expression that cannot be translated.
 */
export function translateRegex(source: string): RegExp {
  const part = { type: "Split", pattern: { Regex: source }, behavior: "Isolated", invert: false };
  return (libraryTokenizer(null, part).pre_tokenizer as unknown as { readonly pattern: RegExp }).pattern;
}
