/** Bound on the nesting of groups in expressions of a request, because they are parsed and translated by recursion. */
import { ArgumentError } from "../../../base/errors.ts";

/** Max levels of groups in a regular expression or a grammar. JSON of a request has the same bound. */
const MAX_GROUPS = 128;

/** Throws if groups are nested deeper than the bound. @throws ArgumentError `E_ARGUMENT`. */
export function checkNesting(depth: number, name: string): void {
  if (depth > MAX_GROUPS)
    throw new ArgumentError(
      `${name} has more than ${MAX_GROUPS} levels of groups: expected at most ${MAX_GROUPS}; remove brackets that are not needed`,
    );
}

/** Checks the groups of a regular expression in one pass over its text. @throws ArgumentError `E_ARGUMENT` if they are nested too deeply. */
export function checkGroups(source: string, name: string): void {
  let depth = 0;
  for (const [part] of source.matchAll(/\\.|\[(?:\\.|[^\]\\])*\]?|[()]/gsu)) {
    if (part === "(") checkNesting(++depth, name);
    else if (part === ")") depth--;
  }
}
