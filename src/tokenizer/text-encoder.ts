/** Encoding of whole texts: added tokens, normalizer, pre-tokenizer, merges. */
import { AddedTokenFinder, type AddedToken } from "./added-tokens.ts";
import type { IdList } from "./bpe/ids.ts";
import type { WordEncoder } from "./bpe/word-encoder.ts";
import { compileNormalizer, type Normalizer } from "./normalizer.ts";
import { compilePreTokenizer, type PreTokenizer } from "./pre-tokenizer.ts";
import type { Pipeline } from "./tokenizer-data.ts";

/** Encoder of texts through one pipeline. */
export class PipelineEncoder {
  readonly #words: WordEncoder;
  readonly #normalize: Normalizer | null;
  readonly #preTokenize: PreTokenizer;
  /** Added tokens in the text as given, and in normalized text. */
  readonly #given: AddedTokenFinder;
  readonly #normalized: AddedTokenFinder | null;

  /** @throws UnsupportedError `E_UNSUPPORTED` naming a part of the pipeline that is not supported. */
  constructor(words: WordEncoder, { normalizer, preTokenizer }: Pipeline, addedTokens: readonly AddedToken[]) {
    this.#words = words;
    const normalize = compileNormalizer(normalizer);
    this.#normalize = normalize;
    this.#preTokenize = compilePreTokenizer(preTokenizer);
    this.#given = new AddedTokenFinder(addedTokens.filter(({ normalized }) => !normalized).map((token) => [token.content, token]));
    const late = addedTokens.filter(({ normalized }) => normalized);
    this.#normalized =
      late.length === 0 ? null : new AddedTokenFinder(late.map((token) => [normalize?.(token.content) ?? token.content, token]));
  }

  /** Appends the ids of a text. */
  encode(text: string, ids: IdList): void {
    for (const section of this.#given.split(text)) {
      if (section.token !== null) ids.push(section.token.id);
      else this.#encodeSection(section.text, section.start, ids);
    }
  }

  #encodeSection(given: string, start: number, ids: IdList): void {
    const text = this.#normalize?.(given) ?? given;
    if (this.#normalized === null) return this.#encodeWords(text, start, ids);
    for (const section of this.#normalized.split(text)) {
      if (section.token !== null) ids.push(section.token.id);
      else this.#encodeWords(section.text, start + section.start, ids);
    }
  }

  #encodeWords(text: string, start: number, ids: IdList): void {
    if (text === "") return;
    for (const word of this.#preTokenize(text, start)) if (word !== "") this.#words.encode(word, ids);
  }
}
