/**
 * Header of a GGUF file, versions 2 and 3, little-endian: metadata, and a table of tensors. Its parser checks structure and bounds only;
 * values of metadata are decoded when they are asked for.
 *
 * @source https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
import { DataError, UnsupportedError } from "../errors.ts";
import { HeaderReader } from "./header-reader.ts";
import { GgufMetadata, type StoredValue, VALUE_TYPES, type ValueType } from "./metadata.ts";
import { elementTypeOf, type ElementType } from "./element-types.ts";
import { first } from "../util/values.ts";

/** Tensor in the table of a file. */
export interface GgufTensor {
  readonly name: string;
  /** Shape, row-major as in Hugging Face layout; the file has it in reverse order. */
  readonly shape: readonly number[];
  readonly type: ElementType;
  /** Number of elements. */
  readonly size: number;
  /** Position of the data in the file, in bytes. */
  readonly start: number;
}

/** Parsed header. */
export interface GgufHeader {
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

/** Names of the value types by their number. */
const TYPE_NAMES = Object.keys(VALUE_TYPES) as readonly ValueType[];

/** "GGUF" as a little-endian number. */
const MAGIC = 0x46554747;
const DEFAULT_ALIGNMENT = 32;
/** Maximum number of metadata keys; published files have less than 100. */
const MAX_KEYS = 4096;
/** Maximum number of tensors; a model of 1,024 layers has 12,000. */
const MAX_TENSORS = 65_536;
/** Maximum length of a key or a tensor's name in bytes; the format allows keys of 65,535. */
const MAX_NAME_BYTES = 1024;
/** Maximum number of dimensions in ggml. */
const MAX_DIMENSIONS = 4;
/** Maximum alignment of tensor data in bytes. */
const MAX_ALIGNMENT = 2 ** 20;
/** Maximum depth of arrays inside arrays. */
const MAX_DEPTH = 4;

/**
 * Parses a header. All counts, lengths and offsets are checked against the size of the file.
 *
 * @param bytes - First bytes of the file.
 * @param fileBytes - Size of the file.
 * @param label - Name of the file for error messages.
 * @throws DataError `E_DATA` naming the field, UnsupportedError `E_UNSUPPORTED` for another version or byte order.
 * @throws HeaderIncomplete if the header continues after `bytes`.
 */
export function parseHeader(bytes: Buffer, fileBytes: number, label: string): GgufHeader {
  const reader = new HeaderReader(bytes, fileBytes, label);
  requireVersion(reader);
  const tensorCount = reader.count("tensor_count", MAX_TENSORS);
  const keyCount = reader.count("metadata_kv_count", MAX_KEYS);
  const values = new Map<string, StoredValue>();
  for (let index = 0; index < keyCount; index++) {
    const key = reader.string(`metadata key ${index}`, MAX_NAME_BYTES);
    if (values.has(key)) throw new DataError(`${label}: metadata key ${JSON.stringify(key)} occurs twice`);
    values.set(key, readValue(reader, key));
  }
  const metadata = new GgufMetadata(label, bytes, values);
  return { metadata, tensors: readTensors(reader, tensorCount, alignmentOf(metadata)) };
}

/** Reads magic and version, and requires a supported file. */
function requireVersion(reader: HeaderReader): void {
  const { label } = reader;
  const magic = reader.uint32("magic");
  if (magic !== MAGIC)
    throw new DataError(
      `${label}: expected a GGUF file, which begins with "GGUF"; got the bytes ${reader.bytes.subarray(0, 4).toString("hex")}`,
    );
  const version = reader.uint32("version");
  if (version !== 0 && (version & 0xffff) === 0)
    throw new UnsupportedError(`${label}: big-endian GGUF files are not supported; convert the file to little-endian`);
  if (version !== 2 && version !== 3)
    throw new UnsupportedError(`${label}: expected GGUF version 2 or 3, got ${version}; convert the model again`);
}

/** Reads the type of a value, and skips the value. */
function readValue(reader: HeaderReader, key: string): StoredValue {
  const field = `value of ${key}`;
  const type = readType(reader, field);
  if (type === "array") return { type, ...readArray(reader, field, 1) };
  const start = reader.position;
  if (type === "string") reader.skipStrings(1, field);
  else reader.skip(VALUE_TYPES[type].bytes, field);
  return { type, count: 1, start };
}

/** Reads type and length of an array, and skips its elements. @param depth - 1 for an array that is not inside of another. */
function readArray(reader: HeaderReader, field: string, depth: number): Omit<StoredValue, "type"> {
  if (depth > MAX_DEPTH) throw new DataError(`${reader.label}: ${field}: expected arrays at most ${MAX_DEPTH} deep`);
  const elementType = readType(reader, field);
  // Every element takes at least one byte of the file, which bounds the loops below.
  const count = reader.count(`array length of ${field}`, 2 ** 32);
  const start = reader.position;
  if (elementType === "string") reader.skipStrings(count, field);
  else if (elementType === "array") for (let index = 0; index < count; index++) readArray(reader, field, depth + 1);
  else reader.skip(count * VALUE_TYPES[elementType].bytes, field);
  return { elementType, count, start };
}

/** Reads the number of a value type. */
function readType(reader: HeaderReader, field: string): ValueType {
  const number = reader.uint32(`type of ${field}`);
  const type = TYPE_NAMES[number];
  if (type === undefined)
    throw new DataError(`${reader.label}: type of ${field}: expected a number from 0 to ${TYPE_NAMES.length - 1}, got ${number}`);
  return type;
}

/** Returns the alignment of the tensors' data in bytes. */
function alignmentOf(metadata: GgufMetadata): number {
  const alignment = metadata.number("general.alignment") ?? DEFAULT_ALIGNMENT;
  if (!Number.isInteger(alignment) || alignment < 8 || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) !== 0)
    throw new DataError(`${metadata.label}: general.alignment: expected a power of 2 from 8 to ${MAX_ALIGNMENT}, got ${alignment}`);
  return alignment;
}

