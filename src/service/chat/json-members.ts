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
  let index = json.indexOf("{") + 1;
  for (;;) {
    const keyStart = json.indexOf('"', index);
    if (keyStart === -1) return found;
    const keyEnd = skipString(json, keyStart);
    const valueStart = json.indexOf(":", keyEnd) + 1;
    // Leading white space would end up inside the value's text; it is trimmed off with the trailing one.
    let start = valueStart;
    while (/\s/.test(json[start]!)) start++;
    const end = skipValue(json, start);
    // A key may be written with escapes: "\u0073eed" is "seed".
    if ((JSON.parse(json.slice(keyStart, keyEnd)) as string) === name) found = json.slice(start, end).trimEnd();
    index = end;
  }
}
