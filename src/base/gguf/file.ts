/** Open GGUF file: its header, and tensors that are read in pieces. */
import type { FileHandle } from "node:fs/promises";
import { basename } from "node:path";
import { DataError, UnsupportedError, WhetstoneError } from "../errors.ts";
import { firstNonFinite } from "../util/finite.ts";
import { openRegularFile, reasonOf } from "../util/regular-file.ts";
import { HeaderIncomplete } from "./header-reader.ts";
import { type GgufHeader, type GgufTensor, parseHeader } from "./header.ts";

/** Maximum size of a header in bytes; a vocabulary of 262,000 tokens with merges takes 16 MB. */
const MAX_HEADER_BYTES = 128 * 2 ** 20;
/** Bytes of the first read of a header. */
const FIRST_READ_BYTES = 2 * 2 ** 20;
/** Factor by which each further read of a longer header is larger. */
const READ_GROWTH = 4;
/** Approximate number of elements in a piece of a tensor. */
const PIECE_ELEMENTS = 2 ** 20;

/** Pattern of the names of files that `llama-gguf-split` writes. */
const SPLIT_NAME = /-\d{5}-of-\d{5}\.gguf$/u;

/** Callback of {@link GgufFile.readLevels}: 32 levels, their scale and offset, and the index of the first of these elements. */
type LevelsVisitor = (levels: Int8Array, scale: number, offset: number, firstElement: number) => void;

