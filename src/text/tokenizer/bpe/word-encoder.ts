/**
 * Encoding of the words that a pre-tokenizer cuts a text into: a word becomes symbols, one for each byte or character, and `merge-word.ts`
 * merges them.
 *
 * @source Hugging Face `tokenizers` 0.23, `models/bpe/model.rs`.
 */
import { byteAlphabet } from "../byte-alphabet.ts";
import type { IdList } from "./ids.ts";
import { mergeWord } from "./merge-word.ts";
import type { BpeTables } from "./scan-model.ts";

/** Settings of a BPE model. */
export interface BpeModel {
  /** Symbols of a word: its bytes in the byte alphabet, or its characters. */
  readonly symbols: "bytes" | "characters";
  /** Whether a character without a token becomes the tokens of its bytes (`<0x0A>`), if all of them exist. */
  readonly byteFallback: boolean;
  /** Token for symbols without a token; null = they are left out. */
  readonly unknownToken: string | null;
  /** Whether neighboring unknown symbols become one token. */
  readonly fuseUnknown: boolean;
  /** Whether a word that is a token is this token even if no merges make it. */
  readonly ignoreMerges: boolean;
}

/** Max entries of the cache of words; a full cache is emptied. */
const CACHED_WORDS = 8192;
/** Max UTF-16 units of a cached word. */
const CACHED_LENGTH = 24;

/** Encoded word: its ids and the number of its bytes without a token. */
interface CachedWord {
  readonly ids: Int32Array;
  readonly missingBytes: number;
}

/** Encoder of words with the tables of a vocabulary. Keeps the ids of recent words. */
export class WordEncoder {
  readonly #tables: BpeTables;
  readonly #model: BpeModel;
  readonly #unknownId: number;
  /** Id of each byte's token; -1 for a byte without a token. */
  readonly #byteIds: Int32Array;
  readonly #cache = new Map<string, CachedWord>();
  readonly #utf8 = new TextEncoder();
  /** UTF-8 of each byte's character in the byte alphabet. */
  readonly #alphabet: readonly Uint8Array[];
  /** UTF-8 of the current word; reused. */
  #bytes = new Uint8Array(1024);
  /** Symbols of the current word; reused. */
  #symbols = new Int32Array(1024);
  #missingBytes = 0;

  constructor(tables: BpeTables, model: BpeModel) {
    this.#tables = tables;
    this.#model = model;
    this.#unknownId = model.unknownToken === null ? -1 : tables.texts.findText(model.unknownToken);
    const characters = byteAlphabet();
    this.#alphabet = characters.map((character) => this.#utf8.encode(character));
    const names = model.symbols === "bytes" ? characters : characters.map((_, byte) => byteToken(byte));
    this.#byteIds = Int32Array.from(names, (name) => tables.texts.findText(name));
  }

  /** Number of bytes without a token in all words encoded so far: left out, or part of an unknown token. */
  get missingBytes(): number {
    return this.#missingBytes;
  }

