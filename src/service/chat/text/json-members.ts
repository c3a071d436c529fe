/**
 * Reading and changing top-level members in the source text of JSON, where `JSON.parse` would lose digits or spelling.
 *
 * All functions expect text that `JSON.parse` accepts, so that they check no syntax. The functions without export find the bounds of strings,
 * values and members in it.
 */
import { first, last } from "../../../base/util/values.ts";

/** Returns the index just after the string that opens at `start`. */
function skipString(json: string, start: number): number {
  let index = start + 1;
  while (json[index] !== '"') index += json[index] === "\\" ? 2 : 1;
  return index + 1;
}

/** Returns the index just after the value that starts at `start`; for a number or literal, the index of the delimiter after it. */
function skipValue(json: string, start: number): number {
  let depth = 0;
  let index = start;
  while (index < json.length) {
    const character = json.charAt(index);
    if (character === '"') {
      index = skipString(json, index);
      if (depth === 0) return index;
      continue;
    }
    if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") {
      if (depth === 0) return index;
      depth--;
      if (depth === 0) return index + 1;
    } else if (character === "," && depth === 0) return index;
    index++;
  }
  return index;
}

/** A top-level member in the source text of an object. */
interface Member {
  /** Key, with escapes resolved. */
  readonly name: string;
  /** Start of the key, as an index into the text. */
  readonly start: number;
  /** Start of the value, without white space before it. */
  readonly valueStart: number;
  /** End of the value, without white space after it. */
  readonly end: number;
}

/** Yields the members in the order of the text. */
function* membersOf(json: string): Generator<Member> {
  let index = json.indexOf("{") + 1;
  for (;;) {
    const start = json.indexOf('"', index);
    if (start === -1) return;
    const keyEnd = skipString(json, start);
    let valueStart = json.indexOf(":", keyEnd) + 1;
    // Leading white space is excluded from the value's text, as is trailing white space.
    while (/\s/.test(json.charAt(valueStart))) valueStart++;
    index = skipValue(json, valueStart);
    // A key may be written with escapes: "\u0073eed" is "seed".
    const name = JSON.parse(json.slice(start, keyEnd)) as string;
    yield { name, start, valueStart, end: valueStart + json.slice(valueStart, index).trimEnd().length };
  }
}

/**
 * Returns the source texts of the items of a JSON array.
 *
 * @param json - Text that `JSON.parse` accepts and that holds an array; any other text gives an arbitrary result, without an error.
 * @returns Each item's text without surrounding white space.
 */
export function itemTexts(json: string): string[] {
  const items: string[] = [];
  let index = json.indexOf("[") + 1;
  for (;;) {
    while (/[\s,]/.test(json[index] ?? "")) index++;
    const end = skipValue(json, index);
    if (end === index) return items;
    items.push(json.slice(index, end).trimEnd());
    index = end;
  }
}

/**
 * Returns the source text of one top-level member of a JSON object, which keeps details that `JSON.parse` drops: every digit of a 64-bit
 * integer, or the spelling of nested values. Of duplicate members the last counts, as in `JSON.parse`.
 *
 * @param json - Text that `JSON.parse` accepts and that holds an object; any other text gives an arbitrary result, without an error.
 * @param name - Key of the member.
 * @returns The member's text without surrounding white space, or undefined if the object has no such member.
 * @example
 * ```ts
 * memberText('{"seed": 9223372036854775807}', "seed"); // "9223372036854775807"
 * ```
 */
export function memberText(json: string, name: string): string | undefined {
  const span = memberSpan(json, name);
  return span === undefined ? undefined : json.slice(span.start, span.end);
}

/** Returns the bounds of a top-level member's value in the text, without surrounding white space; of duplicate members, the last one's. */
export function memberSpan(json: string, name: string): { readonly start: number; readonly end: number } | undefined {
  let found: { readonly start: number; readonly end: number } | undefined;
  for (const member of membersOf(json)) if (member.name === name) found = { start: member.valueStart, end: member.end };
  return found;
}

/**
 * Returns the object with one member set, as its first; every other byte is unchanged.
 *
 * @param json - As for {@link memberText}.
 * @param name - Key of the member; existing members with this key are removed.
 * @param text - The value's source text.
 */
export function withMember(json: string, name: string, text: string): string {
  const otherMembers = withoutMember(json, name);
  const afterBrace = otherMembers.indexOf("{") + 1;
  const head = otherMembers.slice(0, afterBrace);
  const tail = otherMembers.slice(afterBrace);
  const isEmpty = /^\s*\}/.test(tail);
  const separator = isEmpty ? "" : ",";
  return `${head}${JSON.stringify(name)}:${text}${separator}${tail}`;
}

/** Returns the object without one member, including all its duplicates; every other byte is unchanged. */
export function withoutMember(json: string, name: string): string {
  const members = [...membersOf(json)];
  const lastKeptIndex = members.findLastIndex((member) => member.name !== name);
  let result = "";
  /** End of the text that was copied to `result` or removed. */
  let processedEnd = 0;
  // A member before the last kept one is removed with the comma after it.
  for (const member of members.slice(0, lastKeptIndex + 1)) {
    if (member.name !== name) continue;
    result += json.slice(processedEnd, member.start);
    processedEnd = json.indexOf(",", member.end) + 1;
  }
  // All members after the last kept one are removed, with the comma before each. If none is kept, there is no comma before the first one.
  if (lastKeptIndex < members.length - 1) {
    const removedStart = members[lastKeptIndex]?.end ?? first(members).start;
    result += json.slice(processedEnd, removedStart);
    processedEnd = last(members).end;
  }
  return result + json.slice(processedEnd);
}
