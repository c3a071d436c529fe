/**
 * The safetensors format: an 8-byte little-endian header length, a JSON header, then raw tensor bytes.
 *
 * @source https://github.com/huggingface/safetensors#format
 */
import { type FileHandle, open } from "node:fs/promises";
import { DataError, UnsupportedError, WhetstoneError } from "../../../errors.ts";
import { openRegularFile } from "../../../util/regular-file.ts";

/** A tensor to write: float32, row-major. */
export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** Longest header that is read, in bytes. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;
/** Most tensors in a file; a model of 1,024 layers has 12,000. */
const MAX_TENSORS = 65_536;

/** Writes tensors to a new file and syncs it to disk. */
export async function writeSafetensors(
  path: string,
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const { name, shape, data } of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(text.length / 8) * 8, " ");
  text.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const file = await open(path, "wx");
  try {
    await file.writev([length, padded, ...tensors.map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength))]);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Tensors of a file by name, converted to float32. */
export interface SafetensorsFile {
  readonly tensors: ReadonlyMap<string, { readonly shape: readonly number[]; readonly data: Float32Array }>;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Reads a whole file. F32, F16 and BF16 are converted exactly to float32.
 *
 * @throws DataError `E_DATA` when the file cannot be read, is torn, or its header does not describe its bytes.
 * @throws UnsupportedError `E_UNSUPPORTED` for other element types.
 */
export async function readSafetensors(path: string): Promise<SafetensorsFile> {
  const file = await openSafetensors(path);
  try {
    const tensors = new Map<string, { shape: readonly number[]; data: Float32Array }>();
    for (const [name, shape] of file.shapes) tensors.set(name, { shape, data: await file.read(name) });
    return { tensors, metadata: file.metadata };
  } finally {
    await file.close();
  }
}

/** A file whose header was read and checked; its tensors are read one by one, so that no more than one is held twice. */
export interface OpenSafetensors {
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly metadata: Readonly<Record<string, string>>;
  /**
   * The numbers of one tensor, converted exactly to float32.
   *
   * @throws DataError `E_DATA` when there is no such tensor, or the file has become shorter.
   */
  read(name: string): Promise<Float32Array>;
  close(): Promise<void>;
}

/**
 * Opens a file and checks the names, shapes, types and places of all its tensors; reads none of their numbers.
 *
 * @throws DataError `E_DATA` when the file cannot be read or is torn, or its header does not describe its bytes.
 * @throws UnsupportedError `E_UNSUPPORTED` for element types other than F32, F16 and BF16.
 */
export async function openSafetensors(path: string): Promise<OpenSafetensors> {
  const file = await openRegularFile(path).catch((cause: unknown) => {
    if (WhetstoneError.isInstance(cause)) throw cause;
    throw new DataError(`${path} cannot be read: ${(cause as Error).message}`, { cause });
  });
  try {
    const { entries, metadata, dataStart } = await readHeader(path, file);
    return {
      shapes: new Map([...entries].map(([name, { shape }]) => [name, shape])),
      metadata,
      async read(name) {
        const entry = entries.get(name);
        if (!entry) throw new DataError(`${path}: expected tensor "${name}", found none`);
        const [start, end] = entry.data_offsets;
        const raw = new ArrayBuffer(end - start);
        await readFully(path, file, new Uint8Array(raw), dataStart + start);
        return DECODERS[entry.dtype]!.decode(raw);
      },
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Bytes per element of the types that can be read, and how. */
const DECODERS: Readonly<Record<string, { readonly width: number; readonly decode: (raw: ArrayBuffer) => Float32Array }>> = {
  F32: { width: 4, decode: (raw) => new Float32Array(raw) },
  F16: { width: 2, decode: fromFloat16 },
  BF16: { width: 2, decode: fromBfloat16 },
};

async function readHeader(
  path: string,
  file: FileHandle,
): Promise<{ entries: Map<string, HeaderEntry>; metadata: Record<string, string>; dataStart: number }> {
  const { size } = await file.stat();
  const prefix = Buffer.alloc(8);
  const { bytesRead } = await file.read(prefix, 0, 8, 0);
  const length = bytesRead === 8 ? Number(prefix.readBigUInt64LE()) : Infinity;
  if (length > MAX_HEADER_BYTES && 8 + length <= size)
    throw new DataError(`${path}: expected a safetensors header of at most ${MAX_HEADER_BYTES} bytes, got ${length}`);
  if (8 + length > size) throw new DataError(`${path}: expected a safetensors file, its header does not fit in ${size} bytes`);
  const text = Buffer.alloc(length);
  await readFully(path, file, text, 8);
  const header = parseObject(text.toString("utf8"));
  if (header === null) throw new DataError(`${path}: the safetensors header is not a JSON object`);
  const { __metadata__: metadata, ...described } = header;
  const dataStart = 8 + length;
  const entries = new Map<string, HeaderEntry>();
  const all = Object.entries(described);
  if (all.length > MAX_TENSORS) throw new DataError(`${path}: expected at most ${MAX_TENSORS} tensors, got ${all.length}`);
  for (const [name, entry] of all) {
    if (!isEntry(entry)) throw new DataError(`${path}: the safetensors header does not describe tensor "${name}"`);
    const { dtype, shape, data_offsets: offsets } = entry;
    const decoder = Object.hasOwn(DECODERS, dtype) ? DECODERS[dtype] : undefined;
    if (!decoder) throw new UnsupportedError(`${path}: tensor "${name}" has type ${dtype}; F32, F16 and BF16 can be read`);
    const bytes = shape.reduce((a, b) => a * b, decoder.width);
    if (offsets[0] < 0 || offsets[1] - offsets[0] !== bytes || dataStart + offsets[1] > size)
      throw new DataError(`${path}: tensor "${name}" does not lie inside the file`);
    entries.set(name, entry);
  }
  return { entries, metadata: (metadata ?? {}) as Record<string, string>, dataStart };
}

/** One system call reads less than 2 GiB. */
const MAX_READ_BYTES = 2 ** 30;

async function readFully(path: string, file: FileHandle, target: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < target.length;) {
    const { bytesRead } = await file.read(target, done, Math.min(target.length - done, MAX_READ_BYTES), position + done);
    if (bytesRead === 0) throw new DataError(`${path}: the file ends after ${position + done} bytes, its header speaks of more`);
    done += bytesRead;
  }
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown> | null) : null;
  } catch {
    return null;
  }
}

function isEntry(value: unknown): value is HeaderEntry {
  const { dtype, shape, data_offsets: offsets } = (value ?? {}) as Partial<Record<keyof HeaderEntry, unknown>>;
  const isNumbers = (list: unknown): list is number[] => Array.isArray(list) && list.every((item) => Number.isSafeInteger(item));
  return typeof dtype === "string" && isNumbers(shape) && isNumbers(offsets) && offsets.length === 2;
}

function fromBfloat16(raw: ArrayBuffer): Float32Array {
  return new Float32Array(Uint32Array.from(new Uint16Array(raw), (bits) => bits << 16).buffer);
}

/** IEEE 754 half precision: 1 sign, 5 exponent and 10 fraction bits. */
function fromFloat16(raw: ArrayBuffer): Float32Array {
  return Float32Array.from(new Uint16Array(raw), (bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}
