/** Removal of secrets from text that is logged. */

/** Shorter secrets are placeholders such as `EMPTY`, and words in any text. Keys of the service have 8 characters or more. */
const MIN_SECRET_LENGTH = 8;

/** Spellings inside spellings that are looked for, such as JSON inside JSON in a URL. */
const MAX_DEPTH = 3;

function percentEncoded(text: string, characters: RegExp): string {
  return text.replace(characters, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Ways in which programs write a text inside another one. */
const SPELLINGS: readonly ((text: string) => string)[] = [
  (text) => JSON.stringify(text).slice(1, -1),
  // JSON that is safe inside HTML.
  (text) => text.replace(/[<>&']/gu, (character) => `\\u00${character.charCodeAt(0).toString(16)}`),
  // Strings as Node's `inspect` and stack traces quote them: with the quote escaped, or with a quote that the text has not.
  (text) => text.replace(/[\\']/gu, "\\$&"),
  (text) => text.replaceAll("\\", "\\\\"),
  encodeURIComponent,
  encodeURI,
  (text) => new URLSearchParams([["", text]]).toString().slice(1),
  // The path and the query of a URL, as `new URL()` writes them.
  (text) => percentEncoded(text, /["<>^`{}]/gu),
  (text) => percentEncoded(text, /["<>']/gu),
  (text) => text.replace(/%[0-9A-F]{2}/gu, (hex) => hex.toLowerCase()),
];

/** Adds a secret and its spellings to `found`. Most keys are letters, digits, `-` and `_`, and have one spelling alone. */
function collectSpellings(secret: string, found: Set<string>): void {
  let newest = [secret];
  found.add(secret);
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    newest = newest.flatMap((text) => SPELLINGS.map((spell) => spell(text))).filter((text) => !found.has(text));
    for (const text of newest) found.add(text);
  }
}

/**
 * Returns a function that replaces secrets in a text by `[key]`, also where JSON, quoted strings or URLs spell them with escapes.
 *
 * @param secrets - Visible ASCII without spaces. Undefined ones, and ones under 8 characters, are left out.
 */
export function createRedactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const found = new Set<string>();
  for (const secret of secrets) if (secret !== undefined && secret.length >= MIN_SECRET_LENGTH) collectSpellings(secret, found);
  if (found.size === 0) return (text) => text;
  // The longest first: one spelling may begin another.
  const longestFirst = [...found].toSorted((a, b) => b.length - a.length);
  const pattern = new RegExp(longestFirst.map((text) => text.replace(/[^\w]/gu, "\\$&")).join("|"), "g");
  return (text) => text.replace(pattern, "[key]");
}
