/** Splitting and comparison of texts, as in Python. */

/** White space of Python's `str.split`: the Unicode property, and the separators U+001C to U+001F, which it lacks. */
// oxlint-disable-next-line no-control-regex
const WHITE_SPACE = /[\p{White_Space}\u001C-\u001F]+/u;

/** Splits a text at white space, as Python's `str.split()` does. Returns an empty list for a text of white space only. */
export function words(text: string): string[] {
  return text.split(WHITE_SPACE).filter((word) => word !== "");
}

/** Compares texts by code points. The comparison of JavaScript orders U+10000 and above before U+E000. */
export function byCodePoints(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
