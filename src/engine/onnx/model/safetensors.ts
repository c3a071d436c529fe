/**
 * Reader and writer of the safetensors format: an 8-byte little-endian header length, a JSON header, then raw tensor bytes.
 *
 * @source https://github.com/huggingface/safetensors#format
 */
import { type FileHandle, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { DataError, UnsupportedError, WhetstoneError } from "../../../base/errors.ts";
import type { BlockWriter } from "../../../base/gguf/blocks.ts";
import { openRegularFile, reasonOf } from "../../../base/util/regular-file.ts";
import { isRecord, parseJson } from "../../../base/util/values.ts";
import { ELEMENT_TYPES, type TensorType } from "./element-types.ts";

/** Tensor to write: float32, row-major. */
export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** Description of a tensor in the header. */
interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Start and end, in bytes from the end of the header. */
  readonly data_offsets: readonly [number, number];
}

/** Description of a tensor in the header, with its element type. */
type Entry = HeaderEntry & { readonly type: TensorType };

/** Maximum size of a header, in bytes. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
/** Maximum number of tensors in a file; a model of 1,024 layers has 12,000. */
const MAX_TENSORS = 65_536;

/** Writes tensors to a new file, one after the other, and syncs it to disk. */
export async function writeSafetensors(
  path: string,
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const { name, shape } of tensors) {
    const end = shape.reduce((bytes, size) => bytes * size, Float32Array.BYTES_PER_ELEMENT) + offset;
    header[name] = { dtype: "F32", shape, data_offsets: [offset, end] };
    offset = end;
  }
  await writeFile(path, partsOf(header, tensors), { flag: "wx", flush: true });
}

/** Returns header and data of a file, one tensor at a time. */
function* partsOf(header: Readonly<Record<string, unknown>>, tensors: readonly NamedTensor[]): Generator<Uint8Array> {
  yield safetensorsHeader(header);
  for (const tensor of tensors) {
    const { data } = tensor;
    yield new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
}

/**
 * Returns the start of a file: the length of the header, and the header, padded with spaces to a multiple of 8 bytes.
 *
 * @param header - Type, shape and offsets of every tensor by name, and `__metadata__`.
 */
export function safetensorsHeader(header: Readonly<Record<string, unknown>>): Buffer {
  const text = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8 + Math.ceil(text.length / 8) * 8, " ");
  start.writeBigUInt64LE(BigInt(start.length - 8));
  text.copy(start, 8);
  return start;
}

/** Open weights, with tensors that are read one at a time by name, which limits memory to one additional tensor. */
export interface WeightSource {
  /** Name of the weights file or index without its directory, for error messages. */
  readonly label: string;
  shapeOf(name: string): readonly number[] | undefined;
  /**
   * Reads one tensor and converts it exactly to float32.
   *
   * @throws DataError `E_DATA` naming the tensor if it does not exist or contains NaN or an infinity, or if the file has been truncated
   *   since it was opened.
   */
  read(name: string): Promise<Float32Array>;
  /**
   * Reads one tensor like {@link read}, in pieces of at most 2^19 elements.
   *
   * @param visit - Called with each piece, which is overwritten after the call, and the index of its first element in the tensor.
   */
  readPieces(name: string, visit: (piece: Float32Array, first: number) => void): Promise<void>;
  /**
   * Reads one tensor like {@link read} into memory; in float32, without a copy.
   *
   * @param isChecked - Whether the values are not checked, because they were before.
   */
  readInto(name: string, target: Float32Array, isChecked: boolean): Promise<void>;
  /**
   * Writes a tensor that the file has in blocks to blocks, without rounding.
   *
   * @param firstBlock - Block of `to` that the tensor starts at.
   * @returns Whether the tensor was written. @default never, because the format has no blocks
   */
  readBlocks?(name: string, to: BlockWriter, firstBlock: number): Promise<boolean>;
  /** Checks one tensor like {@link read}, in pieces and without keeping it; takes about 1 s per 10⁹ elements in addition to file reads. */
  check(name: string): Promise<void>;
  close(): Promise<void>;
}

/** Open file with a checked header. */
export interface OpenSafetensors extends WeightSource {
  readonly shapes: ReadonlyMap<string, readonly number[]>;
}

/**
 * Opens a file and checks the names, shapes, types and offsets of all tensors, without reading their values.
 *
 * @throws DataError `E_DATA` if the file cannot be read or is truncated, or its header does not match its data, for example because
 *   tensors overlap or leave a hole.
 * @throws UnsupportedError `E_UNSUPPORTED` for element types other than F32, F16 and BF16.
 */
