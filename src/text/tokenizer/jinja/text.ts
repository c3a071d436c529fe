/** `str` of Python over the strings of JavaScript: positions in code points instead of UTF-16 units, and Python's set of white space. */

/** Characters for which `str.isspace` holds. None has a special meaning in a character class of a regular expression. */
export const WHITE_SPACE =
  "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
const SPACE = `[${WHITE_SPACE}]`;
const SPACES = new RegExp(`${SPACE}+`, "g");
const LEADING_SPACE = new RegExp(`^${SPACE}+`);
const ONLY_SPACE = new RegExp(`^${SPACE}+$`);
const LINE_END_CLASS = "\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029";
const LINE_END = new RegExp(`\\r\\n|[${LINE_END_CLASS}]`, "g");
const SURROGATE = /[\ud800-\udfff]/;

/** Whether a text is not empty and has only white space. */
export function isAllSpace(text: string): boolean {
  return ONLY_SPACE.test(text);
}

/** Whether a text has no surrogates, so that its code points and UTF-16 units are the same. */
export function isBmpOnly(text: string): boolean {
  return !SURROGATE.test(text);
}

/** Returns `len(text)`. */
export function lengthOf(text: string): number {
  if (isBmpOnly(text)) return text.length;
  let pairs = 0;
  for (let unit = 1; unit < text.length; unit++) {
    if ((text.charCodeAt(unit) & 0xfc00) === 0xdc00 && (text.charCodeAt(unit - 1) & 0xfc00) === 0xd800) pairs++;
  }
  return text.length - pairs;
}

/** Returns the code points of a text, each as a string. */
export function pointsOf(text: string): string[] {
  return isBmpOnly(text) ? text.split("") : Array.from(text);
}

/** Returns the position in UTF-16 units of the code point at a position in code points. */
export function unitAt(text: string, point: number): number {
  let unit = 0;
  for (let passed = 0; passed < point && unit < text.length; passed++) unit += (text.codePointAt(unit) ?? 0) > 0xffff ? 2 : 1;
  return unit;
}

/** Returns the number of code points before a UTF-16 unit. */
export function pointAt(text: string, unit: number): number {
  return lengthOf(text.slice(0, unit));
}

/** Compares by code points, as Python does: negative, zero or positive. */
export function compareText(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const left = a.charCodeAt(index);
    const right = b.charCodeAt(index);
    if (left !== right) return codePointRank(left) - codePointRank(right);
  }
  return a.length - b.length;
}

/** Returns the rank of a UTF-16 unit in the order of code points, in which surrogates come last. */
function codePointRank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit >= 0xe000 ? unit - 0x800 : unit + 0x2000;
}

/** Sides of a text that an operation strips. */
export type Sides = "both" | "left" | "right";

/**
 * Returns `text.strip(characters)`, `lstrip` or `rstrip`.
 *
 * @param characters - Code points to strip. Default: white space.
 */
export function strip(text: string, sides: Sides = "both", characters = WHITE_SPACE): string {
  // The text is split into code points only if a stripped one may consist of two units.
  const isByUnit = isBmpOnly(characters);
  const points: string | readonly string[] = isByUnit ? text : Array.from(text);
  const strippedPoints = new Set(isByUnit ? "" : characters);
  const matches = (index: number): boolean =>
    isByUnit ? characters.includes(text.charAt(index)) : strippedPoints.has(points[index] as string);
  let start = 0;
  let end = points.length;
  if (sides !== "right") while (start < end && matches(start)) start++;
  if (sides !== "left") while (end > start && matches(end - 1)) end--;
  const kept = points.slice(start, end);
  return typeof kept === "string" ? kept : kept.join("");
}

/** Returns `text.split(separator, limit)`; a negative limit means no limit. */
export function splitText(text: string, separator: string | undefined, limit: number): string[] {
  if (separator === undefined) return splitSpace(text, limit);
  if (limit < 0) return text.split(separator);
  const parts: string[] = [];
  let partStart = 0;
  while (parts.length < limit) {
    const partEnd = text.indexOf(separator, partStart);
    if (partEnd < 0) break;
    parts.push(text.slice(partStart, partEnd));
    partStart = partEnd + separator.length;
  }
  parts.push(text.slice(partStart));
  return parts;
}

/** Returns `text.split(None, limit)`: the words between white space. */
function splitSpace(text: string, limit: number): string[] {
  const trimmed = text.replace(LEADING_SPACE, "");
  if (limit < 0) {
    const words = strip(trimmed, "right");
    return words === "" ? [] : words.split(SPACES);
  }
  const parts: string[] = [];
  let remaining = trimmed;
  while (remaining !== "" && parts.length < limit) {
    SPACES.lastIndex = 0;
    const gap = SPACES.exec(remaining);
    if (gap === null) break;
    parts.push(remaining.slice(0, gap.index));
    remaining = remaining.slice(gap.index + gap[0].length);
  }
  if (remaining !== "") parts.push(remaining);
  return parts;
}

/** Returns `text.rsplit(separator, limit)`; a negative limit means no limit. */
export function rsplit(text: string, separator: string | undefined, limit: number): string[] {
  if (limit < 0) return splitText(text, separator, limit);
  if (separator === undefined) return rsplitSpace(text, limit);
  const parts: string[] = [];
  let remaining = text;
  while (parts.length < limit) {
    const separatorStart = remaining.lastIndexOf(separator);
    if (separatorStart < 0) break;
    parts.push(remaining.slice(separatorStart + separator.length));
    remaining = remaining.slice(0, separatorStart);
  }
  parts.push(remaining);
  return parts.toReversed();
}

/** Returns `text.rsplit(None, limit)`: the last words between white space, and the text before them. */
function rsplitSpace(text: string, limit: number): string[] {
  const parts: string[] = [];
  let remaining = strip(text, "right");
  while (remaining !== "" && parts.length < limit) {
    let wordStart = remaining.length;
    while (wordStart > 0 && !WHITE_SPACE.includes(remaining.charAt(wordStart - 1))) wordStart--;
    if (wordStart === 0) break;
    parts.push(remaining.slice(wordStart));
    remaining = strip(remaining.slice(0, wordStart), "right");
  }
  if (remaining !== "") parts.push(remaining);
  return parts.toReversed();
}

/** Returns `text.splitlines(keepEnds)`. */
export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let lineStart = 0;
  for (const lineEnd of text.matchAll(LINE_END)) {
    const nextLine = lineEnd.index + lineEnd[0].length;
    lines.push(text.slice(lineStart, keepEnds ? nextLine : lineEnd.index));
    lineStart = nextLine;
  }
  if (lineStart < text.length) lines.push(text.slice(lineStart));
  return lines;
}

/** Returns `text.replace(old, replacement, limit)`; a negative limit means no limit. */
export function replace(text: string, old: string, replacement: string, limit: number): string {
  if (limit < 0 && old !== "") return text.split(old).join(replacement);
  if (old === "") {
    // As in Python, the empty text occurs before each code point and at the end.
    const points = pointsOf(text);
    const replaced = limit < 0 ? points.length + 1 : limit;
    const result = points.map((point, index) => (index < replaced ? replacement + point : point)).join("");
    return replaced > points.length ? result + replacement : result;
  }
  return splitText(text, old, limit).join(replacement);
}

/** Returns `text.count(part)`: the number of occurrences without overlaps. */
export function countOccurrences(text: string, part: string): number {
  if (part === "") return lengthOf(text) + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count++;
  return count;
}
