/** Streaming reader of `multipart/form-data` bodies: the content of a part is yielded as it arrives, without buffering the whole part. */
import { ArgumentError } from "../../base/errors.ts";

/** Max bytes of the headers of one part, and of the bytes before the first part. */
const MAX_HEADER_BYTES = 16 * 1024;
const CRLF = "\r\n";
const HEADERS_END = "\r\n\r\n";

/** Part of a form. */
export interface FormPart {
  readonly name: string;
  /** Name of the file; null for a field. */
  readonly filename: string | null;
  /** Bytes of the part. To be read before the next part is taken, which skips the unread bytes. */
  readonly content: AsyncIterable<Uint8Array>;
}

/**
 * Returns the boundary of a form.
 *
 * @throws ArgumentError `E_ARGUMENT` for another media type, and for a missing or invalid boundary.
 */
export function formBoundary(contentType: string | undefined): string {
  const type = contentType ?? "";
  const [, quoted, plain] = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/iu.exec(type) ?? [];
  const boundary = quoted ?? plain ?? "";
  if (/^multipart\/form-data\s*;/iu.test(type) && /^[!-~ ]{1,70}$/u.test(boundary)) return boundary;
  throw new ArgumentError(
    `Expected a body of the type multipart/form-data with a boundary, got ${type === "" ? "no type" : `'${type.slice(0, 200)}'`}`,
    { param: "Content-Type" },
  );
}

/**
 * Reads the parts of a form in order.
 *
 * @param body - Bytes of the body, in pieces of any size.
 * @throws ArgumentError `E_ARGUMENT` for a body that is not a complete form.
 * @source RFC 7578; RFC 2046, section 5.1.1.
 */
export async function* readForm(body: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<FormPart, void> {
  const reader = new FormReader(body);
  const delimiter = Buffer.from(`${CRLF}--${boundary}`);
  try {
    let preambleBytes = 0;
    for await (const { length } of reader.until(delimiter)) {
      preambleBytes += length;
      if (preambleBytes > MAX_HEADER_BYTES) throw formError("its first boundary");
    }
    while (await hasPart(reader)) {
      const part = partOf(await reader.text(HEADERS_END, "the headers of a part"));
      let isRead = false;
      const content = (async function* () {
        yield* reader.until(delimiter);
        isRead = true;
      })();
      yield { ...part, content };
      // Skips the unread bytes of a content that was read in part or not at all.
      if (!isRead) for await (const _ of reader.until(delimiter));
    }
  } finally {
    await reader.close();
  }
}

/** Reads the two bytes after a delimiter. Returns false after the last delimiter. */
async function hasPart(reader: FormReader): Promise<boolean> {
  const marker = await reader.take(CRLF.length);
  if (marker === "--") return false;
  if (marker !== CRLF) throw formError("a line break after a boundary");
  return true;
}

/** Parses the headers of a part. */
function partOf(headers: string): Omit<FormPart, "content"> {
  const disposition = headers
    .split(CRLF)
    .map((line) => /^content-disposition:\s*form-data\s*(;.*)$/isu.exec(line)?.[1])
    .find((parameters) => parameters !== undefined);
  const parameters = parametersOf(disposition ?? "");
  const name = parameters.get("name");
  if (name === undefined) throw formError("a part with the header Content-Disposition: form-data and a name");
  return { name, filename: parameters.get("filename") ?? null };
}

/** Parameter of a header: a quoted text, in which a backslash escapes the next character, or a plain one. */
const PARAMETER = /;\s*([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))/gsu;

/** Returns the parameters of a header by name, without the escapes of quotes and line breaks that browsers and fetch write. */
function parametersOf(text: string): ReadonlyMap<string, string> {
  const parameters = Array.from(text.matchAll(PARAMETER), ([, name = "", quoted, plain = ""]) => {
    const unquoted = quoted?.replace(/\\(["\\])/gu, "$1") ?? plain;
    const value = unquoted.replace(/%(22|0D|0A)/giu, (_, digits: string) => String.fromCodePoint(Number.parseInt(digits, 16)));
    return [name.toLowerCase(), value] as const;
  });
  return new Map(parameters);
}

/** Returns the error for an incomplete form. `expected` names the missing part. */
function formError(expected: string): ArgumentError {
  return new ArgumentError(
    `Expected a complete form of the type multipart/form-data: it lacks ${expected}. Send it with an HTTP client's form support`,
  );
}

/** Buffered reader of a body. Its methods must be called one after the other. */
class FormReader {
  readonly #iterator: AsyncIterator<Uint8Array>;
  /** Bytes that have arrived and are not read. Starts with a line break, which may be missing before the first delimiter. */
  #buffer: Buffer = Buffer.from(CRLF);

  constructor(body: AsyncIterable<Uint8Array>) {
    this.#iterator = body[Symbol.asyncIterator]();
  }

  /** Yields the bytes before a delimiter, and skips the delimiter. */
  async *until(delimiter: Buffer): AsyncGenerator<Buffer, void> {
    for (;;) {
      const found = this.#buffer.indexOf(delimiter);
      // The last bytes of the buffer may be the beginning of the delimiter.
      const length = found === -1 ? Math.max(0, this.#buffer.length - delimiter.length + 1) : found;
      if (length > 0) yield this.#shift(length);
      if (found !== -1) {
        this.#shift(delimiter.length);
        return;
      }
      await this.#readMore("its last boundary");
    }
  }

  /** Returns the next bytes as text. */
  async take(length: number): Promise<string> {
    while (this.#buffer.length < length) await this.#readMore("its last boundary");
    return this.#shift(length).toString("latin1");
  }

  /** Returns the UTF-8 text before a terminator, and skips the terminator. `what` names the text in errors. */
  async text(terminator: string, what: string): Promise<string> {
    for (;;) {
      const found = this.#buffer.indexOf(terminator);
      if (found !== -1 && found <= MAX_HEADER_BYTES) {
        const text = this.#shift(found).toString("utf8");
        this.#shift(terminator.length);
        return text;
      }
      if (this.#buffer.length > MAX_HEADER_BYTES) throw formError(`the end of ${what} within ${MAX_HEADER_BYTES} bytes`);
      await this.#readMore(what);
    }
  }

  /** Ends the reading of the body. */
  async close(): Promise<void> {
    await this.#iterator.return?.();
  }

  /** Reads another piece into the buffer. `missing` names the part of the form that an end of the body leaves out. */
  async #readMore(missing: string): Promise<void> {
    const { done, value } = await this.#iterator.next();
    if (done === true) throw formError(missing);
    const isEmpty = this.#buffer.length === 0;
    this.#buffer = isEmpty ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : Buffer.concat([this.#buffer, value]);
  }

  /** Removes the next bytes from the buffer and returns them. */
  #shift(length: number): Buffer {
    const bytes = this.#buffer.subarray(0, length);
    this.#buffer = this.#buffer.subarray(length);
    return bytes;
  }
}
