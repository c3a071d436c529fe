/**
 * Writer of GGUF, version 3: a header with metadata and a table of tensors, then the data of the tensors, each aligned to 32 bytes.
 *
 * @source https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
import { open } from "node:fs/promises";
import { InternalError } from "../../base/errors.ts";

/** Value of a metadata key. */
export type MetadataValue =
  | { readonly type: "uint32" | "float32"; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "int32s" | "float32s"; readonly value: readonly number[] }
  | { readonly type: "bools"; readonly value: readonly boolean[] }
  | { readonly type: "strings"; readonly value: readonly string[] };

/** Metadata by key, in order. */
export type Metadata = ReadonlyMap<string, MetadataValue>;

/** Tensor of a file. */
export interface WrittenTensor {
  readonly name: string;
  /** Shape, row-major; the file has it in reverse order. */
  readonly shape: readonly number[];
  /** Number of the element type in ggml. */
  readonly type: number;
  /** Encoded size in bytes. */
  readonly bytes: number;
  /** Returns the encoded elements; called once, when the tensor is written. */
  readonly data: () => Promise<Uint8Array> | Uint8Array;
}

/** Version of the format. */
const VERSION = 3;
/** Alignment of tensor data in bytes, the default of the format. */
const ALIGNMENT = 32;
/** Numbers of the value types in the format. */
const TYPES = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 } as const;

/**
 * Writes a new file and syncs it to disk. Reads one tensor at a time.
 *
 * @param path - Path of the file, which must not exist.
 * @param content - Metadata and tensors.
 * @param signal - Aborts between two tensors.
 */
export async function writeGguf(
  path: string,
  { metadata, tensors }: { readonly metadata: Metadata; readonly tensors: readonly WrittenTensor[] },
  signal?: AbortSignal,
): Promise<void> {
  const file = await open(path, "wx");
  try {
    await file.writeFile(header(metadata, tensors));
    for (const { name, bytes, data } of tensors) {
      signal?.throwIfAborted();
      const encoded = await data();
      if (encoded.byteLength !== bytes) throw new InternalError(`Tensor ${name} has ${encoded.byteLength} bytes instead of ${bytes}`);
      await file.writeFile(encoded);
      await file.writeFile(new Uint8Array(aligned(bytes) - bytes));
    }
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Rounds a size up to the alignment. */
function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

/** Encodes the header, padded to the start of the tensors' data. Offsets of tensors are relative to that start. */
function header(metadata: Metadata, tensors: readonly WrittenTensor[]): Buffer {
  const parts = [Buffer.from("GGUF"), uint32(VERSION), uint64(tensors.length), uint64(metadata.size)];
  for (const [key, value] of metadata) parts.push(string(key), ...encodedValue(value));
  let offset = 0;
  for (const { name, shape, type, bytes } of tensors) {
    parts.push(string(name), uint32(shape.length), ...shape.toReversed().map(uint64), uint32(type), uint64(offset));
    offset += aligned(bytes);
  }
  const start = Buffer.concat(parts);
  return Buffer.concat([start, Buffer.alloc(aligned(start.length) - start.length)]);
}

/** Encodes a value: the number of its type, then the value; of an array, also the type and the number of its elements. */
function encodedValue(metadata: MetadataValue): Buffer[] {
  const array = (type: number, items: readonly Buffer[]) => [uint32(TYPES.array), uint32(type), uint64(items.length), ...items];
  switch (metadata.type) {
    case "uint32":
      return [uint32(TYPES.uint32), uint32(metadata.value)];
    case "float32":
      return [uint32(TYPES.float32), float32(metadata.value)];
    case "bool":
      return [uint32(TYPES.bool), bool(metadata.value)];
    case "string":
      return [uint32(TYPES.string), string(metadata.value)];
    case "int32s":
      return array(TYPES.int32, metadata.value.map(int32));
    case "float32s":
      return array(TYPES.float32, metadata.value.map(float32));
    case "bools":
      return array(TYPES.bool, metadata.value.map(bool));
    case "strings":
      return array(TYPES.string, metadata.value.map(string));
  }
}

function bool(value: boolean): Buffer {
  return Buffer.of(value ? 1 : 0);
}

function uint32(value: number): Buffer {
  return encoded(4, (buffer) => buffer.writeUInt32LE(value));
}

function int32(value: number): Buffer {
  return encoded(4, (buffer) => buffer.writeInt32LE(value));
}

function uint64(value: number): Buffer {
  return encoded(8, (buffer) => buffer.writeBigUInt64LE(BigInt(value)));
}

function float32(value: number): Buffer {
  return encoded(4, (buffer) => buffer.writeFloatLE(value));
}

/** Returns a buffer of `bytes` bytes that `write` fills. */
function encoded(bytes: number, write: (buffer: Buffer) => number): Buffer {
  const buffer = Buffer.alloc(bytes);
  write(buffer);
  return buffer;
}

/** Encodes a string: its length in bytes, then UTF-8. */
function string(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([uint64(bytes.length), bytes]);
}
