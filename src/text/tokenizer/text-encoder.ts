/** Encoding of whole texts, in order: added tokens, normalizer, pre-tokenizer, merges. */
import { ArgumentError } from "../../base/errors.ts";
import { AddedTokenFinder, type AddedToken, type Section } from "./added-tokens.ts";
import { IdList } from "./bpe/ids.ts";
import type { WordEncoder } from "./bpe/word-encoder.ts";
import { compileNormalizer, type Normalizer } from "./normalizer.ts";
import { compilePreTokenizer, type PreTokenizer } from "./pre-tokenizer.ts";
import type { Pipeline } from "./tokenizer-data.ts";

/** Max length of a word at the end of a truncated text, in UTF-16 units; encoding it takes about two seconds. */
const MAX_TAIL_WORD = 524_288;

/** Piece of a normalized text: text to cut into words, or an added token. */
interface Piece {
  readonly text: string;
  /** Position in the whole text, in UTF-16 units; only whether it is 0 matters. */
  readonly start: number;
  /** Id of the added token; null for text. */
  readonly id: number | null;
}

/** List of the last ids of a text, collected from the end of the text by {@link PipelineEncoder.encodeTail}. */
export class Tail {
  readonly #wantedLength: number;
  /** Ids of the parts of the text, the last part first. */
  readonly #parts: Int32Array[] = [];
  /** List for `encode` in {@link add}, reused. */
  readonly #currentPart = new IdList();
  /** Number of ids in {@link #parts}. */
  #collected = 0;

  /** @param wantedLength - Number of ids from which on the tail is full. It may hold more, because whole words are added. */
  constructor(wantedLength: number) {
    this.#wantedLength = wantedLength;
  }

  /** Whether at least the wanted number of ids is collected. */
  get isFull(): boolean {
    return this.#collected >= this.#wantedLength;
  }

  /** Puts the ids that `encode` appends to its list in front of the ids collected so far. */
  add(encode: (ids: IdList) => void): void {
    this.#currentPart.cut(0);
    encode(this.#currentPart);
    this.#parts.push(this.#currentPart.toArray());
    this.#collected += this.#currentPart.length;
  }

  /** Appends the collected ids to a list. */
  appendTo(ids: IdList): void {
    for (const part of this.#parts.toReversed()) ids.append(part);
  }
}

/** Encoder of texts through one pipeline. */
export class PipelineEncoder {
  readonly #wordEncoder: WordEncoder;
  readonly #normalize: Normalizer | null;
  readonly #preTokenize: PreTokenizer;
  /** Finds the added tokens that are recognized in the text as given. */
  readonly #tokensInGiven: AddedTokenFinder;
  /** Finds the added tokens that are recognized in the normalized text; null for a tokenizer without such tokens. */
  readonly #tokensInNormalized: AddedTokenFinder | null;

  /** @throws UnsupportedError `E_UNSUPPORTED` naming a part of the pipeline that is not supported. */
  constructor(wordEncoder: WordEncoder, { normalizer, preTokenizer }: Pipeline, addedTokens: readonly AddedToken[]) {
    this.#wordEncoder = wordEncoder;
    const normalize = compileNormalizer(normalizer);
    this.#normalize = normalize;
    this.#preTokenize = compilePreTokenizer(preTokenizer);
    this.#tokensInGiven = new AddedTokenFinder(addedTokens.filter(({ normalized }) => !normalized).map((token) => [token.content, token]));
    const inNormalized = addedTokens
      .filter(({ normalized }) => normalized)
      .map((token) => [normalize?.(token.content) ?? token.content, token] as const);
    this.#tokensInNormalized = inNormalized.length === 0 ? null : new AddedTokenFinder(inNormalized);
  }

  /** Appends the ids of a text. */
  encode(text: string, ids: IdList): void {
    for (const section of this.#tokensInGiven.split(text)) {
      if (section.token !== null) ids.push(section.token.id);
      else for (const piece of this.#pieces(section)) this.#encodeAll(piece, ids);
    }
  }

  /**
   * Adds the ids of a text from its end, until the tail is full. Words are independent of each other, so the ids equal the last ids of the
   * whole text.
   *
   * @throws ArgumentError `E_ARGUMENT` for a word of the tail that is too long to be encoded.
   */
  encodeTail(text: string, tail: Tail): void {
    for (const section of this.#tokensInGiven.split(text).reverse()) {
      if (tail.isFull) return;
      const { token } = section;
      if (token !== null) tail.add((ids) => ids.push(token.id));
      else for (const piece of this.#pieces(section).reverse()) this.#encodeEnd(piece, tail);
    }
  }

  /**
   * Normalizes a section between the added tokens of the given text, and splits it at the added tokens that are found only after
   * normalization.
   */
  #pieces(section: Section): Piece[] {
    const text = this.#normalize?.(section.text) ?? section.text;
    if (this.#tokensInNormalized === null) return [{ text, start: section.start, id: null }];
    return this.#tokensInNormalized
      .split(text)
      .map((part) => ({ text: part.text, start: section.start + part.start, id: part.token?.id ?? null }));
  }

  /** Appends all ids of a piece. */
  #encodeAll({ text, start, id }: Piece, ids: IdList): void {
    if (id !== null) return ids.push(id);
    if (text === "") return;
    for (const word of this.#preTokenize(text, start)) if (word !== "") this.#wordEncoder.encode(word, ids);
  }

  /** Adds the ids of a piece from its end, until the tail is full. */
  #encodeEnd({ text, start, id }: Piece, tail: Tail): void {
    if (tail.isFull) return;
    if (id !== null) return tail.add((ids) => ids.push(id));
    if (text === "") return;
    for (const word of this.#preTokenize(text, start).toReversed()) {
      if (tail.isFull) return;
      if (word.length > MAX_TAIL_WORD)
        throw new ArgumentError(
          `Expected words of at most ${MAX_TAIL_WORD} characters at the end of a text that is truncated, got one of ${word.length}; send less text`,
        );
      if (word !== "") tail.add((ids) => this.#wordEncoder.encode(word, ids));
    }
  }
}
