/**
 * The safetensors format: an 8-byte little-endian header length, a JSON header, then raw tensor bytes.
 *
 * @source https://github.com/huggingface/safetensors#format
 */
import { open } from "node:fs/promises";
import { DataError, UnsupportedError } from "../../../errors.ts";

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

/** Longest header that is read. */
const MAX_HEADER_BYTES = 100 * 1024 * 1024;

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
 * @throws DataError `E_DATA` when the file is torn or its header does not describe its bytes.
 * @throws UnsupportedError `E_UNSUPPORTED` for other element types.
 */
export async function readSafetensors(path: string): Promise<SafetensorsFile> {
  const file = await open(path, "r");
  try {
    const { size } = await file.stat();
    const prefix = Buffer.alloc(8);
    await file.read(prefix, 0, 8, 0);
    const headerLength = size >= 8 ? Number(prefix.readBigUInt64LE()) : Infinity;
    if (headerLength > MAX_HEADER_BYTES || 8 + headerLength > size)
      throw new DataError(`${path}: expected a safetensors file, its header does not fit in ${size} bytes`);
    const bytes = Buffer.from(new ArrayBuffer(size - 8));
    for (let done = 0; done < bytes.length;) {
      const { bytesRead } = await file.read(bytes, done, bytes.length - done, 8 + done);
      if (bytesRead === 0) throw new DataError(`${path}: the file ends after ${done + 8} of ${size} bytes`);
      done += bytesRead;
    }
    return parse(path, bytes, headerLength);
  } finally {
    await file.close();
  }
}

function parse(path: string, bytes: Buffer, headerLength: number): SafetensorsFile {
  let header: Record<string, HeaderEntry>;
  try {
    header = JSON.parse(bytes.toString("utf8", 0, headerLength)) as Record<string, HeaderEntry>;
  } catch (cause) {
    throw new DataError(`${path}: the safetensors header is not JSON`, { cause });
  }
  const { __metadata__: metadata, ...entries } = header as Record<string, HeaderEntry> & { __metadata__?: unknown };
  const tensors = new Map<string, { shape: readonly number[]; data: Float32Array }>();
  for (const [
    name,
    {
      dtype,
      shape,
      data_offsets: [start, end],
    },
  ] of Object.entries(entries)) {
    const count = shape.reduce((a, b) => a * b, 1);
    const width = { F32: 4, F16: 2, BF16: 2 }[dtype];
    if (width === undefined) throw new UnsupportedError(`${path}: tensor "${name}" has type ${dtype}; F32, F16 and BF16 can be read`);
    if (end - start !== count * width || headerLength + end > bytes.length)
      throw new DataError(`${path}: tensor "${name}" does not lie inside the file`);
    // A copy, so that views are aligned and the file's bytes can be collected.
    const raw = new Uint8Array(bytes.subarray(headerLength + start, headerLength + end)).buffer;
    tensors.set(name, { shape, data: dtype === "F32" ? new Float32Array(raw) : dtype === "BF16" ? fromBfloat16(raw) : fromFloat16(raw) });
  }
  return { tensors, metadata: (metadata ?? {}) as Record<string, string> };
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
