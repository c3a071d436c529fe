/** Reader of the little-endian values in the header of a GGUF file, with bounds. */
import { DataError } from "../errors.ts";

/** Thrown by {@link HeaderReader} if the header is longer than the bytes that have been read from the file so far. */
export class HeaderIncomplete extends Error {}

/** Cursor over the first bytes of a file. */
export class HeaderReader {
  readonly bytes: Buffer;
  /** Size of the file. */
  readonly fileBytes: number;
  /** Name of the file for error messages. */
  readonly label: string;
  #position = 0;

  /**
   * @param bytes - First bytes of the file.
   * @param fileBytes - Size of the file.
   * @param label - Name of the file for error messages.
   */
  constructor(bytes: Buffer, fileBytes: number, label: string) {
    this.bytes = bytes;
    this.fileBytes = fileBytes;
    this.label = label;
  }

  /** Position of the next byte. */
  get position(): number {
    return this.#position;
  }

  /**
   * Skips the next `count` bytes and returns the position of the first of them.
   *
   * @param field - Names the value in error messages.
   * @throws DataError `E_DATA` if the file is shorter.
   * @throws HeaderIncomplete if the bytes have not been read yet.
   */
  skip(count: number, field: string): number {
    const start = this.#position;
    if (start + count > this.fileBytes)
      throw new DataError(`${this.label}: ${field}: expected ${count} bytes at byte ${start}, the file has only ${this.fileBytes}`);
    if (start + count > this.bytes.length) throw new HeaderIncomplete();
    this.#position = start + count;
    return start;
  }

  /** Reads an unsigned 32-bit integer. */
  uint32(field: string): number {
    return this.bytes.readUInt32LE(this.skip(4, field));
  }

  /**
   * Reads an unsigned 64-bit count.
   *
   * @param max - Maximum value.
   * @throws DataError `E_DATA` naming the field for a larger value.
   */
  count(field: string, max: number): number {
    const value = this.bytes.readBigUInt64LE(this.skip(8, field));
    if (value > BigInt(max)) throw new DataError(`${this.label}: ${field}: expected at most ${max}, got ${value}`);
    return Number(value);
  }

  /** Reads a string: its length in bytes, then UTF-8. @param maxBytes - Maximum length. */
  string(field: string, maxBytes: number): string {
    const length = this.count(`length of ${field}`, maxBytes);
    const start = this.skip(length, field);
    return this.bytes.toString("utf8", start, start + length);
  }

  /** Skips `count` strings. The bounds of {@link skip} hold for each of them. */
  skipStrings(count: number, field: string): void {
    const { bytes } = this;
    for (let index = 0; index < count; index++) {
      const lengthStart = this.skip(8, field);
      // The upper half of a valid length is 0: no header has 4 GiB.
      if (bytes.readUInt32LE(lengthStart + 4) !== 0)
        throw new DataError(`${this.label}: ${field}: element ${index} has a length of 4 GiB or more`);
      this.skip(bytes.readUInt32LE(lengthStart), field);
    }
  }
}
