/** Limit on the nesting of groups in regular expressions and grammars of a request, which are parsed and translated by recursion. */
import { ArgumentError } from "../../../base/errors.ts";

/** Max levels of groups in a regular expression or a grammar. JSON of a request has the same bound. */
const MAX_GROUPS = 128;

/**
 * Requires that groups are nested at most {@link MAX_GROUPS} levels deep.
 *
 * @param name - Name of the expression, for the message.
 * @throws ArgumentError `E_ARGUMENT` otherwise.
 */
export function checkNesting(depth: number, name: string): void {
  if (depth > MAX_GROUPS)
    throw new ArgumentError(
      `${name} has more than ${MAX_GROUPS} levels of groups: expected at most ${MAX_GROUPS}; remove brackets that are not needed`,
    );
}

/**
 * Checks the nesting of a regular expression's groups in its text, before it is parsed.
 *
 * @param name - Name of the expression, for the message.
 * @throws ArgumentError `E_ARGUMENT` if they are nested too deeply.
 */
export function checkGroups(source: string, name: string): void {
  let depth = 0;
  // An escape or a character class is one part, so that brackets in it do not count.
  for (const [part] of source.matchAll(/\\.|\[(?:\\.|[^\]\\])*\]?|[()]/gsu)) {
    if (part === ")") depth--;
    if (part !== "(") continue;
    depth++;
    checkNesting(depth, name);
  }
}
