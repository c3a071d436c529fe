/** Reads large JSON files as bytes, without the objects and strings that `JSON.parse` creates. `scan-model.ts` uses it. */

const [QUOTE, BACKSLASH, COMMA, COLON, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x22, 0x5c, 0x2c, 0x3a, 0x7b, 0x7d, 0x5b, 0x5d];
/** Characters of the escape sequences of two bytes: `\n` is a line feed. */
const ESCAPES: ReadonlyMap<number, number> = new Map(
  Array.from('"\\/bfnrt').map((name, index) => [name.charCodeAt(0), '"\\/\b\f\n\r\t'.charCodeAt(index)]),
);

/** Max levels of nested values that {@link JsonScanner.skip} passes. */
const MAX_DEPTH = 128;

/** Error for a text that is not JSON, with the position in bytes. */
export class JsonSyntaxError extends Error {
  readonly position: number;

  constructor(position: number) {
    super(`expected JSON, it does not parse at position ${position}`);
    this.position = position;
  }
}

/** Reader of a JSON text with a current position. Each method reads a value there, and leaves the position after the value. */
export class JsonScanner {
  readonly bytes: Uint8Array;
  /** Position in bytes. */
  position: number;

  constructor(bytes: Uint8Array, position = 0) {
    this.bytes = bytes;
    this.position = position;
  }

  /** @throws JsonSyntaxError always. */
  fail(): never {
    throw new JsonSyntaxError(this.position);
  }

  /** Skips white space and returns the next byte, -1 at the end. */
  peek(): number {
    const { bytes } = this;
    while (this.position < bytes.length) {
      const byte = bytes[this.position]!;
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
      this.position++;
    }
    return -1;
  }

