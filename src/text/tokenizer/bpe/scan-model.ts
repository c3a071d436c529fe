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

/** Tables of the model, as {@link scan} finds them. */
interface FoundTables {
  texts?: TextTable;
  merges?: MergeTable;
  /** Start of merges before the vocabulary, which are read last. */
  skippedMerges?: number;
  /** Spans of the vocabulary and the merges. */
  readonly spans: Span[];
}

/** Does the same as {@link scanTokenizerFile}, with the error of the scanner for a file that is not JSON. */
function scan(path: string, bytes: Uint8Array): ScannedFile {
  const scanner = new JsonScanner(bytes);
  const found: FoundTables = { spans: [] };
  const readModelEntry = (key: string): void => {
    const firstByte = scanner.peek();
    const start = scanner.position;
    const isTable = (key === "vocab" && firstByte === OPEN) || (key === "merges" && firstByte === OPEN_LIST);
    if (!isTable) return scanner.skip();
    if (key === "vocab") {
      if (found.texts !== undefined) throw new DataError(`${path}: model.vocab: expected one, got several`);
      found.texts = readVocabulary(path, scanner);
    } else if (found.merges !== undefined || found.skippedMerges !== undefined) {
      throw new DataError(`${path}: model.merges: expected one, got several`);
    } else if (found.texts === undefined) {
      // The ids of the merged tokens are known only after the vocabulary.
      found.skippedMerges = start;
      scanner.skip();
    } else found.merges = readMerges(path, scanner, found.texts);
    found.spans.push({ start, end: scanner.position });
  };
  if (scanner.peek() === OPEN) {
    scanner.object((key) => {
      if (key === "model" && scanner.peek() === OPEN) scanner.object(readModelEntry);
      else scanner.skip();
    });
    if (scanner.peek() >= 0) scanner.fail();
  }
  const rest = parseWithout(path, bytes, found.spans);
  const { texts, skippedMerges } = found;
  if (texts === undefined) return { rest, tables: undefined };
  let { merges } = found;
  if (skippedMerges !== undefined) merges = readMerges(path, new JsonScanner(bytes, skippedMerges), texts);
  return { rest, tables: merges === undefined ? undefined : { texts, merges } };
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

/** Reads merges, in the order of their ranks. Each is an array of two tokens, or joined in one string, separated by a space. */
function readMerges(path: string, scanner: JsonScanner, texts: TextTable): MergeTable {
  /** UTF-8 of the left and the right token, which together are the merged token. */
  const joined = new Uint8Array(2 * MAX_TOKEN_BYTES + 8);
  /** Ids of the left, the right and the merged token of each merge. */
  let merges = new Int32Array(3 << 16);
  let count = 0;
  scanner.array(() => {
    const end = scanner.peek() === QUOTE ? readString(scanner, joined) : readPair(scanner, joined);
    if (end < 0) throw new DataError(`${path}: model.merges.${count}: expected two tokens, as an array or separated by one space`);
    if (3 * count + 3 > merges.length) merges = grown(merges, (length) => new Int32Array(length));
    const middle = leftEnd;
    // The hash of the left token, continued by the right one, is the hash of the merged token.
    const leftHash = hashBytes(texts.data.seed, joined, 0, middle);
    const left = texts.findHashed(leftHash, joined, 0, middle);
    const right = texts.find(joined, middle, end);
    const merged = texts.findHashed(hashBytes(leftHash, joined, middle, end), joined, 0, end);
    if (left < 0 || right < 0 || merged < 0) refuseMerge(path, count, joined, { left, right, merged, middle, end });
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

/**
 * Second result of {@link readPair} and {@link readString}: the end of the left token. It is a variable because an object for each of
 * 500,000 merges would take long.
 */
let leftEnd = 0;

/** Reads `["a", "b"]` and writes `ab` to `joined`; returns the end of `ab`, -1 for another value. */
function readPair(scanner: JsonScanner, joined: Uint8Array): number {
  if (scanner.peek() !== OPEN_LIST) return -1;
  scanner.position++;
  if (scanner.peek() !== QUOTE) return -1;
  leftEnd = scanner.string(joined, 0);
  if (leftEnd < 0 || scanner.peek() !== COMMA) return -1;
  scanner.position++;
  if (scanner.peek() !== QUOTE) return -1;
  const end = scanner.string(joined, leftEnd);
  if (scanner.peek() !== CLOSE_LIST) return -1;
  scanner.position++;
  return end;
}

/** Reads `"a b"` and writes `ab` to `joined`; returns the end of `ab`, -1 for another value. */
function readString(scanner: JsonScanner, joined: Uint8Array): number {
  const end = scanner.string(joined, 0);
  leftEnd = end < 0 ? -1 : joined.subarray(0, end).indexOf(0x20);
  if (leftEnd < 0) return -1;
  joined.copyWithin(leftEnd, leftEnd + 1, end);
  return end - 1;
}

/** Merge with a token that is not in the vocabulary: ids of its tokens, -1 for the unknown ones, and the ends of joined texts. */
interface UnknownMerge {
  readonly left: number;
  readonly right: number;
  readonly merged: number;
  readonly middle: number;
  readonly end: number;
}

/** @throws DataError `E_DATA` naming the token that is not in the vocabulary. */
function refuseMerge(path: string, index: number, joined: Uint8Array, { left, merged, middle, end }: UnknownMerge): never {
  const text = (from: number, to: number): string => JSON.stringify(Buffer.from(joined.buffer, from, to - from).toString());
  const named = merged < 0 ? `makes ${text(0, end)}` : `merges ${left < 0 ? text(0, middle) : text(middle, end)}`;
  throw new DataError(`${path}: model.merges.${index} ${named}, which is not in the vocabulary.`);
}