  /** Appends the ids of a word. */
  encode(word: string, ids: IdList): void {
    if (word.length > CACHED_LENGTH) return this.#encode(word, ids);
    const known = this.#cache.get(word);
    if (known !== undefined) {
      this.#missingBytes += known.missingBytes;
      return ids.append(known.ids);
    }
    const [start, missingBefore] = [ids.length, this.#missingBytes];
    this.#encode(word, ids);
    if (this.#cache.size >= CACHED_WORDS) this.#cache.clear();
    this.#cache.set(word, { ids: ids.toArray(start), missingBytes: this.#missingBytes - missingBefore });
  }

  /** Appends the ids of a word that is not in the cache. */
  #encode(word: string, ids: IdList): void {
    // UTF-8 has at most three bytes for each UTF-16 unit.
    const maxBytes = word.length * 3;
    if (this.#bytes.length < maxBytes) this.#bytes = new Uint8Array(maxBytes * 2);
    const { written } = this.#utf8.encodeInto(word, this.#bytes);
    if (this.#model.ignoreMerges) {
      const whole = this.#wholeWord(written);
      if (whole >= 0) return ids.push(whole);
    }
    if (this.#symbols.length < written) this.#symbols = new Int32Array(written * 2);
    const count = this.#model.symbols === "bytes" ? this.#byteSymbols(written) : this.#characterSymbols(written);
    const length = mergeWord(this.#symbols, count, this.#tables.merges);
    ids.append(this.#symbols.subarray(0, length));
  }

  /** Returns the id of the token that is the whole current word of `length` bytes; -1 if the vocabulary lacks it. */
  #wholeWord(length: number): number {
    const { texts } = this.#tables;
    if (this.#model.symbols === "characters") return texts.find(this.#bytes, 0, length);
    // A character of the byte alphabet has at most two bytes.
    const text = new Uint8Array(length * 2);
    let end = 0;
    for (let at = 0; at < length; at++) for (const byte of this.#alphabet[this.#bytes[at]!]!) text[end++] = byte;
    return texts.find(text, 0, end);
  }

  /** Splits the current word of `length` bytes into the tokens of its bytes; returns the number of symbols. */
  #byteSymbols(length: number): number {
    const writer = new SymbolWriter(this.#symbols, this.#unknownId, this.#model.fuseUnknown);
    for (let at = 0; at < length; at++) {
      const id = this.#byteIds[this.#bytes[at]!]!;
      if (id >= 0) writer.add(id);
      else {
        this.#missingBytes++;
        writer.addUnknown();
      }
    }
    return writer.finish();
  }

  /** Splits the current word of `length` bytes into the tokens of its characters; returns the number of symbols. */
  #characterSymbols(length: number): number {
    const writer = new SymbolWriter(this.#symbols, this.#unknownId, this.#model.fuseUnknown);
    for (let at = 0, end = 0; at < length; at = end) {
      end = at + characterLength(this.#bytes[at]!);
      const id = this.#tables.texts.find(this.#bytes, at, end);
      if (id >= 0) writer.add(id);
      else if (this.#model.byteFallback && this.#hasBytes(at, end)) {
        for (let byte = at; byte < end; byte++) writer.addByte(this.#byteIds[this.#bytes[byte]!]!);
      } else {
        this.#missingBytes += end - at;
        writer.addUnknown();
      }
    }
    return writer.finish();
  }

  /** Whether each of the bytes `from..to` of the current word has a token. */
  #hasBytes(from: number, to: number): boolean {
    for (let at = from; at < to; at++) if (this.#byteIds[this.#bytes[at]!]! < 0) return false;
    return true;
  }
}

/** Returns the text of the token of one byte: `<0x0A>`. */
export function byteToken(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/** Returns the number of bytes of the UTF-8 character with this first byte. */
function characterLength(firstByte: number): number {
  if (firstByte < 0x80) return 1;
  if (firstByte < 0xe0) return 2;
  return firstByte < 0xf0 ? 3 : 4;
}

/** Writes the symbols of a word. As in the reference, an unknown symbol is written only when a known symbol or the end follows. */
class SymbolWriter {
  readonly #symbols: Int32Array;
  readonly #unknownId: number;
  readonly #fusesUnknown: boolean;
  /** Whether an unknown symbol is added but not written yet. */
  #hasPendingUnknown = false;
  #count = 0;

  /** @param unknownId - Id of the unknown token; -1 if the model has none. */
  constructor(symbols: Int32Array, unknownId: number, fusesUnknown: boolean) {
    this.#symbols = symbols;
    this.#unknownId = unknownId;
    this.#fusesUnknown = fusesUnknown;
  }

  add(id: number): void {
    this.#flush();
    this.#symbols[this.#count++] = id;
  }

  /** Adds the token of a byte. As in the reference, it does not end a run of unknown symbols, so it comes before them. */
  addByte(id: number): void {
    this.#symbols[this.#count++] = id;
  }

  /** Adds an unknown symbol; none if the model has no unknown token. Fused ones become a single symbol. */
  addUnknown(): void {
    if (this.#unknownId < 0) return;
    if (!this.#fusesUnknown) this.#flush();
    this.#hasPendingUnknown = true;
  }

  /** Writes a pending unknown symbol and returns the number of symbols. */
  finish(): number {
    this.#flush();
    return this.#count;
  }

  #flush(): void {
    if (this.#hasPendingUnknown) this.#symbols[this.#count++] = this.#unknownId;
    this.#hasPendingUnknown = false;
  }
}