export async function openSafetensors(path: string): Promise<OpenSafetensors> {
  const file = await openRegularFile(path).catch((cause: unknown) => {
    if (WhetstoneError.isInstance(cause)) throw cause;
    throw new DataError(`${basename(path)} cannot be read: ${reasonOf(cause)}`, { cause });
  });
  const label = basename(path);
  try {
    return new SafetensorsFile(label, file, await readHeader(label, file));
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Tensors of a file by name, and the position of the data in the file. */
interface Header {
  readonly entries: ReadonlyMap<string, Entry>;
  readonly dataStart: number;
}

/** Open file, whose tensors are read at their positions. */
class SafetensorsFile implements OpenSafetensors {
  readonly label: string;
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly #file: FileHandle;
  readonly #header: Header;
  /** Free buffers. Pieces reuse them, because writing to newly allocated memory causes page faults. */
  readonly #buffers: ArrayBuffer[] = [];

  constructor(label: string, file: FileHandle, header: Header) {
    this.label = label;
    this.shapes = new Map([...header.entries].map(([name, { shape }]) => [name, shape]));
    this.#file = file;
    this.#header = header;
  }

  shapeOf(name: string): readonly number[] | undefined {
    return this.shapes.get(name);
  }

  async read(name: string): Promise<Float32Array> {
    const { type, start, end } = this.#locate(name);
    const raw = new Uint8Array(end - start);
    await readFully(this.label, this.#file, raw, start);
    requireFinite(this.label, name, { type, raw, first: 0 });
    return type.decode(raw);
  }

  async readInto(name: string, target: Float32Array, isChecked: boolean): Promise<void> {
    const { type, start } = this.#locate(name);
    if (type.width !== Float32Array.BYTES_PER_ELEMENT)
      return this.#forEachPiece(name, ({ raw, first }) => target.set(type.decode(raw), first));
    for (let position = 0; position < target.byteLength; position += DIRECT_BYTES) {
      const length = Math.min(DIRECT_BYTES, target.byteLength - position);
      const raw = new Uint8Array(target.buffer, target.byteOffset + position, length);
      await readFully(this.label, this.#file, raw, start + position);
      if (!isChecked) requireFinite(this.label, name, { type, raw, first: position / type.width });
    }
  }

  readPieces(name: string, visit: (piece: Float32Array, first: number) => void): Promise<void> {
    return this.#forEachPiece(name, ({ type, raw, first }) => visit(type.decode(raw), first));
  }

  check(name: string): Promise<void> {
    return this.#forEachPiece(name, () => {});
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** Returns the type of a tensor, and its start and end in the file. */
  #locate(name: string): { readonly type: TensorType; readonly start: number; readonly end: number } {
    const { entries, dataStart } = this.#header;
    const entry = entries.get(name);
    if (!entry) throw new DataError(`${this.label}: expected tensor "${name}", found none`);
    const [start, end] = entry.data_offsets;
    return { type: entry.type, start: dataStart + start, end: dataStart + end };
  }

  /** Reads and checks a tensor piece by piece. The bytes of a piece are overwritten after its visit. */
  async #forEachPiece(name: string, visit: (piece: Piece) => void): Promise<void> {
    const { type, start, end } = this.#locate(name);
    let next = start < end ? this.#readPiece(start, end) : null;
    try {
      for (let position = start; next !== null; position += PIECE_BYTES) {
        const raw: Uint8Array<ArrayBuffer> = await next;
        // The next piece is read during the visit.
        next = position + PIECE_BYTES < end ? this.#readPiece(position + PIECE_BYTES, end) : null;
        const piece = { type, raw, first: (position - start) / type.width };
        requireFinite(this.label, name, piece);
        visit(piece);
        this.#buffers.push(raw.buffer);
      }
    } finally {
      // If a visit failed, the next piece is still being read, and the caller closes the file.
      await next?.catch(() => {});
    }
  }

  /** Reads the bytes from a position on: a piece, or the rest of the tensor that ends at `end`. */
  async #readPiece(position: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const raw = new Uint8Array(this.#buffers.pop() ?? new ArrayBuffer(PIECE_BYTES), 0, Math.min(PIECE_BYTES, end - position));
    await readFully(this.label, this.#file, raw, position);
    return raw;
  }
}

/** Consecutive raw elements of a tensor, from index `first` on. */
interface Piece {
  readonly type: TensorType;
  readonly raw: Uint8Array;
  readonly first: number;
}

/** Number of bytes in a piece of a tensor; a multiple of every element size. */
const PIECE_BYTES = 1024 * 1024;

/** Number of bytes that are read into a tensor and checked at a time: other events of the thread run in between. */
const DIRECT_BYTES = 16 * PIECE_BYTES;

/** Checks that the elements of a piece are finite. */
function requireFinite(label: string, name: string, { type, raw, first }: Piece): void {
  const index = type.findNonFinite(raw);
  if (index < 0) return;
  const [value] = type.decode(raw.slice(index * type.width, (index + 1) * type.width));
  throw new DataError(`${label}: expected tensor "${name}" to hold finite numbers, got ${value} at element ${first + index}`);
}

/** Reads and checks the header of a file. */
async function readHeader(label: string, file: FileHandle): Promise<Header> {
  const { size: fileSize } = await file.stat();
  const prefix = Buffer.alloc(8);
  const { bytesRead } = await file.read(prefix, 0, 8, 0);
  const length = bytesRead === 8 ? Number(prefix.readBigUInt64LE()) : Infinity;
  if (length > MAX_HEADER_BYTES && 8 + length <= fileSize)
    throw new DataError(`${label}: expected a safetensors header of at most ${MAX_HEADER_BYTES} bytes, got ${length}`);
  if (8 + length > fileSize) throw new DataError(`${label}: expected a safetensors file, its header does not fit in ${fileSize} bytes`);
  const text = Buffer.alloc(length);
  await readFully(label, file, text, 8);
  const header = parseJson(text.toString("utf8"));
  if (!isRecord(header)) throw new DataError(`${label}: the safetensors header is not a JSON object`);
  const { __metadata__: _, ...descriptions } = header;
  const dataStart = 8 + length;
  const dataBytes = fileSize - dataStart;
  const tensorCount = Object.keys(descriptions).length;
  if (tensorCount > MAX_TENSORS) throw new DataError(`${label}: expected at most ${MAX_TENSORS} tensors, got ${tensorCount}`);
  const entries = new Map<string, Entry>();
  for (const [name, description] of Object.entries(descriptions)) entries.set(name, parseEntry(label, name, description, dataBytes));
  requireContiguous(label, entries, dataBytes);
  return { entries, dataStart };
}

/** Whether a value describes a tensor. Without Zod, which nothing else in a trainer's thread needs: its modules double the time of a start. */
function isHeaderEntry(value: unknown): value is HeaderEntry {
  const isSizes = (sizes: unknown): sizes is number[] =>
    Array.isArray(sizes) && sizes.every((size) => Number.isSafeInteger(size) && (size as number) >= 0);
  if (!isRecord(value)) return false;
  const { dtype, shape, data_offsets: offsets } = value;
  return typeof dtype === "string" && isSizes(shape) && isSizes(offsets) && offsets.length === 2;
}

/** Checks the description of a tensor in the header. @param dataBytes - Number of bytes after the header. */
function parseEntry(label: string, name: string, description: unknown, dataBytes: number): Entry {
  if (!isHeaderEntry(description)) throw new DataError(`${label}: the safetensors header does not describe tensor "${name}"`);
  const { dtype, shape, data_offsets: offsets } = description;
  const type = Object.hasOwn(ELEMENT_TYPES, dtype) ? ELEMENT_TYPES[dtype] : undefined;
  if (!type) throw new UnsupportedError(`${label}: tensor "${name}" has type ${dtype}; F32, F16 and BF16 can be read`);
  const bytes = shape.reduce((product, dimension) => product * dimension, type.width);
  if (offsets[1] - offsets[0] !== bytes || offsets[1] > dataBytes)
    throw new DataError(`${label}: tensor "${name}" does not lie inside the file`);
  return { ...description, type };
}

/** Checks that tensors neither overlap nor leave unused bytes, as the format requires. */
function requireContiguous(label: string, entries: ReadonlyMap<string, Entry>, bytes: number): void {
  const inOrder = [...entries].sort(([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0] || a.data_offsets[1] - b.data_offsets[1]);
  let lastEnd = 0;
  for (const [name, { data_offsets: offsets }] of inOrder) {
    const [start, end] = offsets;
    if (start !== lastEnd) {
      const problem = start < lastEnd ? "overlaps the one before it" : "leaves a hole before it";
      throw new DataError(`${label}: tensor "${name}" ${problem}: expected its data to start at byte ${lastEnd}, got ${start}`);
    }
    lastEnd = end;
  }
  if (lastEnd !== bytes) throw new DataError(`${label}: expected ${lastEnd} bytes of data, as the header describes, got ${bytes}`);
}

/** Maximum bytes per read, because one system call reads less than 2 GiB. */
const MAX_READ_BYTES = 2 ** 30;

/** Reads bytes of a file until `target` is full. @throws DataError `E_DATA` if the file ends before. */
async function readFully(label: string, file: FileHandle, target: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < target.length;) {
    const { bytesRead } = await file.read(target, done, Math.min(target.length - done, MAX_READ_BYTES), position + done);
    if (bytesRead === 0) throw new DataError(`${label}: the file ends after ${position + done} bytes, its header speaks of more`);
    done += bytesRead;
  }
}
