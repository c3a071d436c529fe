/** Reads large JSON files as bytes, without the objects and strings that `JSON.parse` creates. */

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
  at: number;

  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  /** @throws JsonSyntaxError always. */
  fail(): never {
    throw new JsonSyntaxError(this.at);
  }

  /** Skips white space and returns the next byte, -1 at the end. */
  peek(): number {
    const { bytes } = this;
    while (this.at < bytes.length) {
      const byte = bytes[this.at]!;
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
      this.at++;
    }
    return -1;
  }

  /** Skips white space and one expected byte. */
  #expect(byte: number): void {
    if (this.peek() !== byte) this.fail();
    this.at++;
  }

  /** Reads an object: calls `entry` for each key, which must read the value. A key of more than about 1,000 bytes is passed as "". */
  object(entry: (key: string) => void): void {
    const key = new Uint8Array(1024);
    this.#members(OPEN, CLOSE, () => {
      const start = this.at;
      const end = this.string(key, 0);
      // No caller looks for a key that is longer than the buffer.
      const name = end < 0 ? "" : Buffer.from(key.buffer, 0, end).toString();
      if (end < 0) {
        this.at = start;
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
   * Reads an object without making strings of its keys: writes the UTF-8 of each key to `target()` at `from()`, which are asked anew for
   * each key. Then calls `entry` with the end of the key there; it must read the value.
   */
  entries(target: () => Uint8Array, from: () => number, entry: (end: number) => void): void {
    this.#members(OPEN, CLOSE, () => {
      const end = this.string(target(), from());
      if (end < 0) this.fail();
      this.#expect(COLON);
      entry(end);
    });
  }

  /** Reads the members of an object or array, each with `member`, and the commas between them. */
  #members(open: number, close: number, member: () => void): void {
    this.#expect(open);
    if (this.peek() === close) {
      this.at++;
      return;
    }
    for (;;) {
      member();
      const byte = this.peek();
      this.at++;
      if (byte === close) return;
      if (byte !== COMMA) {
        this.at--;
        this.fail();
      }
    }
  }

  /**
   * Reads a string and writes its UTF-8 to `target`.
   *
   * @param from - Position of the string's first byte in `target`.
   * @returns the end in `target`; -1 if the string may not fit, because each character needs 4 free bytes. The position is then undefined.
   */
  string(target: Uint8Array, from: number): number {
    if (this.peek() !== QUOTE) this.fail();
    const { bytes } = this;
    const maxEnd = target.length - 4;
    let end = from;
    for (let at = this.at + 1; at < bytes.length;) {
      if (end > maxEnd) return -1;
      const byte = bytes[at]!;
      if (byte === QUOTE) {
        this.at = at + 1;
        return end;
      }
      if (byte === BACKSLASH) {
        this.at = at;
        end = this.#escape(target, end);
        at = this.at;
      } else {
        if (byte < 0x20) {
          this.at = at;
          this.fail();
        }
        target[end++] = byte;
        at++;
      }
    }
    return this.fail();
  }

  /** Reads an escape sequence; returns the end of its UTF-8 in `target`. */
  #escape(target: Uint8Array, end: number): number {
    const kind = this.bytes[this.at + 1];
    const plain = ESCAPES.get(kind ?? -1);
    if (plain !== undefined) {
      this.at += 2;
      target[end] = plain;
      return end + 1;
    }
    if (kind !== 0x75) this.fail();
    let code = this.#unit();
    if (code >= 0xd800 && code < 0xdc00 && this.bytes[this.at] === BACKSLASH && this.bytes[this.at + 1] === 0x75) {
      const before = this.at;
      const low = this.#unit();
      if (low >= 0xdc00 && low < 0xe000) code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      else this.at = before;
    }
    return end + writeCodePoint(target, end, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
  }

  /** Reads `\uXXXX`; returns the UTF-16 unit. */
  #unit(): number {
    let code = 0;
    for (let digit = 2; digit < 6; digit++) {
      const value = Number.parseInt(String.fromCharCode(this.bytes[this.at + digit] ?? 0), 16);
      if (Number.isNaN(value)) this.fail();
      code = code * 16 + value;
    }
    this.at += 6;
    return code;
  }

  /** Reads a non-negative integer below 2^31; returns -1, without moving, for any other value. */
  integer(): number {
    this.peek();
    let value = 0;
    let at = this.at;
    for (; at < this.bytes.length; at++) {
      const digit = this.bytes[at]! - 0x30;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
      if (value > 0x7fff_ffff) return -1;
    }
    const next = this.bytes[at];
    if (at === this.at || next === 0x2e || next === 0x65 || next === 0x45) return -1;
    this.at = at;
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
        if (++depth > MAX_DEPTH) this.fail();
        this.at++;
      } else if (byte === CLOSE || byte === CLOSE_LIST) {
        if (--depth < 0) this.fail();
        this.at++;
      } else if (byte === QUOTE) this.#skipString();
      else if (byte === COMMA || byte === COLON) {
        if (depth === 0) this.fail();
        this.at++;
      } else {
        const start = this.at;
        while (this.at < bytes.length && isScalarByte(bytes[this.at]!)) this.at++;
        if (this.at === start) this.fail();
      }
    } while (depth > 0);
  }

  #skipString(): void {
    const { bytes } = this;
    for (let at = this.at + 1; at < bytes.length; at++) {
      const byte = bytes[at]!;
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) {
        this.at = at + 1;
        return;
      }
    }
    this.fail();
  }
}

/** Digits, letters and the signs of numbers. */
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
  target[at] = [0, 0, 0xc0, 0xe0, 0xf0][length]! | (code >> (6 * (length - 1)));
  return length;
}
