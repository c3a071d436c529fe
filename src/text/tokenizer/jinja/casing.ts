/** Upper, lower and title case of Python. JavaScript has no title case, and its lower case of one character lacks the final sigma. */

/** Characters of four digraphs, in upper, title and lower case. */
const DIGRAPHS = /^[\u01c4-\u01cc\u01f1-\u01f3]$/;
/** Characters with a title case of an upper-case letter followed by lower-case letters. */
const LIGATURES = /^[\u00df\u0587\ufb00-\ufb06\ufb13-\ufb17]$/;
/** Greek letters with a subscript iota; their title case keeps it. */
const IOTA_BLOCK = /^[\u1f80-\u1faf]$/;
const IOTA: Readonly<Record<string, string>> = {
  "\u1fb3": "\u1fbc",
  "\u1fbc": "\u1fbc",
  "\u1fc3": "\u1fcc",
  "\u1fcc": "\u1fcc",
  "\u1ff3": "\u1ffc",
  "\u1ffc": "\u1ffc",
};
const IOTA_COMBINED = /^[\u1fb2\u1fb4\u1fb7\u1fc2\u1fc4\u1fc7\u1ff2\u1ff4\u1ff7]$/;
const CASED = /\p{Cased}/u;
const CASE_IGNORABLE = /\p{Case_Ignorable}/u;

/** Returns the title case of one code point. */
export function titlePoint(point: string): string {
  const code = point.codePointAt(0) ?? 0;
  if (code < 0x80) return point.toUpperCase();
  if (code >= 0x10d0 && code <= 0x10ff) return point;
  if (DIGRAPHS.test(point)) {
    const base = code >= 0x1f1 ? 0x1f1 : 0x1c4 + 3 * Math.floor((code - 0x1c4) / 3);
    return String.fromCharCode(base + 1);
  }
  if (IOTA_BLOCK.test(point)) return String.fromCharCode(code | 8);
  const upper = point.toUpperCase();
  if (IOTA_COMBINED.test(point)) return upper.replace("\u0399", "\u0345");
  if (LIGATURES.test(point)) return upper.charAt(0) + upper.slice(1).toLowerCase();
  return IOTA[point] ?? upper;
}

/** Returns the lower case of the code point at an index, which for a sigma depends on its neighbors. */
function lowerPoint(points: readonly string[], index: number): string {
  const point = points[index] as string;
  if (point !== "\u03a3") return point.toLowerCase();
  const casedBeside = (step: number): boolean => {
    let at = index + step;
    while (at >= 0 && at < points.length && CASE_IGNORABLE.test(points[at] as string)) at += step;
    return CASED.test(points[at] ?? "");
  };
  return casedBeside(-1) && !casedBeside(1) ? "\u03c2" : "\u03c3";
}

/** Returns `text.title()`. */
export function title(text: string): string {
  const points = Array.from(text);
  let result = "";
  let inWord = false;
  for (const [index, point] of points.entries()) {
    result += inWord ? lowerPoint(points, index) : titlePoint(point);
    inWord = CASED.test(point);
  }
  return result;
}

/** Returns `text.capitalize()`. */
export function capitalize(text: string): string {
  const points = Array.from(text);
  return points.map((point, index) => (index === 0 ? titlePoint(point) : lowerPoint(points, index))).join("");
}

/** Returns `text.swapcase()`. */
export function swapCase(text: string): string {
  const points = Array.from(text);
  return points
    .map((point, index) => {
      if (/\p{Uppercase}/u.test(point)) return lowerPoint(points, index);
      return /\p{Lowercase}/u.test(point) ? point.toUpperCase() : point;
    })
    .join("");
}

/** Returns `text.istitle()`. */
export function isTitle(text: string): boolean {
  let cased = false;
  let inWord = false;
  for (const point of text) {
    if (/[\p{Uppercase}\p{Lt}]/u.test(point)) {
      if (inWord) return false;
      cased = inWord = true;
    } else if (/\p{Lowercase}/u.test(point)) {
      if (!inWord) return false;
      cased = inWord = true;
    } else inWord = false;
  }
  return cased;
}

/** Returns `text.islower()` or `text.isupper()`: some cased character, and none of the other case. */
export function isCase(text: string, which: "lower" | "upper"): boolean {
  const [wanted, other] = which === "lower" ? [/\p{Lowercase}/u, /[\p{Uppercase}\p{Lt}]/u] : [/\p{Uppercase}/u, /[\p{Lowercase}\p{Lt}]/u];
  return wanted.test(text) && !other.test(text);
}
