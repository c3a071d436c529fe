/** Encoding of whole texts: added tokens, normalizer, pre-tokenizer, merges. */
import { ArgumentError } from "../../base/errors.ts";
import { AddedTokenFinder, type AddedToken, type Section } from "./added-tokens.ts";
import { IdList } from "./bpe/ids.ts";
import type { WordEncoder } from "./bpe/word-encoder.ts";
import { compileNormalizer, type Normalizer } from "./normalizer.ts";
import { compilePreTokenizer, type PreTokenizer } from "./pre-tokenizer.ts";
import type { Pipeline } from "./tokenizer-data.ts";

/** Max length of a word at the end of a truncated text, in UTF-16 units; encoding it takes about two seconds. */
const MAX_TAIL_WORD = 524_288;

/** Text to cut into words, or an added token. */
interface Words {
  readonly text: string;
  readonly start: number;
  /** Id of the added token; null for text. */
  readonly id: number | null;
}

/** The last ids of a text, collected from its end. */
export class Tail {
  readonly #length: number;
  readonly #parts: Int32Array[] = [];
  readonly #part = new IdList();
  #collected = 0;

  /** @param length - Number of ids to collect, at least. */
  constructor(length: number) {
    this.#length = length;
  }

  /** Whether enough ids are collected. */
  get isFull(): boolean {
    return this.#collected >= this.#length;
  }

  /** Puts the ids that `encode` appends in front of the ids so far. */
  add(encode: (ids: IdList) => void): void {
    this.#part.cut(0);
    encode(this.#part);
    this.#parts.push(this.#part.toArray());
    this.#collected += this.#part.length;
  }

  /** Appends the collected ids to a list. */
  appendTo(ids: IdList): void {
    for (const part of this.#parts.toReversed()) ids.append(part);
  }
}

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
      else for (const words of this.#sections(section)) this.#encodeAll(words, ids);
    }
  }

  /**
   * Adds the ids of a text from its end, until the tail is full. Words are independent of each other, so the ids equal the last ids of the whole
   * text.
   *
   * @throws ArgumentError `E_ARGUMENT` for a word of the tail that is too long to be encoded.
   */
  encodeTail(text: string, tail: Tail): void {
    for (const section of this.#given.split(text).reverse()) {
      if (tail.isFull) return;
      const { token } = section;
      if (token !== null) tail.add((ids) => ids.push(token.id));
      else for (const words of this.#sections(section).reverse()) this.#encodeEnd(words, tail);
    }
  }

  /** Cuts a text without tokens in the text as given at tokens in the normalized text. */
  #sections({ text: given, start }: Pick<Section, "text" | "start">): Words[] {
    const text = this.#normalize?.(given) ?? given;
    if (this.#normalized === null) return [{ text, start, id: null }];
    return this.#normalized
      .split(text)
      .map(({ text: part, start: at, token }) => ({ text: part, start: start + at, id: token?.id ?? null }));
  }

  #encodeAll({ text, start, id }: Words, ids: IdList): void {
    if (id !== null) ids.push(id);
    else if (text !== "") for (const word of this.#preTokenize(text, start)) if (word !== "") this.#words.encode(word, ids);
  }

  #encodeEnd({ text, start, id }: Words, tail: Tail): void {
    if (tail.isFull || text === "") return;
    if (id !== null) return tail.add((ids) => ids.push(id));
    for (const word of this.#preTokenize(text, start).toReversed()) {
      if (tail.isFull) return;
      if (word.length > MAX_TAIL_WORD)
        throw new ArgumentError(
          `Expected words of at most ${MAX_TAIL_WORD} characters at the end of a text that is truncated, got one of ${word.length}; send less text`,
        );
      if (word !== "") tail.add((ids) => this.#words.encode(word, ids));
    }
  }
}
