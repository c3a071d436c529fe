/** Index just after the string that opens at `start`. */
function skipString(json: string, start: number): number {
  let index = start + 1;
  while (json[index] !== '"') index += json[index] === "\\" ? 2 : 1;
  return index + 1;
}

/** Index just after the value that starts at `start`. */
function skipValue(json: string, start: number): number {
  let depth = 0;
  let index = start;
  for (; index < json.length;) {
    const character = json[index]!;
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
  /** The key, escapes resolved. */
  readonly name: string;
  /** Where the key begins, and where the value does and has ended, white space left out. */
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

/** The members in the order of the text. */
function* membersOf(json: string): Generator<Member> {
  let index = json.indexOf("{") + 1;
  for (;;) {
    const start = json.indexOf('"', index);
    if (start === -1) return;
    const keyEnd = skipString(json, start);
    let valueStart = json.indexOf(":", keyEnd) + 1;
    // Leading white space would end up inside the value's text; it is left out like the trailing one.
    while (/\s/.test(json[valueStart]!)) valueStart++;
    index = skipValue(json, valueStart);
    // A key may be written with escapes: "\u0073eed" is "seed".
    const name = JSON.parse(json.slice(start, keyEnd)) as string;
    yield { name, start, valueStart, end: valueStart + json.slice(valueStart, index).trimEnd().length };
  }
}

/**
 * The source texts of the items of a JSON array.
 *
 * @param json - Text that `JSON.parse` has accepted and that holds an array; anything else gives nonsense.
 * @returns Each item's text without surrounding white space.
 */
export function itemTexts(json: string): string[] {
  const items: string[] = [];
  for (let index = json.indexOf("[") + 1; ;) {
    while (/[\s,]/.test(json[index] ?? "")) index++;
    const end = skipValue(json, index);
    if (end === index) return items;
    items.push(json.slice(index, end).trimEnd());
    index = end;
  }
}

/**
 * The source text of one top-level member of a JSON object: what `JSON.parse` does not keep, such as every digit of a
 * 64-bit integer or the spelling of nested values. Of duplicates the last counts, as in `JSON.parse`.
 *
 * @param json - Text that `JSON.parse` has accepted and that holds an object; anything else gives nonsense.
 * @returns The member's text without surrounding white space, or undefined when the object has no such member.
 * @example
 * ```ts
 * memberText('{"seed": 9223372036854775807}', "seed"); // "9223372036854775807"
 * ```
 */
export function memberText(json: string, name: string): string | undefined {
  let found: string | undefined;
  for (const member of membersOf(json)) if (member.name === name) found = json.slice(member.valueStart, member.end);
  return found;
}

/**
 * The object with one member set, first; every other byte as it was.
 *
 * @param json - As for {@link memberText}.
 * @param text - The value's source text.
 */
export function withMember(json: string, name: string, text: string): string {
  const rest = withoutMember(json, name);
  const open = rest.indexOf("{") + 1;
  const isEmpty = /^\s*\}/.test(rest.slice(open));
  return `${rest.slice(0, open)}${JSON.stringify(name)}:${text}${isEmpty ? "" : ","}${rest.slice(open)}`;
}

/** The object without one member, however often it has it; every other byte as it was. */
export function withoutMember(json: string, name: string): string {
  const members = [...membersOf(json)];
  const lastKept = members.findLastIndex((member) => member.name !== name);
  let result = "";
  let from = 0;
  for (const member of members.slice(0, lastKept + 1)) {
    if (member.name !== name) continue;
    // One of the two commas around a member goes with it: the one behind it …
    result += json.slice(from, member.start);
    from = json.indexOf(",", member.end) + 1;
  }
  if (lastKept < members.length - 1) {
    // … or for the last ones that before.
    result += json.slice(from, members[lastKept]?.end ?? members[0]!.start);
    from = members.at(-1)!.end;
  }
  return result + json.slice(from);
}
