/**
 * Reads `tokenizer.json`: vocabulary and merges directly into tables, the small remainder with `JSON.parse`. For a vocabulary of 150,000
 * tokens, JavaScript objects would take several times as long.
 */
import { DataError } from "../../../base/errors.ts";
import { JsonScanner, JsonSyntaxError } from "./json-scanner.ts";
import { MergeTable } from "./merge-table.ts";
import { buildTextTable, hashBytes, type TextTable } from "./text-table.ts";

/** Largest supported id plus 1, and max number of merges. */
const MAX_IDS = 1 << 24;
/** Max bytes of the text of a token. */
const MAX_TOKEN_BYTES = 1 << 16;
const [OPEN, OPEN_LIST, CLOSE_LIST, COMMA, QUOTE] = [0x7b, 0x5b, 0x5d, 0x2c, 0x22];

/** Vocabulary and merges of a BPE model. */
export interface BpeTables {
  readonly texts: TextTable;
  readonly merges: MergeTable;
}

/** A `tokenizer.json` in two parts. */
export interface ScannedFile {
  /** The parsed file, with empty vocabulary and merges. */
  readonly rest: unknown;
  /** Undefined unless the model has a vocabulary that is an object, and merges that are an array. */
  readonly tables: BpeTables | undefined;
}

/** Position of a value in the file. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * Reads the bytes of a `tokenizer.json`.
 *
 * @throws DataError `E_DATA` for a file that is not JSON, and for tokens and merges that contradict each other.
 */
export function scanTokenizerFile(path: string, bytes: Uint8Array): ScannedFile {
  try {
    return scan(path, bytes);
  } catch (error) {
    if (error instanceof JsonSyntaxError) throw new DataError(`${path}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** Does the same as {@link scanTokenizerFile}, with the error of the scanner for a file that is not JSON. */
function scan(path: string, bytes: Uint8Array): ScannedFile {
  const scanner = new JsonScanner(bytes);
  const model = new ModelReader(path, scanner);
  if (scanner.peek() === OPEN) {
    scanner.object((key) => {
      if (key === "model" && scanner.peek() === OPEN) scanner.object((modelKey) => model.readEntry(modelKey));
      else scanner.skip();
    });
    if (scanner.peek() >= 0) scanner.fail();
  }
  return { rest: parseWithout(path, bytes, model.spans), tables: model.tables(bytes) };
}

/** Reader of the entries of a model. It reads the vocabulary and the merges into tables, and skips the rest. */
class ModelReader {
  /** Spans of the vocabulary and the merges. */
  readonly spans: Span[] = [];
  readonly #path: string;
  readonly #scanner: JsonScanner;
  #texts: TextTable | undefined;
  #merges: MergeTable | undefined;
  /** Start of merges that come before the vocabulary; undefined otherwise. */
  #skippedMerges: number | undefined;

  constructor(path: string, scanner: JsonScanner) {
    this.#path = path;
    this.#scanner = scanner;
  }

  /** Reads or skips the value of a key of the model, at which the scanner is. */
  readEntry(key: string): void {
    // Moves the scanner to the first byte.
    const firstByte = this.#scanner.peek();
    const start = this.#scanner.position;
    if (key === "vocab" && firstByte === OPEN) this.#readVocabulary();
    else if (key === "merges" && firstByte === OPEN_LIST) this.#readMerges();
    else return this.#scanner.skip();
    this.spans.push({ start, end: this.#scanner.position });
  }

  /** Returns the tables, after all entries have been read; undefined unless the model has both. */
  tables(bytes: Uint8Array): BpeTables | undefined {
    const texts = this.#texts;
    if (texts === undefined) return undefined;
    const merges =
      this.#skippedMerges === undefined ? this.#merges : readMerges(this.#path, new JsonScanner(bytes, this.#skippedMerges), texts);
    return merges === undefined ? undefined : { texts, merges };
  }

  #readVocabulary(): void {
    if (this.#texts !== undefined) throw new DataError(`${this.#path}: model.vocab: expected one, got several`);
    this.#texts = readVocabulary(this.#path, this.#scanner);
  }

  #readMerges(): void {
    const hasMerges = this.#merges !== undefined || this.#skippedMerges !== undefined;
    if (hasMerges) throw new DataError(`${this.#path}: model.merges: expected one, got several`);
    if (this.#texts !== undefined) {
      this.#merges = readMerges(this.#path, this.#scanner, this.#texts);
      return;
    }
    // The ids of the merged tokens are known only after the vocabulary.
    this.#skippedMerges = this.#scanner.position;
    this.#scanner.skip();
  }
}

/** Parses a file with an empty object or array in place of each span. */
function parseWithout(path: string, bytes: Uint8Array, spans: readonly Span[]): unknown {
  const text = (from: number, to: number): string => Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).toString();
  let remainder = "";
  let lastEnd = 0;
  for (const { start, end } of spans) {
    remainder += text(lastEnd, start) + (bytes[start] === OPEN ? "{}" : "[]");
    lastEnd = end;
  }
  try {
    return JSON.parse(remainder + text(lastEnd, bytes.length));
  } catch (error) {
    throw new DataError(`${path}: expected JSON, it does not parse`, { cause: error });
  }
}