/** Reads the table of tensors. As llama.cpp does, requires tensors to follow each other in the order of the table, with padding only. */
function readTensors(reader: HeaderReader, count: number, alignment: number): Map<string, GgufTensor> {
  const { label, fileBytes } = reader;
  const infos = Array.from({ length: count }, (_, index) => readTensorInfo(reader, index));
  const aligned = (position: number) => Math.ceil(position / alignment) * alignment;
  const dataStart = aligned(reader.position);
  const tensors = new Map<string, GgufTensor>();
  /** End of the last tensor's data, relative to `dataStart`, in bytes. */
  let end = 0;
  for (const { offset, ...info } of infos) {
    const field = `tensor ${JSON.stringify(info.name)}`;
    if (tensors.has(info.name)) throw new DataError(`${label}: ${field} occurs twice`);
    const expectedOffset = aligned(end);
    if (offset !== BigInt(expectedOffset))
      throw new DataError(`${label}: ${field}: expected offset ${expectedOffset}, directly behind the tensor before it, got ${offset}`);
    end = expectedOffset + (info.size / info.type.blockSize) * info.type.blockBytes;
    if (dataStart + end > fileBytes)
      throw new DataError(`${label}: ${field}: its data ends at byte ${dataStart + end}, the file has only ${fileBytes}: it is truncated`);
    tensors.set(info.name, { ...info, start: dataStart + expectedOffset });
  }
  return tensors;
}

/** Reads an entry of the table of tensors. `offset` is relative to the start of the tensors' data. */
function readTensorInfo(reader: HeaderReader, index: number): Omit<GgufTensor, "start"> & { readonly offset: bigint } {
  const { label } = reader;
  const name = reader.string(`name of tensor ${index}`, MAX_NAME_BYTES);
  const field = `tensor ${JSON.stringify(name)}`;
  const dimensions = reader.uint32(`dimensions of ${field}`);
  if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
    throw new DataError(`${label}: ${field}: expected 1 to ${MAX_DIMENSIONS} dimensions, got ${dimensions}`);
  // The file has the shape in reverse order, so the first size is the length of a row.
  const sizes = Array.from({ length: dimensions }, () => reader.count(`shape of ${field}`, 2 ** 40));
  const size = sizes.reduce((product, each) => product * each, 1);
  if (size < 1 || !Number.isSafeInteger(size))
    throw new DataError(`${label}: ${field}: expected a shape of at least one element, got [${sizes.join(", ")}]`);
  const type = elementTypeOf(reader.uint32(`type of ${field}`), `${label}: ${field}`);
  if (first(sizes) % type.blockSize !== 0)
    throw new DataError(
      `${label}: ${field}: expected rows of whole blocks of ${type.blockSize} elements in type ${type.name}, got rows of ${sizes[0]}`,
    );
  const offset = reader.bytes.readBigUInt64LE(reader.skip(8, `offset of ${field}`));
  return { name, shape: sizes.toReversed(), type, size, offset };
}
