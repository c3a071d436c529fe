/** Upper, lower and title case of Python. JavaScript has no title case, and its lower case of one character lacks the final sigma. */

/** Cost of the functions of this file relative to a linear pass over the text: they test each character with regular expressions. */
export const CASING_COST = 64;

/** Characters of four digraphs, each in upper, title and lower case, in this order. */
const DIGRAPHS = /^[\u01c4-\u01cc\u01f1-\u01f3]$/;
/** Characters with a title case of an upper-case letter followed by lower-case letters. */
const LIGATURES = /^[\u00df\u0587\ufb00-\ufb06\ufb13-\ufb17]$/;
/** Greek letters with a subscript iota, which their title case keeps: with breathings, alone, and with other marks. */
const [IOTA_BREATHING, IOTA_ALONE] = [/^[\u1f80-\u1faf]$/, /^[\u1fb3\u1fc3\u1ff3]$/];
const IOTA_COMBINED = /^[\u1fb2\u1fb4\u1fb7\u1fc2\u1fc4\u1fc7\u1ff2\u1ff4\u1ff7]$/;
const UPPER = /[\p{Uppercase}\p{Lt}]/u;
const LOWER = /\p{Lowercase}/u;
const CASED = /\p{Cased}/u;
const CASE_IGNORABLE = /\p{Case_Ignorable}/u;
/** Upper case inside of a word, or lower case at its beginning. */
const NOT_TITLE = /(?<=\p{Cased})[\p{Uppercase}\p{Lt}]|(?<!\p{Cased})\p{Lowercase}/u;

/** Returns the title case of one code point. */
export function titlePoint(point: string): string {
  const code = point.codePointAt(0) ?? 0;
  if (code < 0x80) return point.toUpperCase();
  // Georgian letters have an upper case, but remain as they are in titles.
  if ((code >= 0x10d0 && code <= 0x10ff) || /\p{Lt}/u.test(point)) return point;
  if (DIGRAPHS.test(point)) return String.fromCharCode(code >= 0x1f1 ? 0x1f2 : 0x1c5 + 3 * Math.floor((code - 0x1c4) / 3));
  // The title case of these letters differs in bit 3, or is 9 code points later.
  if (IOTA_BREATHING.test(point)) return String.fromCharCode(code | 8);
  if (IOTA_ALONE.test(point)) return String.fromCharCode(code + 9);
  const upper = point.toUpperCase();
  if (IOTA_COMBINED.test(point)) return upper.replace("\u0399", "\u0345");
  return LIGATURES.test(point) ? upper.charAt(0) + upper.slice(1).toLowerCase() : upper;
}

/** Returns the lower case of the code point at an index. A sigma is final (ς) after a cased letter if none follows. */
function lowerPoint(points: readonly string[], index: number): string {
  const point = points[index] as string;
  if (point !== "\u03a3") return point.toLowerCase();
  const isNextToCased = (step: number): boolean => {
    let at = index + step;
    while (at >= 0 && at < points.length && CASE_IGNORABLE.test(points[at] as string)) at += step;
    return CASED.test(points[at] ?? "");
  };
  return isNextToCased(-1) && !isNextToCased(1) ? "\u03c2" : "\u03c3";
}

/** Replaces each code point of a text by the result of `change`, which also receives its index and all code points. */
function mapPoints(text: string, change: (point: string, index: number, points: readonly string[]) => string): string {
  return Array.from(text).map(change).join("");
}

/** Returns `text.title()`. */
export function title(text: string): string {
  return mapPoints(text, (point, index, points) => (CASED.test(points[index - 1] ?? "") ? lowerPoint(points, index) : titlePoint(point)));
}

/** Returns `text.capitalize()`. */
export function capitalize(text: string): string {
  return mapPoints(text, (point, index, points) => (index === 0 ? titlePoint(point) : lowerPoint(points, index)));
}

/** Returns `text.swapcase()`. */
export function swapCase(text: string): string {
  return mapPoints(text, (point, index, points) => {
    if (/\p{Uppercase}/u.test(point)) return lowerPoint(points, index);
    return LOWER.test(point) ? point.toUpperCase() : point;
  });
}

/** Returns `text.istitle()`. */
export function isTitle(text: string): boolean {
  return CASED.test(text) && !NOT_TITLE.test(text);
}

/** Returns `text.islower()` or `text.isupper()`: some cased character, and none of the other case. */
export function isCase(text: string, which: "lower" | "upper"): boolean {
  const other = which === "lower" ? UPPER : /[\p{Lowercase}\p{Lt}]/u;
  return CASED.test(text) && !other.test(text);
}