  /** Skips white space and one expected byte. */
  #expect(byte: number): void {
    if (this.peek() !== byte) this.fail();
    this.position++;
  }

  /** Reads an object: calls `entry` for each key, which must read the value. A key of more than about 1,000 bytes is passed as "". */
  object(entry: (key: string) => void): void {
    const key = new Uint8Array(1024);
    this.#members(OPEN, CLOSE, () => {
      const start = this.position;
      const end = this.string(key, 0);
      // No caller looks for a key that is longer than the buffer.
      const name = end < 0 ? "" : Buffer.from(key.buffer, 0, end).toString();
      if (end < 0) {
        this.position = start;
        this.skip();
      }
      this.#expect(COLON);
      entry(name);
    });
  }

  /** Reads an array: calls `element` for each element, which must read it. */
  array(element: () => void): void {
    this.#members(OPEN_LIST, CLOSE_LIST, element);
  }

  /**
   * Reads an object without making strings of its keys: writes the UTF-8 of each key to the array `target()` at the position `start()`,
   * both asked anew for each key. Then calls `entry` with the end of the key in that array; it must read the value.
   */
  entries(target: () => Uint8Array, start: () => number, entry: (end: number) => void): void {
    this.#members(OPEN, CLOSE, () => {
      const end = this.string(target(), start());
      if (end < 0) this.fail();
      this.#expect(COLON);
      entry(end);
    });
  }

  /** Reads the members of an object or array, each with `member`, and the commas between them. */
  #members(open: number, close: number, member: () => void): void {
    this.#expect(open);
    if (this.peek() === close) {
      this.position++;
      return;
    }
    for (;;) {
      member();
      const byte = this.peek();
      this.position++;
      if (byte === close) return;
      if (byte !== COMMA) {
        this.position--;
        this.fail();
      }
    }
  }

  /**
   * Reads a string and writes its UTF-8 to `target`.
   *
   * @param start - Position of the string's first byte in `target`.
   * @returns the end in `target`; -1 if the string may not fit, because each character needs 4 free bytes. The position of the scanner is
   *   then anywhere in the string.
   */
  string(target: Uint8Array, start: number): number {
    if (this.peek() !== QUOTE) this.fail();
    const { bytes } = this;
    const maxEnd = target.length - 4;
    let end = start;
    for (let at = this.position + 1; at < bytes.length;) {
      if (end > maxEnd) return -1;
      const byte = bytes[at]!;
      if (byte === QUOTE) {
        this.position = at + 1;
        return end;
      }
      if (byte === BACKSLASH) {
        this.position = at;
        end = this.#escape(target, end);
        at = this.position;
      } else {
        if (byte < 0x20) {
          this.position = at;
          this.fail();
        }
        target[end++] = byte;
        at++;
      }
    }
    return this.fail();
  }

  /** Reads an escape sequence, also a surrogate pair of two; returns the end of its UTF-8 in `target`. */
  #escape(target: Uint8Array, end: number): number {
    const kind = this.bytes[this.position + 1];
    const escapedByte = ESCAPES.get(kind ?? -1);
    if (escapedByte !== undefined) {
      this.position += 2;
      target[end] = escapedByte;
      return end + 1;
    }
    if (kind !== 0x75) this.fail();
    let code = this.#unit();
    if (code >= 0xd800 && code < 0xdc00 && this.bytes[this.position] === BACKSLASH && this.bytes[this.position + 1] === 0x75) {
      const lowStart = this.position;
      const low = this.#unit();
      if (low >= 0xdc00 && low < 0xe000) code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      else this.position = lowStart;
    }
    // A lone surrogate has no UTF-8 and becomes the replacement character.
    return end + writeCodePoint(target, end, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
  }

  /** Reads `\uXXXX`; returns the UTF-16 unit. */
  #unit(): number {
    let code = 0;
    for (let digit = 2; digit < 6; digit++) {
      const value = Number.parseInt(String.fromCharCode(this.bytes[this.position + digit] ?? 0), 16);
      if (Number.isNaN(value)) this.fail();
      code = code * 16 + value;
    }
    this.position += 6;
    return code;
  }

  /** Reads a non-negative integer below 2^31; returns -1, without moving, for any other value. */
  integer(): number {
    this.peek();
    let value = 0;
    let at = this.position;
    for (; at < this.bytes.length; at++) {
      const digit = this.bytes[at]! - 0x30;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
      if (value > 0x7fff_ffff) return -1;
    }
    const next = this.bytes[at];
    if (at === this.position || next === 0x2e || next === 0x65 || next === 0x45) return -1;
    this.position = at;
    return value;
  }

  /** Skips a value. Checks its nesting, not its scalars. */
  skip(): void {
    const { bytes } = this;
    let depth = 0;
    do {
      const byte = this.peek();
      if (byte < 0) this.fail();
      if (byte === OPEN || byte === OPEN_LIST) {
        depth++;
        if (depth > MAX_DEPTH) this.fail();
        this.position++;
      } else if (byte === CLOSE || byte === CLOSE_LIST) {
        depth--;
        if (depth < 0) this.fail();
        this.position++;
      } else if (byte === QUOTE) this.#skipString();
      else if (byte === COMMA || byte === COLON) {
        if (depth === 0) this.fail();
        this.position++;
      } else {
        const start = this.position;
        while (this.position < bytes.length && isScalarByte(bytes[this.position]!)) this.position++;
        if (this.position === start) this.fail();
      }
    } while (depth > 0);
  }

  /** Skips a string, from its opening quote. */
  #skipString(): void {
    const { bytes } = this;
    for (let at = this.position + 1; at < bytes.length; at++) {
      const byte = bytes[at]!;
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) {
        this.position = at + 1;
        return;
      }
    }
    this.fail();
  }
}

/** Whether a byte can be part of a number, `true`, `false` or `null`: digits, lower-case letters, `-`, `+`, `.` and `E`. */
function isScalarByte(byte: number): boolean {
  return (
    (byte >= 0x30 && byte <= 0x39) || (byte >= 0x61 && byte <= 0x7a) || byte === 0x2d || byte === 0x2b || byte === 0x2e || byte === 0x45
  );
}

/** Writes the UTF-8 of a code point; returns its length. */
function writeCodePoint(target: Uint8Array, at: number, code: number): number {
  if (code < 0x80) {
    target[at] = code;
    return 1;
  }
  const length = code < 0x800 ? 2 : code < 0x1_0000 ? 3 : 4;
  for (let index = length - 1; index > 0; index--) target[at + index] = 0x80 | ((code >> (6 * (length - 1 - index))) & 0x3f);
  // The bits of the first byte that say the length, for lengths of 2 to 4.
  const lengthMark = [0, 0, 0xc0, 0xe0, 0xf0][length]!;
  target[at] = lengthMark | (code >> (6 * (length - 1)));
  return length;
}