/** Reads the object of ids by token, the texts straight into one pool of bytes. */
function readVocabulary(path: string, scanner: JsonScanner): TextTable {
  let pool = new Uint8Array(1 << 20);
  let ends = new Uint32Array(1 << 15);
  let ids = new Int32Array(1 << 15);
  let count = 0;
  let poolLength = 0;
  const poolWithRoom = (): Uint8Array => {
    if (pool.length - poolLength < MAX_TOKEN_BYTES + 4) pool = grown(pool, (length) => new Uint8Array(length));
    return pool;
  };
  scanner.entries(
    poolWithRoom,
    () => poolLength,
    (end) => {
      const id = scanner.integer();
      const token = (): string => JSON.stringify(Buffer.from(pool.buffer, poolLength, Math.min(end - poolLength, 100)).toString());
      if (id < 0 || id >= MAX_IDS) throw new DataError(`${path}: model.vocab: expected an id in [0, ${MAX_IDS}) for the token ${token()}`);
      if (end - poolLength > MAX_TOKEN_BYTES)
        throw new DataError(`${path}: model.vocab: expected tokens of at most ${MAX_TOKEN_BYTES} bytes`);
      if (count === ids.length) {
        ends = grown(ends, (length) => new Uint32Array(length));
        ids = grown(ids, (length) => new Int32Array(length));
      }
      ends[count] = end;
      ids[count++] = id;
      poolLength = end;
    },
  );
  return buildTextTable({ pool, poolLength, ends, ids, count });
}

/** Returns a copy of a list with twice its length. */
function grown<T extends Uint8Array | Uint32Array | Int32Array>(list: T, make: (length: number) => T): T {
  const larger = make(list.length * 2);
  larger.set(list);
  return larger;
}

/** Two tokens of a merge, which together are the merged token. One object for all merges: there may be 500,000 of them. */
interface JoinedTokens {
  /** UTF-8 of the left token, and then of the right one. */
  readonly bytes: Uint8Array;
  /** End of the left token in `bytes`. */
  leftEnd: number;
  /** End of the right token in `bytes`. */
  end: number;
}

/** Reads merges, in the order of their ranks. Each is an array of two tokens, or joined in one string, separated by a space. */
function readMerges(path: string, scanner: JsonScanner, texts: TextTable): MergeTable {
  const joined: JoinedTokens = { bytes: new Uint8Array(2 * MAX_TOKEN_BYTES + 8), leftEnd: 0, end: 0 };
  const { bytes } = joined;
  /** Ids of the left, the right and the merged token of each merge. */
  let merges = new Int32Array(3 << 16);
  let count = 0;
  scanner.array(() => {
    const isMerge = scanner.peek() === QUOTE ? readString(scanner, joined) : readPair(scanner, joined);
    if (!isMerge) throw new DataError(`${path}: model.merges.${count}: expected two tokens, as an array or separated by one space`);
    if (3 * count + 3 > merges.length) merges = grown(merges, (length) => new Int32Array(length));
    const { leftEnd, end } = joined;
    // The hash of the left token, continued by the right one, is the hash of the merged token.
    const leftHash = hashBytes(texts.data.seed, bytes, 0, leftEnd);
    const left = texts.findHashed(leftHash, bytes, 0, leftEnd);
    const right = texts.find(bytes, leftEnd, end);
    const merged = texts.findHashed(hashBytes(leftHash, bytes, leftEnd, end), bytes, 0, end);
    if (left < 0 || right < 0 || merged < 0) throw unknownToken(path, count, joined, { left, merged });
    merges[3 * count] = left;
    merges[3 * count + 1] = right;
    merges[3 * count + 2] = merged;
    count++;
    if (count > MAX_IDS) throw new DataError(`${path}: model.merges: expected at most ${MAX_IDS}`);
  });
  const table = new MergeTable(count);
  for (let rank = 0; rank < count; rank++) table.set(merges[3 * rank]!, merges[3 * rank + 1]!, rank, merges[3 * rank + 2]!);
  return table;
}

/** Reads `["a", "b"]` into `joined`. Returns false for another value. */
function readPair(scanner: JsonScanner, joined: JoinedTokens): boolean {
  if (scanner.peek() !== OPEN_LIST) return false;
  scanner.position++;
  if (scanner.peek() !== QUOTE) return false;
  joined.leftEnd = scanner.string(joined.bytes, 0);
  if (joined.leftEnd < 0 || scanner.peek() !== COMMA) return false;
  scanner.position++;
  if (scanner.peek() !== QUOTE) return false;
  joined.end = scanner.string(joined.bytes, joined.leftEnd);
  if (joined.end < 0 || scanner.peek() !== CLOSE_LIST) return false;
  scanner.position++;
  return true;
}

/** Reads `"a b"` into `joined`. Returns false for another value. */
function readString(scanner: JsonScanner, joined: JoinedTokens): boolean {
  const end = scanner.string(joined.bytes, 0);
  joined.leftEnd = end < 0 ? -1 : joined.bytes.subarray(0, end).indexOf(0x20);
  if (joined.leftEnd < 0) return false;
  // Removes the space.
  joined.bytes.copyWithin(joined.leftEnd, joined.leftEnd + 1, end);
  joined.end = end - 1;
  return true;
}

/** Returns the error for a merge with a token that is not in the vocabulary. The ids of the tokens are -1 for such a token. */
function unknownToken(
  path: string,
  index: number,
  { bytes, leftEnd, end }: JoinedTokens,
  { left, merged }: { readonly left: number; readonly merged: number },
): DataError {
  const text = (from: number, to: number): string => JSON.stringify(Buffer.from(bytes.buffer, from, to - from).toString());
  const named = merged < 0 ? `makes ${text(0, end)}` : `merges ${left < 0 ? text(0, leftEnd) : text(leftEnd, end)}`;
  return new DataError(`${path}: model.merges.${index} ${named}, which is not in the vocabulary.`);
}
