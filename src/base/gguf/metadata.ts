/** Metadata of a GGUF file: typed values by key, decoded from the bytes of the header when they are asked for. */
import { DataError } from "../errors.ts";
import { first } from "../util/values.ts";

/** Size in bytes and reader of a type whose values have a fixed size. */
interface FixedValue {
  readonly bytes: number;
  readonly read: (header: Buffer, offset: number) => number;
}

/** Value types in the order of their numbers in the format; null for types of variable size. Integers beyond 2^53 are rounded. */
export const VALUE_TYPES = {
  uint8: { bytes: 1, read: (header, offset) => header.readUInt8(offset) },
  int8: { bytes: 1, read: (header, offset) => header.readInt8(offset) },
  uint16: { bytes: 2, read: (header, offset) => header.readUInt16LE(offset) },
  int16: { bytes: 2, read: (header, offset) => header.readInt16LE(offset) },
  uint32: { bytes: 4, read: (header, offset) => header.readUInt32LE(offset) },
  int32: { bytes: 4, read: (header, offset) => header.readInt32LE(offset) },
  float32: { bytes: 4, read: (header, offset) => header.readFloatLE(offset) },
  bool: { bytes: 1, read: (header, offset) => (header.readUInt8(offset) === 0 ? 0 : 1) },
  string: null,
  array: null,
  uint64: { bytes: 8, read: (header, offset) => Number(header.readBigUInt64LE(offset)) },
  int64: { bytes: 8, read: (header, offset) => Number(header.readBigInt64LE(offset)) },
  float64: { bytes: 8, read: (header, offset) => header.readDoubleLE(offset) },
} as const satisfies Readonly<Record<string, FixedValue | null>>;

/** Name of a value type. */
export type ValueType = keyof typeof VALUE_TYPES;
/** Types of values with a fixed size. */
type FixedType = Exclude<ValueType, "string" | "array">;
/** Types of numbers. */
type NumericType = Exclude<FixedType, "bool">;

/** Position of a value, checked to be inside the header. Arrays are decoded when they are read. */
export interface StoredValue {
  readonly type: ValueType;
  /** Type of the elements of an array. */
  readonly elementType?: ValueType | undefined;
  /** Number of elements; 1 for a value that is not an array. */
  readonly count: number;
  /** Position of the first element in the header. */
  readonly start: number;
}

/** Elements of a stored value. */
interface Elements<T extends ValueType> extends Omit<StoredValue, "elementType"> {
  readonly type: T;
}

/** Metadata of a file. Getters return undefined for a missing key and throw `E_DATA` naming the key for a value of another type. */
export class GgufMetadata {
  readonly #label: string;
  readonly #header: Buffer;
  readonly #values: ReadonlyMap<string, StoredValue>;

  constructor(label: string, header: Buffer, values: ReadonlyMap<string, StoredValue>) {
    this.#label = label;
    this.#header = header;
    this.#values = values;
  }

  /** Name of the file for error messages. */
  get label(): string {
    return this.#label;
  }

  /** Returns all keys in the order of the file. */
  keys(): IterableIterator<string> {
    return this.#values.keys();
  }

  string(key: string): string | undefined {
    const value = this.#typed(key, "a string", "type", (type) => type === "string");
    return value === undefined ? undefined : stringsOf(this.#header, value)[0];
  }

  boolean(key: string): boolean | undefined {
    const value = this.#typed(key, "a boolean", "type", (type) => type === "bool");
    return value === undefined ? undefined : this.#header[value.start] !== 0;
  }

  /** Returns a finite number of any numeric type. */
  number(key: string): number | undefined {
    const value = this.#typed(key, "a number", "type", isNumeric);
    if (value === undefined) return undefined;
    const number = first(numbersOf(this.#header, value));
    if (!Number.isFinite(number)) throw new DataError(`${this.#label}: ${key}: expected a finite number, got ${number}`);
    return number;
  }

  /** Returns the array of strings of a key. */
  strings(key: string): string[] | undefined {
    const value = this.#typed(key, "an array of strings", "elementType", (type) => type === "string");
    return value === undefined ? undefined : stringsOf(this.#header, value);
  }

  /** Returns the array of numbers or booleans (as 0 and 1) of a key. */
  numbers(key: string): number[] | undefined {
    const value = this.#typed(key, "an array of numbers", "elementType", (type) => type === "bool" || isNumeric(type));
    return value === undefined ? undefined : numbersOf(this.#header, value);
  }

  /** Whether the value of a key is an array. */
  isArray(key: string): boolean {
    return this.#values.get(key)?.type === "array";
  }

  /** Returns the number of elements of an array, without decoding them; undefined for a missing key. */
  count(key: string): number | undefined {
    return this.#values.get(key)?.count;
  }

  /** Returns the value of a key, which must be present. @throws DataError `E_DATA` naming the key for undefined. */
  required<T>(key: string, value: T | undefined): T {
    if (value === undefined) throw new DataError(`${this.#label}: expected the metadata key ${key}, found none`);
    return value;
  }

  /**
   * Returns the elements of a value of an expected type; undefined for a missing key.
   *
   * @param expected - Noun phrase of the type for the message.
   * @param field - Checked type: of the value itself, or of the elements of an array.
   * @throws DataError `E_DATA` for another type.
   */
  #typed<T extends ValueType>(
    key: string,
    expected: string,
    field: "type" | "elementType",
    matches: (type: ValueType | undefined) => type is T,
  ): Elements<T> | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    const type = value[field];
    if (matches(type)) return { type, count: value.count, start: value.start };
    const found = value.type === "array" ? `an array of type ${value.elementType}` : `type ${value.type}`;
    throw new DataError(`${this.#label}: ${key}: expected ${expected}, got ${found}`);
  }
}

/** Whether values of a type are numbers. */
function isNumeric(type: ValueType | undefined): type is NumericType {
  return type !== undefined && type !== "string" && type !== "array" && type !== "bool";
}

/** Decodes the elements of an array of strings: each is its length in eight bytes, of which four are enough here, and its text. */
function stringsOf(header: Buffer, { start, count }: Elements<"string">): string[] {
  const strings: string[] = [];
  let offset = start;
  for (let index = 0; index < count; index++) {
    const length = header.readUInt32LE(offset);
    strings.push(header.toString("utf8", offset + 8, offset + 8 + length));
    offset += 8 + length;
  }
  return strings;
}

/** Decodes the elements of an array of values with a fixed size. */
function numbersOf(header: Buffer, { type, start, count }: Elements<FixedType>): number[] {
  const { bytes, read } = VALUE_TYPES[type];
  return Array.from({ length: count }, (_, index) => read(header, start + index * bytes));
}