/** Open GGUF file. */
export interface GgufFile extends GgufHeader {
  /** Name of the file without its directory, for error messages. */
  readonly label: string;
  /**
   * Converts a tensor to float32 in pieces, so that memory does not grow with the tensor. With the length of a row as `unitElements`,
   * pieces have whole rows.
   *
   * @param tensor - Tensor of this file.
   * @param visit - Called with each piece and the index of its first element in the tensor. The piece is valid only during the call, and
   *   `visit` may change its elements.
   * @param unitElements - Each piece but the last has a multiple of this number of elements. @default 1
   * @throws DataError `E_DATA` naming the tensor if it contains NaN or an infinity, or if the file has been truncated since it was opened.
   */
  readPieces(tensor: GgufTensor, visit: (piece: Float32Array, firstElement: number) => void, unitElements?: number): Promise<void>;
  /**
   * Visits the elements of a tensor as integers, 32 at a time.
   *
   * @param tensor - Tensor with a type that has {@link ElementType.levels}.
   * @param visit - Called with 32 levels, their scale and offset, and the index of the first of these elements in the tensor.
   * @throws DataError `E_DATA` as {@link readPieces}.
   */
  readLevels(tensor: GgufTensor, visit: LevelsVisitor): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens a file and checks its header.
 *
 * @throws DataError `E_DATA` for a file that cannot be read, is not GGUF, is truncated or contradicts itself; the message names the field.
 * @throws UnsupportedError `E_UNSUPPORTED` for big-endian files, other versions than 2 and 3, models split into several files, and element
 *   types that are not supported.
 */
export async function openGguf(path: string): Promise<GgufFile> {
  const label = basename(path);
  const file = await openRegularFile(path).catch((cause: unknown) => {
    if (WhetstoneError.isInstance(cause)) throw cause;
    throw new DataError(`${label} cannot be read: ${reasonOf(cause)}`, { cause });
  });
  try {
    const header = await readHeader(file, label);
    requireSingleFile(header, label);
    return {
      ...header,
      label,
      readPieces: (tensor, visit, unitElements = 1) => readPieces(file, label, { tensor, unitElements, visit }),
      readLevels: (tensor, visit) => readLevels(file, label, tensor, visit),
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Reads the header: more and more bytes from the start of the file, until the header is complete. */
async function readHeader(file: FileHandle, label: string): Promise<GgufHeader> {
  const { size } = await file.stat();
  for (let bytes = Math.min(size, FIRST_READ_BYTES); ; bytes = Math.min(size, bytes * READ_GROWTH, MAX_HEADER_BYTES)) {
    const beginning = Buffer.allocUnsafeSlow(bytes);
    await readFully(file, label, beginning, 0);
    try {
      return parseHeader(beginning, size, label);
    } catch (error) {
      if (!(error instanceof HeaderIncomplete)) throw error;
      if (bytes >= MAX_HEADER_BYTES)
        throw new DataError(`${label}: expected metadata and tensor table of at most ${MAX_HEADER_BYTES} bytes, they are longer`);
    }
  }
}

/** Requires a model in a single file. @throws UnsupportedError `E_UNSUPPORTED` for a part of a split model. */
function requireSingleFile({ metadata }: GgufHeader, label: string): void {
  const parts = metadata.number("split.count") ?? 1;
  if (parts > 1 || SPLIT_NAME.test(label))
    throw new UnsupportedError(
      `${label}: models split into several GGUF files are not supported; join them: llama-gguf-split --merge <first file> <new file>`,
    );
}

/** Parameters of {@link GgufFile.readPieces}. */
interface PieceParams {
  readonly tensor: GgufTensor;
  readonly unitElements: number;
  readonly visit: (piece: Float32Array, firstElement: number) => void;
}

/** Decodes a tensor piece by piece for {@link GgufFile.readPieces}. */
async function readPieces(file: FileHandle, label: string, { tensor, unitElements, visit }: PieceParams): Promise<void> {
  const { name, type } = tensor;
  let values: Float32Array | undefined;
  await readBlocks(file, label, tensor, unitElements, (blocks, firstElement, count) => {
    // The first piece is the largest, so its memory serves all of them.
    values ??= new Float32Array(count);
    const piece = values.subarray(0, count);
    type.decode(blocks, piece);
    const invalidIndex = firstNonFinite(piece);
    if (invalidIndex >= 0) throw notFinite(label, name, piece[invalidIndex]!, firstElement + invalidIndex);
    visit(piece, firstElement);
  });
}

/** Visits the integers of a tensor for {@link GgufFile.readLevels}. */
async function readLevels(file: FileHandle, label: string, tensor: GgufTensor, visit: LevelsVisitor): Promise<void> {
  const { name, type } = tensor;
  await readBlocks(file, label, tensor, 1, (blocks, firstElement) => {
    let element = firstElement;
    type.levels!.decode(blocks, (levels, scale, offset) => {
      if (!Number.isFinite(scale + offset)) throw notFinite(label, name, scale + offset, element);
      visit(levels, scale, offset, element);
      element += levels.length;
    });
  });
}

/**
 * Reads the blocks of a tensor in pieces.
 *
 * @param visit - Called with whole blocks, the index of their first element in the tensor, and the number of their elements.
 */
async function readBlocks(
  file: FileHandle,
  label: string,
  { size, start, type }: GgufTensor,
  unitElements: number,
  visit: (blocks: DataView, firstElement: number, count: number) => void,
): Promise<void> {
  const unit = leastCommonMultiple(unitElements, type.blockSize);
  const unitsPerPiece = Math.max(1, Math.floor(PIECE_ELEMENTS / unit));
  const pieceElements = Math.min(size, unitsPerPiece * unit);
  const bytesOf = (elements: number) => (elements / type.blockSize) * type.blockBytes;
  const buffer = Buffer.allocUnsafeSlow(bytesOf(pieceElements));
  for (let firstElement = 0; firstElement < size; firstElement += pieceElements) {
    const count = Math.min(pieceElements, size - firstElement);
    const bytes = buffer.subarray(0, bytesOf(count));
    await readFully(file, label, bytes, start + bytesOf(firstElement));
    visit(new DataView(bytes.buffer, bytes.byteOffset, bytes.length), firstElement, count);
  }
}

/** Returns the error for an element that is NaN or infinite. */
function notFinite(label: string, name: string, value: number, index: number): DataError {
  return new DataError(`${label}: expected tensor "${name}" to hold finite numbers, got ${value} at element ${index}`);
}

/** Returns the least common multiple of two positive integers, by Euclid's algorithm. */
function leastCommonMultiple(a: number, b: number): number {
  const divisor = (x: number, y: number): number => (y === 0 ? x : divisor(y, x % y));
  return (a / divisor(a, b)) * b;
}

/** Fills `target` with the bytes from `position` of the file. @throws DataError `E_DATA` if the file ends before. */
async function readFully(file: FileHandle, label: string, target: Uint8Array, position: number): Promise<void> {
  for (let filledBytes = 0; filledBytes < target.length;) {
    const { bytesRead } = await file.read(target, filledBytes, target.length - filledBytes, position + filledBytes);
    if (bytesRead === 0) throw new DataError(`${label}: the file ends after ${position + filledBytes} bytes, its header describes more`);
    filledBytes += bytesRead;
  }
}
