/** Removal of secrets from text that is logged. */

/**
 * Min length of a secret to redact. Shorter secrets are placeholders such as `EMPTY` or common words; keys of the service have at least 8
 * characters.
 */
const MIN_SECRET_LENGTH = 8;

/** Max number of escapes applied one after another that are redacted, such as JSON inside JSON in a URL. */
const MAX_DEPTH = 3;

/** Percent-encodes some characters of a text. */
function percentEncoded(text: string, characters: RegExp): string {
  return text.replace(characters, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Escapes that programs apply when they embed one text in another. */
const ESCAPES: readonly ((text: string) => string)[] = [
  (text) => JSON.stringify(text).slice(1, -1),
  // JSON that is safe inside HTML.
  (text) => text.replace(/[<>&']/gu, (character) => `\\u00${character.charCodeAt(0).toString(16)}`),
  // Strings quoted by Node's `inspect` and in stack traces: either the quote is escaped, or a quote character that the text lacks is used.
  (text) => text.replace(/[\\']/gu, "\\$&"),
  (text) => text.replaceAll("\\", "\\\\"),
  encodeURIComponent,
  encodeURI,
  (text) => new URLSearchParams([["", text]]).toString().slice(1),
  // Path and query of a URL as serialized by `new URL()`.
  (text) => percentEncoded(text, /["<>^`{}]/gu),
  (text) => percentEncoded(text, /["<>']/gu),
  (text) => text.replace(/%[0-9A-F]{2}/gu, (hex) => hex.toLowerCase()),
];

/**
 * Adds a secret and its escaped spellings to `spellings`. A secret of letters, digits, `-` and `_`, as most keys are, has only one
 * spelling.
 */
function collectSpellings(secret: string, spellings: Set<string>): void {
  let newSpellings = [secret];
  spellings.add(secret);
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    newSpellings = newSpellings.flatMap((text) => ESCAPES.map((escape) => escape(text))).filter((text) => !spellings.has(text));
    for (const text of newSpellings) spellings.add(text);
  }
}

/** Returns a text with its percent-encoded characters decoded. Malformed escapes stay. */
function decoded(text: string): string {
  return text.replace(/%([0-9a-f]{2})/giu, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/**
 * Applies a redactor also to percent-encoded text, in which any character of a secret may be encoded, also repeatedly. A word that contains
 * such a secret is returned decoded.
 */
export function redactEncoded(text: string, redact: (text: string) => string): string {
  return redact(text).replace(/\S*%[0-9a-f]{2}\S*/giu, (word) => {
    let current = word;
    for (let depth = 0; depth < MAX_DEPTH; depth++) {
      current = decoded(current);
      const redacted = redact(current);
      if (redacted !== current) return redacted.replaceAll(/[^\u0021-\u007e]/gu, encodeURIComponent);
    }
    return word;
  });
}

/**
 * Creates a function that replaces secrets in a text with `[key]`, including spellings with JSON, string or URL escapes.
 *
 * @param secrets - Visible ASCII without spaces. Undefined entries and entries under 8 characters are ignored.
 */
export function createRedactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const spellings = new Set<string>();
  for (const secret of secrets) if (secret !== undefined && secret.length >= MIN_SECRET_LENGTH) collectSpellings(secret, spellings);
  if (spellings.size === 0) return (text) => text;
  // Longest first, because one spelling may be a prefix of another.
  const longestFirst = [...spellings].toSorted((a, b) => b.length - a.length);
  const pattern = new RegExp(longestFirst.map((text) => text.replace(/[^\w]/gu, "\\$&")).join("|"), "g");
  return (text) => text.replace(pattern, "[key]");
}
